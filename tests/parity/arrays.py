"""Recorded arrays in our format. The alignment of the reference lives here and nowhere in the package.

The reference stores a reward and a discount with the observation that *follows* the action, and T + 1 actions. An episode's
end shows as discount 0 beside the first observation of the next episode, and the loss leaves out the step taken from there.
So `discount` and `reward` are its entries from 1 on, `first` is where its discount is 0, and `valid` is its loss mask.
"""

import dataclasses
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents import make_agent
from rulax.agents.layers import LSTMState
from rulax.metanet.estimates import Scales
from rulax.rules.disco import DiscoState, heads
from rulax.settings import Network
from rulax.types import Experience
from rulax.values.normalisation import Moments
from tests.parity.compare import Recorded

HEADS = {"logits": "policy", "y": "state_prediction", "z": "action_prediction", "q": "value", "aux_pi": "next_policy"}


CUT = "cut"  # an array of this name marks a file of which only some results were kept
LEFT_OUT = "LEFT_OUT"  # a file that names the cases which a cut folder does not hold on purpose


class BadFile(ValueError):
    """A recorded file cannot be used."""


def read(path: Path) -> Recorded:
    """A recorded file; floats in the precision that JAX computes with."""
    precision = jnp.result_type(float)
    try:
        with np.load(path, allow_pickle=False) as data:
            # Results stay as they were recorded: a float64 record is not rounded to be compared.
            arrays = {name: np.asarray(data[name]) for name in data.files}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise BadFile(f"{path.name} cannot be read: {error}") from error
    cut = arrays.pop(CUT, None) is not None
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BadFile(f"{path.name}: {name} is not finite")
    floats = {name: array.astype(precision) for name, array in arrays.items() if name[:3] == "in/" and array.dtype.kind == "f"}
    return Recorded(arrays | floats, cut)


def number(array: np.ndarray) -> float:
    """A recorded hyper-parameter as the Python number that it was: 0.01, not the float32 next to it."""
    return float(str(np.float32(array)))


def under(arrays: Mapping, prefix: str) -> dict[str, np.ndarray]:
    """What lies under a prefix, by the rest of the name."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def experience(arrays: Mapping, prefix: str = "in/", index: tuple = ()) -> Experience:
    """A recorded rollout as experience."""
    part = {name: jnp.asarray(array)[index] for name, array in under(arrays, prefix).items() if "/" not in name and array.ndim > 1}
    discounts = part["discounts"]
    return Experience(
        observation=part.get("observations", jnp.zeros((*discounts.shape, 1))),
        action=part["actions"][:-1],
        reward=part["rewards"][1:],
        discount=discounts[1:].astype(part["rewards"].dtype),
        first=discounts == 0,
        valid=discounts[:-1] > 0,
        behaviour=part["behaviour_logits"][:-1],
        memory=(),
    )


def early_experience(arrays: Mapping, prefix: str = "in/", index: tuple = ()) -> Experience:
    """The same as the notebook's critic reads it: an action beside the reward and discount that arrived *before* it."""
    part = {name: jnp.asarray(arrays[prefix + name])[index][:-1] for name in ("rewards", "discounts")}
    read = experience(arrays, prefix, index)
    discount = (part["discounts"] > 0).astype(part["rewards"].dtype)
    return read._replace(reward=part["rewards"], discount=discount, valid=jnp.ones_like(read.valid))


def predictions(arrays: Mapping, prefix: str) -> dict[str, jax.Array]:
    """Recorded network outputs under our names."""
    return {HEADS[name]: jnp.asarray(array) for name, array in under(arrays, prefix).items()}


def moments(arrays: Mapping, prefix: str) -> Moments:
    return Moments(*(jnp.asarray(arrays[f"{prefix}/{field}"]) for field in Moments._fields))


def rule_state(arrays: Mapping) -> DiscoState:
    """The rule's recorded state before a call."""
    lifetime = LSTMState(jnp.asarray(arrays["in/rnn_hidden"]), jnp.asarray(arrays["in/rnn_cell"]))
    return DiscoState(lifetime, Scales(moments(arrays, "in/adv_ema"), moments(arrays, "in/td_ema")))


def named_moments(name: str, values: Moments) -> dict[str, jax.Array]:
    return {f"{name}/{field}": value for field, value in values._asdict().items()}


# -- agents ------------------------------------------------------------------------------------------------------------------

LAYERS = {
    r"mlp/~_embedding_pass/torso/~/linear_(\d+)": "torso.mlp.layers.{}",
    r"mlp/~_head_pass/torso_head/~/linear_0": "heads.state.policy",
    r"mlp/~_head_pass/torso_head_1/~/linear_0": "heads.state.state_prediction",
    r"mlp/linear": "heads.action.root",
    r"mlp/action_cond/linear": "heads.action.step",
    r"mlp/mlp/~/linear_(\d+)": "heads.action.heads.action_prediction.layers.{}",
    r"mlp/mlp_1/~/linear_(\d+)": "heads.action.heads.next_policy.layers.{}",
    r"mlp/mlp_2/~/linear_(\d+)": "heads.action.heads.value.layers.{}",
}


def our_path(module: str) -> str:
    """Where a layer of the reference's agent is in ours."""
    for pattern, path in LAYERS.items():
        if match := re.fullmatch(pattern, module):
            return path.format(*match.groups())
    raise KeyError(module)


def widths(params: Mapping, stem: str) -> tuple[int, ...]:
    """Output widths of the layers `stem`_0, `stem`_1, ..."""
    found = []
    while f"{stem}_{len(found)}/b" in params:
        found.append(params[f"{stem}_{len(found)}/b"].shape[0])
    return tuple(found)


def agent(params: Mapping, observation_shape: tuple[int, ...], sizes):
    """The reference's agent as ours; every size comes from the arrays."""
    network = Network(
        torso="mlp",
        hidden=widths(params, "mlp/~_embedding_pass/torso/~/linear"),
        activate_last=False,
        action_model=params["mlp/linear/b"].shape[0],
        action_hidden=widths(params, "mlp/mlp/~/linear")[:-1],
    )
    num_actions = params["mlp/~_head_pass/torso_head/~/linear_0/b"].shape[0]
    sizes = dataclasses.replace(
        sizes,
        prediction_size=params["mlp/~_head_pass/torso_head_1/~/linear_0/b"].shape[0],
        bins=widths(params, "mlp/mlp_2/~/linear")[-1],
    )
    spec = jax.ShapeDtypeStruct(observation_shape, jnp.float32)
    skeleton = jax.eval_shape(lambda: make_agent(jax.random.key(0), spec, num_actions, heads(num_actions, sizes), network))
    ours = {}
    for module in {name.rpartition("/")[0] for name in params}:
        path, weight = our_path(module), jnp.asarray(params[f"{module}/w"])
        ours[f"{path}.bias"] = jnp.asarray(params[f"{module}/b"])
        if path == "heads.action.step":
            ours[f"{path}.weight_input"], ours[f"{path}.weight_hidden"] = weight[:num_actions], weight[num_actions:]
        else:
            ours[f"{path}.weight"] = weight
    leaves, structure = jax.tree_util.tree_flatten_with_path(skeleton)
    return jax.tree.unflatten(structure, [ours[path_name(path)].reshape(like.shape) for path, like in leaves])


def path_name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def named_params(ours, names: Mapping) -> dict[str, jax.Array]:
    """Our agent (or anything of its structure) under the reference's names, those of `names`."""
    leaves = {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(ours)}
    theirs = {}
    for module in {name.rpartition("/")[0] for name in names}:
        path = our_path(module)
        parts = [leaves[f"{path}.{part}"] for part in ("weight", "weight_input", "weight_hidden") if f"{path}.{part}" in leaves]
        theirs |= {f"{module}/w": jnp.concatenate(parts), f"{module}/b": leaves[f"{path}.bias"]}
    return theirs
