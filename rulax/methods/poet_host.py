"""POET's agents in an environment that steps on the host, such as the walker: the same evolution, with episodes in Python."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.base import Agent
from rulax.agents.distributions import likeliest_choice
from rulax.discovery.estimators import SIGNS, draw_noise
from rulax.methods.poet_agents import Evolved, EvolvedAgents, Evolving, fallen
from rulax.types import Array, PyTree


class HostWorlds(Protocol):
    """An environment whose copies are made by task."""

    observation: Any
    real_dimensions: int

    def default_task(self) -> PyTree:
        """Where POET begins."""

    def mutate(self, task: PyTree, key: Array) -> PyTree:
        """A similar task."""

    def open(self, task: PyTree) -> Any:
        """A copy on one task, with the `reset(seed)`, `step(action)` and `close()` of Gymnasium."""


class HostEvolvedAgents(EvolvedAgents):
    """Agents that are evolved on the host: all episodes of a step are played side by side, one copy of the environment each."""

    def __init__(self, environment: HostWorlds, evolving: Evolving, horizon: int):
        self.environment: Any = environment
        self.evolving, self.rollouts, self.horizon = evolving, evolving.rollouts, horizon
        self.adam = self.optimiser()
        self.steps = 0  # of the environment, in all episodes so far
        self._act = jax.jit(jax.vmap(self._action))
        self._perturb, self._learn = jax.jit(jax.vmap(self._perturbed)), jax.jit(jax.vmap(self.learned))

    def improve(self, members: Evolved, tasks: PyTree, key: Array, iterations: int) -> Evolved:
        """Members [M] after so many steps of evolution, each on its own task."""
        number, lives = len(members.age), 2 * self.evolving.pairs
        for each in jax.random.split(key, iterations):
            key_noise, key_episode = jax.random.split(each)
            directions, agents = self._perturb(members, jax.random.split(key_noise, number))
            # One seed for a perturbation and its opposite, which meet the same episode.
            pairs = seeds_of(jax.random.split(key_episode, number * self.evolving.pairs)).reshape(number, 1, -1)
            seeds = np.tile(pairs, (1, 2, 1)).reshape(-1)
            flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), agents)
            fitness = self.play(flat, jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), lives, 0), tasks), seeds)
            members = self._learn(members, directions, jnp.asarray(fitness.reshape(number, lives)))
        return members

    def score(self, members: Evolved, tasks: PyTree, keys: Array) -> np.ndarray:
        """Mean returns [N] of `rollouts` episodes each, without perturbations."""
        repeat = lambda leaf: np.repeat(np.asarray(leaf), self.rollouts, 0)  # noqa: E731
        seeds = seeds_of(jax.vmap(lambda key: jax.random.split(key, self.rollouts))(keys).reshape(-1))
        returns = self.play(jax.tree.map(repeat, self.agent(members)), jax.tree.map(repeat, tasks), seeds)
        return returns.reshape(-1, self.rollouts).mean(-1)

    def play(self, agents: Agent, tasks: PyTree, seeds: np.ndarray) -> np.ndarray:
        """The returns [N] of one episode each, by the likeliest actions."""
        number = len(seeds)
        copies = [self.environment.open(jax.tree.map(lambda leaf, each=each: leaf[each], tasks)) for each in range(number)]
        seen = np.stack([copy.reset(seed=int(seed))[0] for copy, seed in zip(copies, seeds, strict=True)]).astype(np.float32)
        returns, going = np.zeros(number), np.ones(number, bool)
        for _ in range(self.horizon):
            actions = np.clip(np.asarray(self._act(agents, seen)), -1, 1)
            for each in np.flatnonzero(going):
                seen[each], reward, terminated, truncated, _ = copies[each].step(actions[each])
                returns[each] += reward
                going[each] = not (terminated or truncated)
                self.steps += 1
            if not going.any():
                break
        for copy in copies:
            copy.close()
        return returns.astype(np.float32)

    def _action(self, agent: Agent, observation: Array) -> Array:
        policy, _ = agent.act(observation[None], jnp.zeros(1, jnp.int8), agent.initial_memory(1))
        return likeliest_choice(policy)[0]

    def _perturbed(self, member: Evolved, key: Array) -> tuple[PyTree, Agent]:
        """Directions [P, ...] and the agents [2 P, ...] along them and against them, those of all directions first."""
        directions = draw_noise(member.agent, self.evolving.pairs, key)
        noise = fallen(self.evolving.noise, member.age)
        moved = [jax.tree.map(lambda p, e, sign=sign: p + sign * noise * e, member.agent, directions) for sign in SIGNS.tolist()]
        return directions, jax.tree.map(lambda *halves: jnp.concatenate(halves), *moved)


def seeds_of(keys: Array) -> np.ndarray:
    """A number for each key [N], with which an episode on the host begins."""
    return np.asarray(jax.random.key_data(keys))[:, -1] >> 1
