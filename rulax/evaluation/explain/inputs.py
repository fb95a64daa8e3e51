"""The inputs of a meta-network split into named groups and put together again, so that each group can be analysed alone."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from rulax.metanet.estimates import estimate
from rulax.metanet.features import Signals, make_signals
from rulax.metanet.network import MetaNetwork
from rulax.metanet.sizes import Constants, Sizes
from rulax.types import Array, Batch, PyTree

TARGETS = ("policy", "state_prediction", "action_prediction")


def take_apart(signals: Signals) -> dict[str, PyTree]:
    """Named groups of inputs; see metanet/features.py for the order of the columns."""
    scalars, before, after = signals.scalars, signals.channels_before, signals.channels_after
    parts: dict[str, PyTree] = {
        "policy": (scalars[..., :1], before[..., :1], signals.probabilities),
        "acting policy": (scalars[..., 1:2], before[..., 1:2]),
        "slow policy": (scalars[..., -1:], before[..., 2:3]),
        "reward": scalars[..., 2:3],
        "episode goes on": scalars[..., 3:4],
        "action taken": after[..., -1:],
    }
    if scalars.shape[-1] > 5:  # with a value head
        parts |= {"value": scalars[..., 4:6], "advantage": scalars[..., 6:8], "q of each action": after[..., :-1]}
    if signals.state_predictions:
        parts |= {"y": signals.state_predictions[0], "slow y": signals.state_predictions[1]}
        parts |= {"z": signals.action_predictions[0], "slow z": signals.action_predictions[1]}
    return parts


def put_together(signals: Signals, parts: dict[str, PyTree]) -> Signals:
    """The inverse of `take_apart`; everything else comes from `signals`."""
    policy, acting, slow = parts["policy"], parts["acting policy"], parts["slow policy"]
    valued = [parts[name] for name in ("value", "advantage") if name in parts]
    scalars = [policy[0], acting[0], parts["reward"], parts["episode goes on"], *valued, slow[0]]
    after = [*([parts["q of each action"]] if "q of each action" in parts else []), parts["action taken"]]
    predicted = "y" in parts
    return signals._replace(
        scalars=jnp.concatenate(scalars, -1),
        probabilities=policy[2],
        channels_before=jnp.concatenate([policy[1], acting[1], slow[1]], -1),
        channels_after=jnp.concatenate(after, -1),
        state_predictions=(parts["y"], parts["slow y"]) if predicted else (),
        action_predictions=(parts["z"], parts["slow z"]) if predicted else (),
    )


# One function per flag, because compiled programs are cached by the identity of `respond`.
@functools.lru_cache(maxsize=4)
def answer(bootstrap: bool) -> Callable[[PyTree, dict[str, PyTree]], dict[str, Array]]:
    """The targets as a function of the named inputs; operands are the network, the lifetime LSTM's state and the other signals."""

    def respond(operands: tuple[MetaNetwork, PyTree, Signals], parts: dict[str, PyTree]) -> dict[str, Array]:
        network, memory, signals = operands
        targets = network.read(put_together(signals._replace(bootstrap=bootstrap), parts), memory)[1].targets
        return {name: targets[name] for name in TARGETS if name in targets}

    return respond


@functools.lru_cache(maxsize=4)
def signals_of(sizes: Sizes, constants: Constants) -> Callable[[PyTree, Batch], Signals]:
    """A compiled function: all inputs of the meta-network, without `bootstrap`, which is not an array."""

    def gather(scales: PyTree, batch: Batch) -> Signals:
        estimates = estimate(scales, batch, sizes, constants)[1] if sizes.value else None
        return make_signals(batch, estimates, sizes.bootstrap)._replace(bootstrap=None)  # type: ignore[arg-type]

    return jax.jit(gather)
