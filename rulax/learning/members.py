"""What the agents of one vmapped population have of their own, and how it passes from one to another.

A setting that differs between agents is an array with one entry per agent. It is a leaf of the agent's `LearnerState`, next to the
parameters, and not a constant of the program: it can change during a life, be copied and be perturbed without compiling again.

    trainer = make_trainer(environment, recipe, config, {"learning_rate": [1e-3, 3e-3, 1e-2]}, tasks)
    ...
    learner_state = exploit(state.life.learner_state, parents)    # agent k goes on as a copy of agent parents[k]
    own = explore(learner_state.hyperparameters, key)             # each value times 0.8 or 1.2
    learner_state = learner_state._replace(hyperparameters=own)
    state = state._replace(life=state.life._replace(learner_state=learner_state))

Constants of a rule (a discount, a cost) become parameters by `rules/tunable.py`; `rule_params` with a leading axis [K] then give
each agent its own, and `explore_constants` perturbs them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from rulax.agents.base import PerStream
from rulax.envs.base import Environment, HostEnvironment
from rulax.learning.life import Life
from rulax.learning.optimisers import HORIZON
from rulax.settings import Learning
from rulax.types import Array, PyTree

FRACTIONS = ("adam_b1", "adam_b2", "slow_decay")  # between 0 and 1
HYPERPARAMETERS = (  # fields of `Learning`, but for the horizon: gradient steps until the schedule reaches zero
    "learning_rate",
    HORIZON,
    "warmup_updates",
    "clip_gradient",
    "clip_update",
    "weight_decay",
    "adam_eps",
    "reward_scale",
    *FRACTIONS,
)
# Those that leave the program as it is, whatever their value. Decays stay constants of it: 1 - b is then computed in double
# precision, as it always was.
NUMBERS = ("learning_rate", "warmup_updates", "clip_gradient", "clip_update", "weight_decay", "adam_eps", "reward_scale")
# Fields of `Learning` that do nothing for a rule without a gradient.
OF_GRADIENT_STEPS = (*HYPERPARAMETERS, "schedule", "schedule_steps", "epochs", "minibatches", "shuffle", "slow_period")
FACTORS = (0.8, 1.2)  # by which population-based training perturbs (Jaderberg et al. 2017)


def check_hyperparameters(given: Mapping[str, ArrayLike], learning: Learning, members: int) -> dict[str, Array]:
    """The agents' own hyper-parameters as arrays [K]; a ValueError if there is no such setting, or not one value per agent."""
    made = {name: jnp.asarray(values, float) for name, values in given.items()}
    for name, values in made.items():
        if name not in HYPERPARAMETERS:
            raise ValueError(f"'{name}' cannot differ between agents; what can is {', '.join(HYPERPARAMETERS)}")
        if values.shape != (members,):
            raise ValueError(f"{name} needs one value for each of {members} agents, but has the shape {list(values.shape)}")
    # Nothing would read it: a constant schedule has no end.
    if HORIZON in made and learning.schedule == "constant":
        raise ValueError("a horizon needs a schedule that falls: set schedule to linear or cosine, not constant")
    return made


def numbers_of(learning: Learning, horizon: int, own: Collection[str]) -> dict[str, Array]:
    """Hyper-parameters that all agents share, [] each, as arguments of the compiled program.

    Args:
        learning: the settings. What is left out of the program (a limit of 0, a scale of 1) is left out here.
        horizon: gradient steps until a falling schedule reaches zero.
        own: names of what each agent has of its own, which is not shared.
    """
    numbers = {name: getattr(learning, name) for name in NUMBERS}
    used = {name: value for name, value in numbers.items() if value != (1 if name == "reward_scale" else 0)}
    if learning.schedule != "constant":
        used[HORIZON] = horizon
    return {name: jnp.asarray(value, float) for name, value in used.items() if name not in own}


def check_tasks(given: PyTree, environment: Environment | HostEnvironment, members: int) -> PyTree:
    """Tasks as arrays [K, ...], or None if none are given; a ValueError if they are not tasks of this environment."""
    if given is None:
        return None
    if isinstance(environment, HostEnvironment):
        raise ValueError("tasks can be given only to compiled environments, and this one steps on the host")
    wanted = jax.eval_shape(environment.default_task)
    shapes = jax.tree.map(lambda leaf: (members, *leaf.shape), wanted)
    if jax.tree.map(jnp.shape, given) != shapes:
        raise ValueError(f"tasks for {members} agents must have the shapes {shapes}, not {jax.tree.map(jnp.shape, given)}")
    return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), given, wanted)


def exploit(tree: PyTree, parents: Array) -> PyTree:
    """Every agent continues as a copy of its parent, but with its own randomness.

    Args:
        tree: leaves [K, ...]. Population-based training copies a `LearnerState`: parameters, slow copy, optimiser, rule state,
            hyper-parameters, and the tables that an agent carries. Tasks, environments, their streams, recurrent memory and replay
            buffers stay where they are, and so does what an agent carries for its streams (`PerStream`): an episode that has begun
            goes on with another agent. A whole `Life` copies all of that, too, and two agents go on from one and the same place.
        parents: [K] integers; `parents[k] == k` leaves agent k as it is.

    Returns:
        The tree in the new order. Random keys are not copied: two agents with one key would make the same choices for ever.
    """

    streams_stay = not isinstance(tree, Life)

    def stays(node: PyTree) -> bool:
        return streams_stay and isinstance(node, PerStream)

    def one(node: PyTree) -> PyTree:
        # Typed keys only: a raw uint32 key looks like any other array and would be copied.
        if stays(node) or jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
            return node
        return jnp.take(node, parents, axis=0)

    return jax.tree.map(one, tree, is_leaf=stays)


def explore(
    hyperparameters: Mapping[str, Array],
    key: Array,
    chosen: Array | bool = True,
    names: tuple[str, ...] = (),
    factors: tuple[float, ...] = FACTORS,
    fractions: Collection[str] = FRACTIONS,
) -> dict[str, Array]:
    """Multiply hyper-parameters by random factors, drawn for each agent and each name by itself.

    Args:
        hyperparameters: [K] each.
        key: one key; equal keys give equal factors.
        chosen: [K], the agents that are perturbed.
        names: which hyper-parameters are perturbed; none named means all.
        factors: what is drawn from, with equal probability.
        fractions: names of those that lie between 0 and 1. Of a fraction f the odds f / (1 - f) are multiplied, so that it stays
            there and the time over which it averages changes by about the factor.
    """
    drawn = draw_factors(hyperparameters, key, chosen, names, factors)

    def one(name: str, value: Array) -> Array:
        if name in fractions:
            # f' / (1 - f') = d f / (1 - f), solved for f' without a division that fails at f = 1.
            return drawn[name] * value / (1 + (drawn[name] - 1) * value)
        return drawn[name] * value

    return {name: one(name, value) if name in drawn else value for name, value in hyperparameters.items()}


def explore_constants(
    rule_params: Mapping[str, Array],
    key: Array,
    chosen: Array | bool = True,
    names: tuple[str, ...] = (),
    factors: tuple[float, ...] = FACTORS,
) -> dict[str, Array]:
    """As `explore`, for the parameters [K] of a tunable rule, which are log odds: the constants' odds are multiplied."""
    drawn = draw_factors(rule_params, key, chosen, names, factors)
    return {name: value + jnp.log(drawn[name]) if name in drawn else value for name, value in rule_params.items()}


def draw_factors(
    values: Mapping[str, Array], key: Array, chosen: Array | bool, names: tuple[str, ...], factors: tuple[float, ...]
) -> dict[str, Array]:
    """A factor [K] for each name; 1 for agents that are not chosen."""
    # Sorted, so that what is drawn for a name does not depend on the order of a dictionary.
    names = tuple(sorted(names or values))
    keys = jax.random.split(key, max(len(names), 1))[: len(names)]
    choices = {name: jax.random.choice(k, jnp.asarray(factors), values[name].shape) for name, k in zip(names, keys, strict=True)}
    return {name: jnp.where(chosen, factor, 1.0).astype(values[name].dtype) for name, factor in choices.items()}
