"""Acting: an agent and its streams make experience. `pack` is the only place where time is aligned.

For jittable environments the whole trajectory is one scan (`act`); for host environments learning/host.py makes the same steps one
by one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.agents.base import Agent
from rulax.envs.base import Episode, Streams, Timestep
from rulax.types import Array, Experience, Policy, PyTree


class Actor(NamedTuple):
    """Where an agent is: the state of its streams, what it sees now, and its memory."""

    task: PyTree
    env_state: PyTree  # [B, ...]
    observation: PyTree  # [B, ...]
    first: Array  # [B] int8, see `Level`
    memory: PyTree  # [B, ...]


class Step(NamedTuple):
    """One decision and its consequence."""

    observation: PyTree  # [B, ...]  what the action was chosen from
    first: Array  # [B]
    action: Array  # [B] or [B, D]
    behaviour: Policy  # [B, A] or [B, D, A]
    reward: Array  # [B]
    discount: Array  # [B]
    valid: Array  # [B]
    episode: Episode  # [B]


def begin(streams: Streams, task: PyTree, memory: PyTree, key: Array) -> Actor:
    """Start every stream on one task; `memory` [B, ...] is what the agent remembers then."""
    env_state, timestep = streams.start(task, key)
    return Actor(task, env_state, timestep.observation, timestep.first, memory)


def act(streams: Streams, agent: Agent, actor: Actor, unroll: int, key: Array) -> tuple[Actor, Experience, Episode]:
    """Act for T = `unroll` steps in every stream.

    Returns:
        Where the agent is now, its experience [T, B], and statistics [T, B] of the episodes that ended.
    """

    def one_step(actor: Actor, key: Array) -> tuple[Actor, Step]:
        # Two keys: with one, the draw of the action and the environment's own randomness would be correlated.
        key_action, key_env = jax.random.split(key)
        logits, memory = agent.act(actor.observation, actor.first, actor.memory)
        action = agent.sample(key_action, logits)
        env_state, timestep = streams.step(actor.task, actor.env_state, action, key_env)
        # `actor` is still the one from before the step: it holds what the action was chosen from.
        decided = decide(actor, action, logits, timestep)
        return Actor(actor.task, env_state, timestep.observation, timestep.first, memory), decided

    # The memory before the first step: learning unrolls the core again from there, not from the end.
    memory = actor.memory
    actor, steps = jax.lax.scan(one_step, actor, jax.random.split(key, unroll))
    return actor, pack(steps, actor.observation, actor.first, memory), steps.episode


def decide(actor: Actor, action: Array, logits: Policy, timestep: Timestep) -> Step:
    """Put what was seen beside what was done and what followed, [B] each."""
    consequence = (timestep.reward, timestep.discount, timestep.valid, timestep.episode)
    return Step(actor.observation, actor.first, action, logits, *consequence)


def pack(steps: Step, last_observation: PyTree, last_first: Array, memory: PyTree) -> Experience:
    """Experience from T decisions, leaves [T, B, ...], and the observation and `first` [B, ...] after them.

    The only place where time is aligned.
    """

    def append(sequence: Array, last: Array) -> Array:
        return jnp.concatenate([sequence, last[None]], axis=0)

    # At index t: the observation and `first` before action t, and the reward, discount and validity after it.
    # There are T + 1 observations, because the value after the last step is bootstrapped.
    return Experience(
        observation=jax.tree.map(append, steps.observation, last_observation),
        action=steps.action,
        reward=steps.reward,
        discount=steps.discount,
        first=append(steps.first, last_first),
        valid=steps.valid,
        behaviour=steps.behaviour,
        memory=memory,
    )
