"""An agent that is paid for being recognisable: from every state it reaches one should be able to tell which skill it follows.

The discriminator q(z | s) and its optimiser are carried with the agent, and `written` replaces the environment's reward by

    log q(z | s') - log p(z),   p(z) = 1 / skills

and then improves q by some steps of Adam on the states of the unroll. It stands in the agent and not in the rule, because an agent
is told the shapes of observations when it is made (a rule's `start` is not), reads every unroll exactly once and in order, and is
what a checkpoint and an agent file hold: so who has a trained agent can also ask it which skill a state belongs to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from rulax.agents.agent import make_agent
from rulax.agents.base import Agent, Carried, WrappedAgent
from rulax.agents.layers import Linear
from rulax.agents.torsos import Torso, make_torso
from rulax.envs.base import Episode
from rulax.settings import Network
from rulax.types import Array, Experience, Head, PyTree, later, now, starts
from rulax.values.normalisation import masked_mean

SKILL = "skill"  # the part of an observation in which `envs/lasting.py: with_skill` shows the skill


class Discriminator(eqx.Module):
    """Which skill leads to a state: q(z | s)."""

    torso: Torso
    last: Linear

    def __init__(self, key: Array, observation: PyTree, skills: int, network: Network):
        key_torso, key_last = jax.random.split(key)
        self.torso = make_torso(key_torso, observation, network)
        # Small, so that it begins with the prior: every reward of the first unroll is about 0.
        self.last = Linear(key_last, network.hidden[-1], skills, std=0.01)

    def __call__(self, states: PyTree) -> Array:
        """Log-probabilities [..., skills] of states [..., *shape], observations without the skill."""
        return jax.nn.log_softmax(self.last(self.torso(states)))


class Arrived(NamedTuple):
    """The states that an unroll's actions led to, with the skill that was followed."""

    states: PyTree  # [T, B, ...], observations without the skill
    skill: Array  # [T, B, skills], one-hot


class SkilledAgent(WrappedAgent):
    """Any agent in an environment that shows a skill: it learns to make skills recognisable, not what the environment pays for."""

    learned: Carried  # (Discriminator, state of its Adam)
    rate: float = eqx.field(static=True)  # step size of that Adam
    steps: int = eqx.field(static=True)  # Adam steps per unroll

    @property
    def discriminator(self) -> Discriminator:
        """q(z | s) as it is now."""
        return self.learned.value[0]

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        """Pay for the unroll by the discriminator as it was, then let that learn from the unroll's valid steps."""
        after, experience = super().written(experience, episodes)
        arrived = arrivals(experience)
        # Before it learns: a reward from a discriminator that has just been fitted to the same steps would flatter them.
        reward = recognised(self.discriminator, arrived)
        learned = self._taught(arrived, experience.valid)
        after = eqx.tree_at(lambda agent: agent.learned.value, after, learned)
        return after, experience._replace(reward=reward.astype(experience.reward.dtype))

    def _taught(self, arrived: Arrived, valid: Array) -> tuple[Discriminator, PyTree]:
        optimiser = optax.adam(self.rate)

        def loss(discriminator: Discriminator) -> Array:
            return -masked_mean(jnp.sum(arrived.skill * discriminator(arrived.states), -1), valid)

        def step(_: Any, learned: tuple[Discriminator, PyTree]) -> tuple[Discriminator, PyTree]:
            discriminator, state = learned
            updates, state = optimiser.update(jax.grad(loss)(discriminator), state)
            return optax.apply_updates(discriminator, updates), state

        return jax.lax.fori_loop(0, self.steps, step, self.learned.value)


def arrivals(experience: Experience) -> Arrived:
    """The state after each action; where that already belongs to the next episode, the state before it."""
    seen, first = experience.observation, later(experience.first)
    # An episode that has ended does not show its last state, and the next one starts with a skill of its own.
    renewed = starts(first)

    def kept(part: Array) -> Array:
        lead = renewed.reshape(renewed.shape + (1,) * (part.ndim - renewed.ndim))
        return jnp.where(lead, now(part), later(part))

    states = {name: jax.tree.map(kept, part) for name, part in seen.items() if name != SKILL}
    return Arrived(states, now(seen[SKILL]))


def recognised(discriminator: Discriminator, arrived: Arrived) -> Array:
    """log q(z | s') - log p(z) of each step, in nats, [T, B]: at most log(skills), and 0 for a state that tells nothing."""
    log_q = jnp.sum(arrived.skill * discriminator(arrived.states), -1)
    return log_q + math.log(arrived.skill.shape[-1])


def skilled(agent: Agent) -> SkilledAgent | None:
    """The skilled agent inside of others, such as one that normalises observations; None if there is none."""
    while isinstance(agent, WrappedAgent):
        if isinstance(agent, SkilledAgent):
            return agent
        agent = agent.agent
    return None


def make_skilled_agent(
    key: Array,
    observation: PyTree,
    num_actions: int,
    heads: Mapping[str, Head],
    network: Network,
    action_dimensions: int = 0,
    num_streams: int = 1,
    real_dimensions: int = 0,
    *,
    rate: float = 1e-3,
    steps: int = 4,
    hidden: int = 64,
) -> Agent:
    """An ordinary agent with a discriminator of its skills; an `AgentMaker`, whose docstring explains the first arguments.

    Args:
        rate: step size of the discriminator's Adam.
        steps: how many such steps follow each unroll.
        hidden: width of the discriminator's two hidden layers.
    """
    if not isinstance(observation, Mapping) or SKILL not in observation:
        raise ValueError("an agent with skills needs an environment that shows one: --env-options with_skill=6")
    key_agent, key_discriminator = jax.random.split(key)
    real = {"real_dimensions": real_dimensions} if real_dimensions else {}
    agent = make_agent(key_agent, observation, num_actions, heads, network, action_dimensions, num_streams, **real)
    states = {name: part for name, part in observation.items() if name != SKILL}
    sizes = dataclasses.replace(network, hidden=(hidden, hidden))
    discriminator = Discriminator(key_discriminator, states, observation[SKILL].shape[0], sizes)
    return SkilledAgent(agent, Carried((discriminator, optax.adam(rate).init(discriminator))), rate, steps)
