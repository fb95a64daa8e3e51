"""A population of agents, each with its own task, age and budget: how one is made, and how it is replaced when its life is over."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.discovery.critic import CriticState, start_critic
from rulax.discovery.persistent import begin_particles
from rulax.discovery.settings import PERTURBING, WHOLE, Discovery
from rulax.envs.base import Environment, HostEnvironment
from rulax.envs.wrappers import Batched, select
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.host_acting import unstarted
from rulax.learning.life import Life, empty_replay, fill_replay, gradient_steps, init_agent, is_prioritised, make_learner
from rulax.learning.life import lie as lies_of_lives
from rulax.learning.optimisers import HORIZON
from rulax.learning.rollout import begin
from rulax.learning.update import Learner
from rulax.parallel.mesh import Layout
from rulax.rules.base import Recipe
from rulax.types import Array, PyTree


class Member(NamedTuple):
    """One agent of the population, in the middle of its life."""

    life: Life
    critic: CriticState
    age: Array  # [] int32, updates it has lived
    budget: Array  # [] int32, updates after which it is replaced
    resets: Array  # [] int32, agents that have lived in this place, this one included
    estimator: PyTree = ()  # what the estimator keeps of this life between windows; () for most


@dataclasses.dataclass(frozen=True)
class Family:
    """One environment and all that stays fixed for the agents that live in it. Shapes differ between families, not within."""

    name: str
    environment: Environment | HostEnvironment
    recipe: Recipe
    settings: Discovery

    def __post_init__(self) -> None:
        self._check_host()
        if self.settings.fitness in WHOLE and self.settings.estimator != "evolution":
            raise ValueError(
                f"fitness {self.settings.fitness} needs estimator evolution: estimator {self.settings.estimator} "
                f"{'lives' if self.settings.estimator in PERTURBING else 'differentiates'} a window, not a whole life"
            )
        if self.settings.estimator in PERTURBING and self.settings.collection == "before_window":
            raise ValueError(
                f"estimator {self.settings.estimator} compares what agents earn after their updates, and with collection "
                "before_window everything is collected before them; use collection on_policy"
            )
        if is_prioritised(self.recipe.learning):
            # A window is lived again from its recorded batches, by functions that know nothing of a buffer.
            raise ValueError("replay_priority is for training: in discovery replay draws all trajectories alike; set it to 0")

    def _check_host(self) -> None:
        """Refuse what only compiled environments can do: live the same window several times, by the same random numbers."""
        if not self.on_host:
            return
        where = f"'{self.name}' steps outside of JAX, where a window is lived once"
        if self.settings.estimator in PERTURBING:
            raise ValueError(f"{where}: estimator {self.settings.estimator} lives it many times; use backprop or first_order")
        if self.settings.objective == "bootstrap":
            raise ValueError(f"{where}: objective bootstrap goes on from it and comes back; use policy_gradient")

    @property
    def on_host(self) -> bool:
        """Whether its agents act outside of JAX (discovery/host.py)."""
        return isinstance(self.environment, HostEnvironment)

    @property
    def streams(self) -> Batched:
        assert isinstance(self.environment, Environment)  # agents on the host have other streams
        return make_streams(self.environment, self.recipe.learning.streams)

    @property
    def learner(self) -> Learner:
        # Budgets differ between agents of one compiled program, so a schedule's horizon must be an array.
        return make_learner(self.recipe, own=() if self.recipe.learning.schedule == "constant" else (HORIZON,))


def lie(layout: Layout) -> Member:
    """Where members [K, ...] lie: each by its own device, and its streams also by theirs."""
    own = layout.members
    return Member(lies_of_lives(layout), critic=own, age=own, budget=own, resets=own, estimator=own)


def listed(names: list[str]) -> str:
    """One name, or how many there are."""
    return names[0] if len(names) == 1 else f"{len(names)} families"


def init_member(family: Family, key: Array) -> Member:
    """A fresh agent with a budget and a task of its own, whose replay holds what it must before the first update.

    A schedule of the learning rate spans the agent's own life, so its horizon is the budget. Replay is filled by acting with the
    initial policy: that happens before any window, and so is data to every meta-gradient. (On the host it is `HostLives` that
    starts streams and fills replay.)
    """
    learning = family.recipe.learning
    # The order of these keys is part of what a seed means.
    key_task, key_env, key_agent, key_critic, key_budget, key_life = jax.random.split(key, 6)
    budget = draw_budget(family.settings.lifetimes, key_budget)
    scheduled = learning.schedule != "constant"
    own = {HORIZON: gradient_steps(learning, budget).astype(float)} if scheduled else {}
    state = init_agent(family.recipe, family.learner, family.environment, key_agent, own)
    memory = state.params.initial_memory(learning.streams)
    if isinstance(family.environment, HostEnvironment):
        life = Life(state, unstarted(family.environment, memory, learning.streams), (), key_life)  # the host does the rest
    else:
        actor = begin(family.streams, family.environment.sample_task(key_task), memory, key_env)
        replay = empty_replay(learning, family.environment, state.params, actor.memory)
        life = fill_replay(family.streams, learning, Life(state, actor, replay, key_life))
    critic = start_critic(family.settings, family.recipe.network, family.environment.observation, key_critic)
    return with_estimator(family, Member(life, critic, jnp.int32(0), budget, jnp.int32(1)))


def with_estimator(family: Family, member: Member) -> Member:
    """A fresh member with what the estimator keeps of it, if it keeps anything."""
    if family.settings.estimator != "pes":
        return member
    meta_params = jax.eval_shape(family.recipe.rule.init, jax.random.key(0))
    _, perturbed, sums = begin_particles(member, meta_params, family.settings.pairs)
    return member._replace(estimator=(perturbed, sums))


def draw_budget(lifetimes: tuple[int, ...], key: Array) -> Array:
    """A length of life with probability inversely proportional to it: every length gets the same share of all experience."""
    lengths = jnp.asarray(lifetimes, jnp.int32)
    return lengths[jax.random.categorical(key, -jnp.log(lengths.astype(jnp.float32)))]


def init_population(family: Family, key: Array) -> Member:
    """All K agents of a family, [K, ...]."""
    return jax.vmap(lambda k: init_member(family, k))(jax.random.split(key, family.settings.agents))


def refresh(family: Family, members: Member) -> Member:
    """Replace those whose budget is spent by fresh agents; the others stay as they are. Members are [K, ...]."""

    def one(member: Member) -> Member:
        # The survivor's key moves on, too: its next iteration would otherwise split the key that was split here.
        key_old, key_new = jax.random.split(member.life.key)
        # Under `vmap` every member makes a fresh one, needed or not; `refresh_if_due` keeps that rare.
        fresh = init_member(family, key_new)._replace(resets=member.resets + 1)
        member = member._replace(life=member.life._replace(key=key_old))
        return select(member.age >= member.budget, fresh, member)

    return jax.vmap(one)(members)
