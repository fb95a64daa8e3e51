"""What came of a run of POET, as plain data: the tree of environments with their agents, for files, pictures and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rulax.methods.poet import Poet, Trailblazer, vectors
from rulax.types import PyTree


class Branch(NamedTuple):
    """One environment of the tree."""

    number: int
    parent: int  # -1 for the first
    born: int  # iteration
    retired: int | None
    solved: int | None
    best: float  # score of the best agent that was its own
    difficulty: float  # distance of its task from the first one's
    task: list[float]
    direct: float | None  # the peak of direct evolution, where that was tried
    agent: PyTree  # the best one
    given: PyTree  # the task as the environment takes it


class Story(NamedTuple):
    """One run."""

    name: str
    branches: list[Branch]
    transfers: list[tuple[int, int, int, bool, bool]]  # iteration, from, to, tuned, accepted
    iterations: int


class PoetStory(NamedTuple):
    """All runs of a seed."""

    environment: Any
    solved: float
    begun: float  # below which direct evolution has not begun to solve an environment
    runs: list[Story]


def story_of(
    environment: Any, poet: Poet, runs: Mapping[str, Trailblazer], direct: Mapping[tuple[str, int], float], share: float
) -> PoetStory:
    """The story of some runs.

    Args:
        environment: of all of them.
        poet: for what counts as solved.
        runs: by name.
        direct: by run and number of the environment, the peak of direct evolution.
        share: of what counts as solved, below which it has not begun.
    """
    stories = []
    for name, run in runs.items():
        first = vectors_of(run.worlds[0].task)
        branches = [
            Branch(
                world.number,
                world.parent,
                world.born,
                world.retired,
                world.solved,
                float(world.best),
                float(np.linalg.norm(vectors_of(world.task) - first)),
                [round(float(number), 3) for number in vectors_of(world.task)],
                direct.get((name, world.number)),
                world.agent,
                world.task,
            )
            for world in run.worlds
        ]
        moves = [(each.iteration, each.source, each.target, each.tuned, each.accepted) for each in run.transfers]
        stories.append(Story(name, branches, moves, run.iteration))
    return PoetStory(environment, poet.solved, share * poet.solved, stories)


def vectors_of(task: PyTree) -> np.ndarray:
    """One task as a vector."""
    import jax

    return vectors(jax.tree.map(lambda leaf: np.asarray(leaf)[None], task))[0]
