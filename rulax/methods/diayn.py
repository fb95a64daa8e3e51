"""DIAYN without sampling: skills on a grid, by soft policy iteration against the exact discriminator (Eysenbach et al. 2018).

    rho_z(s)   how often skill z is in s during the second half of an episode: all skills start in the same cell
    q(z | s) = rho_z(s) / sum_z' rho_z'(s)      the best discriminator there is, since p(z) is uniform
    pi_z     = the soft-optimal policy for the reward log q(z | s') - log p(z)

Nothing is estimated, so the information I(S; Z) of the skills that result is exact, and so is what it can be at most: log n for n
skills, each with cells of its own. The same with networks and samples is the rule `diayn` (`rules/diayn.py`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.types import Array

MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))  # stay, north, east, south, west
LEAST = 1e-8  # what no probability falls below, so that logarithms stay finite


@dataclasses.dataclass(frozen=True)
class SkillWorld:
    """A `size` x `size` grid, entered in its middle, and how skills are found in it."""

    size: int = 7
    skills: int = 4
    horizon: int = 40  # steps of an episode; the second half counts
    temperature: float = 0.1  # weight of the entropy, as in the paper
    discount: float = 0.95
    inertia: float = 0.5  # how much of the discriminator's occupancy stays at each iteration: rewards must not jump
    sweeps: int = 40  # of soft value iteration, in each iteration

    def __post_init__(self) -> None:
        cells = self.size**2
        if self.skills < 2:
            raise ValueError(f"there must be at least 2 skills to tell apart, not {self.skills}")
        if self.skills > cells:
            raise ValueError(f"{self.size} x {self.size} cells can tell at most {cells} skills apart, not {self.skills}")

    def successors(self) -> np.ndarray:
        """The cell after each action, [S, A]; a step into a wall stays."""
        rows, columns = np.divmod(np.arange(self.size**2), self.size)
        moved = [np.clip([rows + down, columns + right], 0, self.size - 1) for down, right in MOVES]
        return np.stack([row * self.size + column for row, column in moved], 1)

    def start(self) -> int:
        """The cell in the middle."""
        return self.size // 2 * (self.size + 1)


class SkillState(NamedTuple):
    """All that changes."""

    policy: Array  # [Z, S, A] logits
    occupancy: Array  # [Z, S], of earlier iterations as well: what the discriminator is made from


def init_skills(world: SkillWorld, key: Array) -> SkillState:
    """Policies that differ a little, by chance: with equal ones no skill would ever have a reason to leave the others."""
    policy = 0.1 * jax.random.normal(key, (world.skills, world.size**2, len(MOVES)))
    return SkillState(policy, occupancy_of(world, policy))


def occupancy_of(world: SkillWorld, policy: Array) -> Array:
    """How often each skill is in each cell during the second half of an episode, [Z, S]; rows sum to 1. `policy`: [Z, S, A]."""
    successors, choice = world.successors(), jax.nn.softmax(policy)
    start = jnp.zeros((world.skills, world.size**2)).at[:, world.start()].set(1.0)

    def step(here: Array, _: None) -> tuple[Array, Array]:
        there = jnp.zeros_like(here).at[:, successors].add(here[:, :, None] * choice)
        return there, there

    visited = jax.lax.scan(step, start, None, world.horizon)[1]
    return visited[world.horizon // 2 :].mean(0)


def gain(occupancy: Array) -> Array:
    """log q(z | s) - log p(z) with q by Bayes' rule, [Z, S], from occupancies [Z, S]."""
    log_q = jax.nn.log_softmax(jnp.log(jnp.maximum(occupancy, LEAST)), axis=0)
    return log_q + math.log(len(occupancy))


def information(occupancy: Array) -> Array:
    """I(S; Z) in nats, []: exactly, from occupancies [Z, S]."""
    return jnp.sum(occupancy * gain(occupancy)) / len(occupancy)


def improve(world: SkillWorld, state: SkillState) -> SkillState:
    """One iteration: discriminator, rewards, soft-optimal policies for these, and where they lead."""
    rewards = gain(state.occupancy)  # [Z, S], of arriving in s
    successors = world.successors()

    def backed_up(value: Array) -> Array:
        return (rewards + world.discount * value)[:, successors]  # [Z, S, A]

    def sweep(value: Array, _: None) -> tuple[Array, None]:
        return world.temperature * jax.nn.logsumexp(backed_up(value) / world.temperature, axis=-1), None

    value = jax.lax.scan(sweep, jnp.zeros_like(rewards), None, world.sweeps)[0]
    policy = backed_up(value) / world.temperature
    fresh = occupancy_of(world, policy)
    return SkillState(policy, world.inertia * state.occupancy + (1 - world.inertia) * fresh)
