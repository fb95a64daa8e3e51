"""Agents with their own task, age and budget: how they are born, and how those at the end of their life are born again."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.discovery.critic import CriticState, start_critic
from rulax.discovery.outer_loss import with_penalties
from rulax.discovery.settings import Discovery
from rulax.envs.base import Environment
from rulax.envs.wrappers import Batched, select
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.life import Life, empty_replay, init_agent, make_learner
from rulax.learning.rollout import begin
from rulax.learning.update import Learner
from rulax.rules.base import Recipe
from rulax.types import Array


class Member(NamedTuple):
    """One agent of the population, in the middle of its life."""

    life: Life
    critic: CriticState
    age: Array  # [] int32, updates it has lived
    budget: Array  # [] int32, updates after which it is born again
    resets: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class Family:
    """One environment and all that stays fixed for the agents that live in it. Shapes differ between families, not within."""

    name: str
    environment: Environment
    recipe: Recipe
    settings: Discovery

    def __post_init__(self) -> None:
        if self.settings.estimator == "evolution" and self.settings.collection == "before_window":
            raise ValueError(
                "estimator evolution compares what agents earn after their updates, and with collection before_window "
                "everything is collected before them; use collection on_policy"
            )

    @property
    def streams(self) -> Batched:
        return make_streams(self.environment, self.recipe.learning.streams)

    @property
    def learner(self) -> Learner:
        learner = make_learner(self.recipe)
        return learner._replace(rule=with_penalties(learner.rule))


def listed(names: list[str]) -> str:
    """One name, or how many there are."""
    return names[0] if len(names) == 1 else f"{len(names)} families"


def init_member(family: Family, key: Array) -> Member:
    """A newborn with a task of its own and a budget."""
    learning = family.recipe.learning
    key_task, key_env, key_agent, key_critic, key_budget, key_life = jax.random.split(key, 6)
    learner = init_agent(family.recipe, family.learner, family.environment, key_agent)
    task = family.environment.sample_task(key_task)
    actor = begin(family.streams, task, learner.params.initial_memory(learning.streams), key_env)
    replay = empty_replay(learning, family.environment, actor.memory)
    critic = start_critic(family.settings, family.recipe.network, family.environment.observation, key_critic)
    budget = draw_budget(family.settings.lifetimes, key_budget)
    return Member(Life(learner, actor, replay, key_life), critic, jnp.int32(0), budget, jnp.int32(1))


def draw_budget(lifetimes: tuple[int, ...], key: Array) -> Array:
    """A length of life with probability inversely proportional to it: every length gets the same share of all experience."""
    lengths = jnp.asarray(lifetimes, jnp.int32)
    return lengths[jax.random.categorical(key, -jnp.log(lengths.astype(jnp.float32)))]


def init_population(family: Family, key: Array) -> Member:
    """All agents of a family, [A, ...]."""
    return jax.vmap(lambda k: init_member(family, k))(jax.random.split(key, family.settings.agents))


def refresh(family: Family, members: Member) -> Member:
    """Those whose budget is spent are born again; the others stay as they are."""

    def one(member: Member) -> Member:
        key_old, key_new = jax.random.split(member.life.key)
        fresh = init_member(family, key_new)._replace(resets=member.resets + 1)
        member = member._replace(life=member.life._replace(key=key_old))
        return select(member.age >= member.budget, fresh, member)

    return jax.vmap(one)(members)
