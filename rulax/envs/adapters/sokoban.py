"""Sokoban levels made on the spot, for `jumanji/Sokoban`: a solved room, played backwards. Every level has a solution.

Boxoban's levels must be downloaded. These are smaller and easier than those, but they need no network. Codes are Jumanji's.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

EMPTY, WALL, TARGET, AGENT, BOX = range(5)
SIZE, BOXES = 10, 4  # Jumanji's own
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])  # up, right, down, left: Jumanji's actions


class Levels(NamedTuple):
    """A pool of levels, stacked."""

    fixed: np.ndarray  # [N, 10, 10] uint8: walls and targets
    variable: np.ndarray  # [N, 10, 10] uint8: agent and boxes
    agent: np.ndarray  # [N, 2] int32


@functools.cache
def make_levels(number: int, seed: int = 0) -> Levels:
    """That many levels; the same for the same seed."""
    random = np.random.default_rng(seed)
    made = [make_level(random)[:3] for _ in range(number)]
    return Levels(*(np.stack(parts) for parts in zip(*made, strict=True)))


def make_level(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """One level and a solution of it: walls and targets, agent and boxes, the agent's place, actions."""
    while True:
        room = _dig(random)
        floor = np.argwhere(room == EMPTY)
        places = floor[random.permutation(len(floor))[: BOXES + 1]]
        targets, agent = places[:-1], tuple(places[-1])
        boxes = {tuple(place) for place in targets}
        agent, boxes, solution = _play_backwards(random, room, agent, boxes)
        if len(boxes & {tuple(place) for place in targets}) <= 1:  # most of the work is still to be done
            break
    fixed, variable = room.astype(np.uint8), np.zeros((SIZE, SIZE), np.uint8)
    fixed[tuple(targets.T)] = TARGET
    for box in boxes:
        variable[box] = BOX
    variable[agent] = AGENT
    return fixed, variable, np.array(agent, np.int32), solution


def _dig(random: np.random.Generator) -> np.ndarray:
    """A room: squares of four cells along a random walk."""
    room, at = np.full((SIZE, SIZE), WALL), np.array([4, 4])
    while (room == EMPTY).sum() < 26:
        room[at[0] : at[0] + 2, at[1] : at[1] + 2] = EMPTY
        at = np.clip(at + MOVES[random.integers(4)], 1, SIZE - 3)
    return room


def _play_backwards(random: np.random.Generator, room: np.ndarray, agent: tuple, boxes: set) -> tuple[tuple, set, list[int]]:
    """Walk about at random and pull boxes; backwards, each step is a walk or a push, so the reverse solves the level."""
    solution: list[int] = []
    pulls = random.random(300) < 0.8
    for direction, pull in zip(random.integers(0, 4, 300), pulls, strict=True):
        row, column = MOVES[direction]
        ahead, behind = (agent[0] + row, agent[1] + column), (agent[0] - row, agent[1] - column)
        if room[ahead] == WALL or ahead in boxes:
            continue
        if pull and behind in boxes:
            boxes = (boxes - {behind}) | {agent}
        elif behind in boxes:
            continue  # forwards, this step would push the box
        agent = ahead
        solution.append((int(direction) + 2) % 4)
    return agent, boxes, solution[::-1]
