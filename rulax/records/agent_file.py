"""An agent as one file: its arrays as safetensors, and beside them, as JSON, what is needed to build it again.

Nothing is unpickled and nothing is taken on trust: the network is built from the description, as shapes only, and every tensor must
fit it. What the file cannot hold (an environment or an agent of the user's own) must be handed over again.
"""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rulax.errors import UserError, suggestion
from rulax.files.reading import blamed, parse_json, read_bytes
from rulax.files.tensors import Damaged, not_finite, read_tensors
from rulax.own import consent
from rulax.records import checkpoint
from rulax.records.earlier import before
from rulax.rules.base import Recipe, UpdateRule, no_params, no_state
from rulax.rules.kinds import kind_in
from rulax.rules.registry import RULES, STORED, make_rule
from rulax.settings import Learning, Network, check_bounds
from rulax.text import convert
from rulax.types import Head, PyTree

if TYPE_CHECKING:
    from rulax.agents.base import Agent, AgentMaker
    from rulax.envs.base import Environment, HostEnvironment

ENDING, KIND, FORMAT = ".safetensors", "rulax.agent", 1
AGENT, TASK = "agent", "task"  # what the names of tensors begin with
MAX_BYTES = 8 * 2**30


@dataclasses.dataclass(frozen=True)
class Description:
    """What a file says about its agent; the fields are the keys of its JSON."""

    env: str
    env_options: dict[str, Any]
    rule: str
    rule_options: dict[str, Any]  # of which a rule with agents of its own hands some to them
    task: str  # "default", or "random": then the file holds the agent's own
    custom: list[str]  # "env" and "agent", where these are objects of the user's own
    heads: dict[str, list]  # of each prediction its size, and whether it is one per action
    network: dict[str, Any]
    streams: int  # that it was trained in
    normalises: list[str]  # "observations" and "rewards", where it does
    num_actions: int
    action_dimensions: int
    observation: list[list]  # path, shape and dtype of each array
    steps: int  # environment steps that it was trained for
    seed: int  # which of its run's agents it is
    training_return: float | None  # mean over its last training episodes
    versions: dict[str, Any]


def observation_form(observation: PyTree) -> list[list]:
    """The arrays of one observation: path, shape and dtype."""
    leaves = jax.tree_util.tree_leaves_with_path(observation)
    return [[jax.tree_util.keystr(path), list(leaf.shape), np.dtype(leaf.dtype).name] for path, leaf in leaves]


# -- writing -------------------------------------------------------------------------------------------------------------------


def save(path: str | Path, description: Description, agent: Agent, task: PyTree = ()) -> Path:
    """Write an agent; `task` is the environment's, where it was drawn at random."""
    path = Path(path)
    if path.suffix != ENDING:
        raise UserError(f"an agent is saved in a file that ends in {ENDING}, not in '{path}'")
    tensors = named(AGENT, agent) | (named(TASK, task) if description.task == "random" else {})
    text = json.dumps({"format": FORMAT, **dataclasses.asdict(description)}, allow_nan=False, default=str)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write_tensors(path, tensors, {"kind": KIND, "agent": text})
    except OSError as error:
        raise UserError(f"the agent cannot be saved as {path}: {error.strerror or error}") from None
    return path


def named(what: str, tree: PyTree) -> dict[str, np.ndarray]:
    """All arrays of a tree, with names that begin with `what`."""
    return {what + name.removeprefix(checkpoint.STATE): array for name, array in checkpoint.pack(tree).items()}


# -- reading -------------------------------------------------------------------------------------------------------------------


def read(path: str | Path) -> tuple[Description, dict[str, np.ndarray]]:
    """Description and tensors of an agent file; anything else is refused with a sentence that says what it is."""
    path = Path(path)
    try:
        tensors, metadata = read_tensors(read_bytes(path, MAX_BYTES))
    except Damaged as error:
        raise UserError(f"{path} is not a whole {ENDING} file: {error}") from None
    if metadata.get("kind") != KIND:
        raise UserError(f"{path} {other_kind(metadata, path)}")
    description = parse(metadata.get("agent", ""), path)
    consent.doubt(dataclasses.asdict(description), path)
    return description, tensors


def other_kind(metadata: Mapping[str, str], path: Path) -> str:
    """The end of a sentence about a file that holds tensors, but no agent."""
    if kind_in(metadata):
        return f"holds a rule, not an agent; train one with it: rulax train catch --rule {path}"
    if "rulax" in metadata:
        return f"is the checkpoint of a run; give the run's folder instead: {path.parent}"
    return "holds tensors, but no agent that Rulax has saved"


def parse(text: str, path: Path) -> Description:
    """The description, with a value of the right type for every key and no other key."""
    try:
        found = parse_json(text)
        version = found.pop("format")
    except (ValueError, LookupError, AttributeError, TypeError):
        raise UserError(f"{path} has no readable description of its agent") from None
    if version != FORMAT:
        raise UserError(f"{path} has format {version}, which this version of rulax cannot read; it reads format {FORMAT}")
    found.setdefault("normalises", [])  # of files from before agents could
    found.setdefault("rule_options", {})  # and before any rule of ours had agents of its own
    hints = typing.get_type_hints(Description)
    for name in [*(set(found) - set(hints)), *(set(hints) - set(found))]:
        what = f"an unknown key '{name}'{suggestion(name, hints)}" if name in found else f"no '{name}'"
        raise UserError(f"the description in {path} has {what}")
    for name, hint in hints.items():
        kinds = typing.get_args(hint) if typing.get_origin(hint) not in (dict, list) else (typing.get_origin(hint),)
        if type(found[name]) not in (kinds or (hint,)):
            raise UserError(f"the description in {path} has {name} = {found[name]!r}, which is not what belongs there")
    return Description(**found)


def restore(
    description: Description,
    tensors: Mapping[str, np.ndarray],
    environment: Environment | HostEnvironment,
    path: str | Path,
    make_agent: AgentMaker | None = None,
    network: Mapping[str, Any] | None = None,
) -> tuple[Agent, PyTree]:
    """The agent, and its task where that was drawn at random (else None).

    Args:
        description: from `read`.
        tensors: likewise.
        environment: where the agent acts; its observations and actions must be those of the description.
        path: of the file, for errors.
        make_agent: what made the agent, where that is code of the user's own.
        network: settings of the network that name such code, given again by the user.
    """
    for name, value in description.network.items():
        # A name of code, which is never imported because a file says so.
        if isinstance(value, str) and ":" in value and name not in (network or {}):
            raise UserError(
                f"the agent in {path} has a {name} of your own ({value}): name it again, as in rulax.load_agent(path, "
                f"network={{'{name}': ...}})"
            )
    description = dataclasses.replace(description, network={**description.network, **(network or {})})
    check_environment(description, environment, path)
    # Whatever a damaged description makes the layers raise: the file is to blame.
    with blamed(f"{path} describes an agent that cannot be built: it"):
        skeleton = jax.eval_shape(lambda: build(description, environment, path, make_agent))
    problem = f"{path} does not fit its own description"
    parts = {what: {f"{checkpoint.STATE}{name.removeprefix(what)}": array for name, array in tensors.items() if begins(name, what)}
             for what in (AGENT, TASK)}  # fmt: skip
    for name in tensors:
        if not any(begins(name, what) for what in parts):
            raise UserError(f"{problem}: it holds an unknown tensor '{name}'")
    if name := not_finite(tensors):
        raise UserError(f"{problem}: the tensor '{name}' holds numbers that are not finite")
    agent = checkpoint.restore(parts[AGENT], skeleton, problem)
    if description.task != "random":
        return agent, None
    return agent, checkpoint.restore(parts[TASK], jax.eval_shape(environment.default_task), problem)  # type: ignore[union-attr]


def begins(name: str, what: str) -> bool:
    """Whether a tensor belongs to the agent or to the task: `agent.torso...`, `task[0]`, or the array itself."""
    return name.startswith(what) and name[len(what) : len(what) + 1] in ("", ".", "[")


def check_environment(description: Description, environment: Environment | HostEnvironment, path: str | Path) -> None:
    """Refuse an environment in which the agent cannot act."""
    wanted = description.observation, description.num_actions, description.action_dimensions
    found = observation_form(environment.observation), environment.num_actions, environment.action_dimensions
    for name, one, other in zip(("observations", "actions", "dimensions of an action"), wanted, found, strict=True):
        if one != other:
            raise UserError(
                f"the agent in {path} was trained in '{description.env}' with {name} {shown(one)}, and this environment has "
                f"{shown(other)}"
            )


def shown(form: Any) -> str:
    """Part of a description in a few characters."""
    # A damaged file may hold anything here.
    if not isinstance(form, list) or not all(isinstance(each, list) and len(each) == 3 for each in form):
        return str(form)
    return ", ".join(f"{str(path).strip('[]')} {dtype}{shape}".strip() for path, shape, dtype in form)


def build(
    description: Description, environment: Environment | HostEnvironment, path: str | Path, make_agent: AgentMaker | None
) -> Agent:
    """A fresh agent as the file describes it, made like that of a run; called for its shapes only."""
    from rulax.learning.life import init_agent, make_learner

    heads = {name: Head(int(size), bool(per_action)) for name, (size, per_action) in description.heads.items()}
    if any(head.size < 1 for head in heads.values()) or description.streams < 1:
        raise ValueError("sizes must be positive")
    # Of the rule only its heads matter: the others would be needed for learning, and may be in a file that is not here.
    rule = UpdateRule(lambda num_actions: heads, no_params, no_state, targets=None, loss=None)  # type: ignore[arg-type]
    seen, paid = ("observations" in description.normalises, "rewards" in description.normalises)
    learning = Learning(streams=description.streams, normalise_observations=seen, normalise_rewards=paid)
    make = make_agent or named_maker(description, path)
    recipe = Recipe(rule, learning, read_network(description.network, path), make)
    return init_agent(recipe, make_learner(recipe), environment, jax.random.key(0)).params


def named_maker(description: Description, path: str | Path) -> AgentMaker | None:
    """What makes the agents of a rule of ours that brings its own; None for the ordinary agent."""
    if "agent" in description.custom:
        raise UserError(
            f"the agent in {path} was made by code of your own: hand its Recipe over again, as in "
            "rulax.load_agent(path, rule=recipe)"
        )
    # A rule in a file has ordinary agents, and the file may not be here.
    if description.rule not in RULES or description.rule in STORED:
        return None
    return make_rule(description.rule, **description.rule_options).make_agent


def read_network(values: Mapping[str, Any], path: str | Path) -> Network:
    """The network's settings, each of its own type; those that are younger than the file are as they were before."""
    hints = typing.get_type_hints(Network)
    for name, value in values.items():
        if name not in hints:
            raise UserError(f"{path} describes a network with an unknown setting '{name}'{suggestion(name, hints)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{path} describes a network with {name} = {value}")
    read = {name: convert(f"{path}: {name}", hints[name], value) for name, value in values.items()}
    network = Network(**before(Network) | read)
    try:
        check_bounds(network)
    except UserError as error:
        raise UserError(f"{path} describes a network that cannot be built: {error}") from None
    return network
