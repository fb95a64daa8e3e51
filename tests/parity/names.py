"""Our results under the reference's names: targets and logs of one batch. Used by the cases."""

import jax
import jax.numpy as jnp

from rulax.metanet.estimates import Estimates, estimate
from rulax.metanet.features import make_signals
from rulax.metanet.network import MetaNetwork, MetaReading
from rulax.metanet.sizes import Constants, Sizes
from rulax.rules.disco import DiscoState, losses
from rulax.types import Batch, Predictions
from rulax.values.policies import entropy
from tests.parity.arrays import named_moments

TERMS = {"policy": "pi", "state_prediction": "y", "action_prediction": "z", "next_policy": "aux_policy", "value": "value"}


def run_rule(network: MetaNetwork, state: DiscoState, batch: Batch, sizes: Sizes):
    """What `targets` of the rule does, with everything between: new state, estimates, reading."""
    scales, estimates = estimate(state.scales, batch, sizes, Constants())
    lifetime, reading = network.read(make_signals(batch, estimates), state.lifetime)
    return DiscoState(lifetime, scales), estimates, reading


def meta_out(estimates: Estimates, reading: MetaReading) -> dict[str, jax.Array]:
    """What the reference returns as `meta_out`."""
    return estimates_out(estimates) | {
        "pi": reading.targets["policy"],
        "y": reading.targets["state_prediction"],
        "z": reading.targets["action_prediction"],
        "meta_input_emb": reading.summary,
    }


def estimates_out(estimates: Estimates) -> dict[str, jax.Array]:
    """The part of `meta_out` that needs no meta-network."""
    return {
        "q_target": estimates.target,
        "adv": estimates.advantage,
        "normalized_adv": estimates.normalised_advantage,
        "qv_adv": estimates.action_advantages,
        "normalized_qv_adv": estimates.normalised_action_advantages,
        "q_td": estimates.error,
        "normalized_q_td": estimates.normalised_error,
    }


def state_out(state: DiscoState, rnn: str, prefix: str = "") -> dict[str, jax.Array]:
    """The rule's state; `rnn` is what the record calls the lifetime's memory."""
    named = {f"{rnn}_hidden": state.lifetime.hidden, f"{rnn}_cell": state.lifetime.cell}
    return named | named_moments(f"{prefix}adv_ema", state.scales.advantage) | named_moments(f"{prefix}td_ema", state.scales.error)


def meta_logs(taken: Predictions, batch: Batch, targets: dict, sizes: Sizes) -> dict[str, jax.Array]:
    """Logs of the discovered losses; the reference averages over all steps, masked or not."""
    terms = losses(taken, targets, batch.experience, sizes)
    logs = {
        "logits": taken["policy"],
        "y": taken["state_prediction"],
        "z": batch.online["action_prediction"][:-1],
        "entropy": entropy(taken["policy"]),
        "y_entropy": entropy(taken["state_prediction"]),
        "z_entropy": entropy(taken["action_prediction"]),
        "pi_loss": terms["policy"],
        "aux_kl_loss": terms["next_policy"],
        "pi_hat": targets["policy"],
        "y_hat": targets["state_prediction"],
        "z_hat": targets["action_prediction"],
        "pi_hat_entropy": entropy(targets["policy"]),
        "aux_policy_entropy": entropy(taken["next_policy"]),
        "aux_target_entropy": entropy(targets["next_policy"]),
    }
    return {name: jnp.mean(value) for name, value in logs.items()}


def value_logs(taken: Predictions, batch: Batch, targets: dict, estimates: Estimates, sizes: Sizes) -> dict[str, jax.Array]:
    """Logs of the value loss."""
    logs = {
        "q_target": estimates.target,
        "agent_q_mean": estimates.values,
        "q_loss": losses(taken, targets, batch.experience, sizes)["value"],
        "td": estimates.error,
        "normalized_td": estimates.normalised_error,
    }
    return {name: jnp.mean(value) for name, value in logs.items()}
