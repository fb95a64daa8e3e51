"""A runner over stumps, gaps, stairs and rough ground: the smallest terrain on which POET has something to do (Wang et al. 2019).

A point with a mass runs and jumps along a piecewise-linear ground. What the ground is made of is its task, seven numbers, and every
episode draws another ground from them. The first five are those of the paper's encoding; they count in the paper's way, but in
units of this runner, who jumps 1.5 high and, at full speed, 4.4 wide.

    roughness   how far the ground goes up and down within a unit of length
    gap         the narrowest and the widest gap; who falls into one has fallen
    stump       the lowest and the highest wall in the way; who runs into one has fallen
    step        the lowest and the highest step of stairs, up or down

What is absent is (0, 0). To fall ends the episode and costs 100; the whole way pays 300; 230 counts as solved, as in the paper.
Running into a wall slowly only stops the runner: to stand still in front of it costs nothing, and is what agents learn who meet
too much at once.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment, Transition
from rulax.envs.wrappers import Continuous
from rulax.settings import check_value
from rulax.types import Array

CELL = 0.25  # length of a piece of the ground
SLOT, SLOTS = 16, 15  # pieces per obstacle, and obstacles; nothing stands in the first slot
LENGTH = CELL * SLOT * SLOTS  # of the way
LIDAR = np.array([1, 2, 4, 6, 8, 12, 16, 24], np.int32)  # how many pieces ahead the ground is seen
DEPTH = 4.0  # of a gap
TIME_STEP, GRAVITY, PUSH, DRAG, AIR, JUMP = 0.1, 10.0, 8.0, 2.0, 0.2, 6.0
STEEPEST = 0.6  # what can be run up without a jump, as rise over length
HARD_HIT, HARD_LANDING = 0.5, 8.5  # speeds at which the runner falls
PAID, FALL = 300.0, 100.0
SOLVED = 230.0

# The encoding: the smallest change of a number, the largest value, and the range with which an obstacle first appears.
ROUGHER, ROUGHEST = 0.06, 1.0


class Obstacle(NamedTuple):
    """How the range of an obstacle's size changes."""

    change: float
    largest: float


OBSTACLES = {"gap": Obstacle(0.5, 4.0), "stump": Obstacle(0.2, 1.6), "step": Obstacle(0.1, 0.8)}
NAMES = ("roughness", *(f"{end} {name}" for name in OBSTACLES for end in ("least", "most")))
MOVES = np.array([(low, high) for low in (-1, 0, 1) for high in (-1, 0, 1) if (low, high) != (0, 0)], np.float32)


class HurdlesState(NamedTuple):
    """The ground of this episode, and the runner on it."""

    ground: Array  # [pieces + 1] heights
    place: Array  # [2] x, y
    speed: Array  # [2]
    grounded: Array  # [] bool


@dataclasses.dataclass(frozen=True)
class Hurdles(Environment):
    """Actions are two real numbers: the push ahead or back, and the strength of a jump, if positive and there is ground below.

    Observed are the ground at eight places ahead, the two speeds, the height above the ground, and whether the runner stands on it.
    """

    terrain: tuple[float, ...] = (0.0,) * len(NAMES)  # the default task
    num_actions = 2  # dimensions of an action
    observation = jax.ShapeDtypeStruct((len(LIDAR) + 4,), jnp.float32)

    def default_task(self) -> Array:
        """Flat ground, unless another one was asked for."""
        return jnp.array(self.terrain, jnp.float32)

    def sample_task(self, key: Array) -> Array:
        """Ranges between nothing and half of the largest obstacles."""
        largest = np.array([ROUGHEST, *(each.largest for each in OBSTACLES.values() for _ in range(2))], np.float32)
        drawn = jax.random.uniform(key, (len(NAMES),), jnp.float32) * largest / 2
        return jnp.concatenate([drawn[:1], jnp.sort(drawn[1:].reshape(-1, 2), -1).reshape(-1)])

    def mutate(self, task: Array, key: Array) -> Array:
        """A similar task: every number may change a little, as in the paper's code."""
        key_rough, *keys = jax.random.split(key, 1 + len(OBSTACLES))
        rougher = jax.random.uniform(key_rough, (), jnp.float32, -ROUGHER, ROUGHER)
        ranges = [
            move_range(task[1 + 2 * index : 3 + 2 * index], obstacle, keys[index])
            for index, obstacle in enumerate(OBSTACLES.values())
        ]
        return jnp.concatenate([jnp.clip(task[:1] + rougher, 0.0, ROUGHEST), *ranges])

    def reset(self, task: Array, key: Array) -> tuple[HurdlesState, Array]:
        ground = make_ground(task, key)
        place = jnp.stack([jnp.float32(0.0), ground[0]])
        state = HurdlesState(ground, place, jnp.zeros(2, jnp.float32), jnp.bool_(True))
        return state, observe(state)

    def step(self, task: Array, state: HurdlesState, action: Array, key: Array) -> tuple[HurdlesState, Transition]:
        push, jump = jnp.clip(action[0], -1.0, 1.0), jnp.clip(action[1], 0.0, 1.0)
        (x, y), (along, up), on = state.place, state.speed, state.grounded
        # On the ground push and friction balance at a speed of 4; in the air there is little of the one and none of the other.
        along = along + TIME_STEP * (jnp.where(on, PUSH, AIR * PUSH) * push - jnp.where(on, DRAG, 0.0) * along)
        along = jnp.clip(along, -PUSH / DRAG, PUSH / DRAG)
        up = jnp.where(on, JUMP * jump, up) - TIME_STEP * GRAVITY
        x_next, y_next = jnp.maximum(x + TIME_STEP * along, 0.0), y + TIME_STEP * up
        ground = height(state.ground, x_next)
        touches = y_next <= ground
        wall = touches & (ground - y > STEEPEST * jnp.abs(x_next - x) + 0.02)
        fell = jnp.where(wall, jnp.abs(along) > HARD_HIT, touches & (-up > HARD_LANDING))
        # A wall stops the runner where it was; what it hangs on to does not count as ground.
        x_next = jnp.where(wall, x, x_next)
        stands = touches & ~wall | wall & (y_next <= height(state.ground, x))
        place = jnp.stack([x_next, jnp.where(stands, height(state.ground, x_next), y_next)])
        speed = jnp.stack([jnp.where(wall, 0.0, along), jnp.where(stands, 0.0, up)])
        state = HurdlesState(state.ground, place, speed, stands)
        reward = (jnp.minimum(x_next, LENGTH) - jnp.minimum(x, LENGTH)) * (PAID / LENGTH) - FALL * fell
        return state, Transition(observe(state), reward, fell | (x_next >= LENGTH), jnp.bool_(False))


def hurdles(roughness: float = 0.0, gap: float = 0.0, stump: float = 0.0, step: float = 0.0) -> Continuous:
    """Hurdles for agents that act by real numbers, or by a choice of pushes and jumps; on flat ground, or as `terrain_of`."""
    return Continuous(Hurdles(terrain_of(roughness, gap, stump, step)))


def terrain_of(roughness: float = 0.0, gap: float = 0.0, stump: float = 0.0, step: float = 0.0) -> tuple[float, ...]:
    """The task with obstacles of any size up to these."""
    largest = {"roughness": ROUGHEST} | {name: obstacle.largest for name, obstacle in OBSTACLES.items()}
    given = {"roughness": roughness, "gap": gap, "stump": stump, "step": step}
    for name, size in given.items():
        check_value(name, size, {"at_least": 0, "at_most": largest[name]})
    return (roughness, *(end for name in OBSTACLES for end in (0.0, given[name])))


def move_range(ends: Array, obstacle: Obstacle, key: Array) -> Array:
    """A neighbour of a range [2] of sizes: each end one change lower, higher or the same, but not both the same.

    Ranges stay within the bounds, and in order. An obstacle that is not there yet comes with its smallest range.
    """
    moved = ends + MOVES * obstacle.change
    allowed = (moved[:, 0] >= -1e-4) & (moved[:, 1] <= obstacle.largest + 1e-4) & (moved[:, 0] <= moved[:, 1] + 1e-4)
    chosen = moved[jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf))]
    first = jnp.array([0.0, obstacle.change], jnp.float32)
    # Rounded, so that ranges that were reached on different ways are equal.
    return jnp.where(ends[1] <= 0, first, jnp.round(chosen / obstacle.change) * obstacle.change).astype(jnp.float32)


def make_ground(task: Array, key: Array) -> Array:
    """Heights [pieces + 1] of a ground with a random obstacle in every slot but the first, of the kinds that the task has."""
    nodes = np.arange(SLOT * SLOTS + int(LIDAR.max()) + 2)
    # One draw for everything: each one takes a second to compile.
    drawn = jax.random.uniform(key, (4 * SLOTS + len(nodes) // 4 + 2,), jnp.float32)
    which, how, later, up = drawn[: 4 * SLOTS].reshape(4, SLOTS)
    lows, highs = task[1::2], task[2::2]
    present = highs > 0
    # The kinds that there are, each as likely as the others.
    kind = jnp.sum(which[:, None] * jnp.sum(present) >= jnp.cumsum(present), -1).clip(0, len(OBSTACLES) - 1)
    there = jnp.any(present) & (jnp.arange(SLOTS) > 0)
    size = lows[kind] + how * (highs - lows)[kind]
    shift = 2 + jnp.floor(3 * later).astype(jnp.int32)  # so that obstacles are not at regular distances
    rises = jnp.where(up < 0.5, 1.0, -1.0)

    slot = np.minimum(nodes // SLOT, SLOTS - 1)
    # Behind the end the ground is flat: no slot begins there.
    behind = jnp.where(nodes < SLOT * SLOTS, nodes % SLOT - shift[slot], -1)
    kinds, sizes, standing = kind[slot], size[slot], there[slot]
    gap = standing & (kinds == 0) & (behind >= 0) & (behind < jnp.round(sizes / CELL))
    stump = standing & (kinds == 1) & (behind >= 0) & (behind < 3)
    # Three steps, each four pieces long.
    step = standing & (kinds == 2) & (behind >= 0) & (behind < 12) & (behind % 4 == 0)
    stairs = jnp.cumsum(jnp.where(step, sizes * rises[slot], 0.0))
    # Rough ground has a corner at every fourth node, and begins where the first slot ends.
    corners = (drawn[4 * SLOTS :] - 0.5) * task[0]
    corners = jnp.where(np.arange(len(corners)) * 4 < SLOT, 0.0, corners)
    along = (nodes % 4) / 4
    rough = corners[nodes // 4] * (1 - along) + corners[nodes // 4 + 1] * along
    return (stairs + rough + jnp.where(stump, sizes, 0.0) - jnp.where(gap, DEPTH, 0.0)).astype(jnp.float32)


def height(ground: Array, x: Array) -> Array:
    """The ground at x [], between two nodes."""
    left, share = between(jnp.clip(x / CELL, 0.0, ground.shape[0] - 1.001))
    return ground[left] * (1 - share) + ground[left + 1] * share


def between(place: Array) -> tuple[Array, Array]:
    """The node before a place [], which is in pieces of ground, and the share of the piece that lies behind."""
    left = jnp.floor(place)
    return left.astype(jnp.int32), place - left


def observe(state: HurdlesState) -> Array:
    """What the runner sees: all numbers are about one or less."""
    (x, y), (along, up) = state.place, state.speed
    # No further than from where all of the lidar meets the ground.
    left, share = between(jnp.clip(x / CELL, 0.0, state.ground.shape[0] - LIDAR.max().item() - 1.001))
    ahead = state.ground[left + LIDAR] * (1 - share) + state.ground[left + LIDAR + 1] * share
    own = jnp.stack([along / 4, up / 6, y - height(state.ground, x), state.grounded.astype(jnp.float32)])
    return jnp.concatenate([jnp.clip(ahead - y, -2.0, 2.0), own])
