"""What came of a run of POET, as plain data: the tree of environments with their agents, for files, pictures and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
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
    solver: int  # the environment from which the best agent came here; its own number if it was never replaced
    best: float  # its score
    difficulty: float  # distance of its task from the first one's
    task: list[float]
    direct: float | None  # the peak of direct evolution, where that was tried
    agent: PyTree  # the best one; None if there is none yet
    given: PyTree  # the task as the environment takes it


class Story(NamedTuple):
    """One run."""

    name: str
    branches: list[Branch]
    transfers: list[tuple[int, int, int, bool, bool]]  # iteration, from, to, tuned, accepted
    iterations: int
    annecs: int


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
                world.solver,
                float(world.best),
                float(np.linalg.norm(vectors_of(world.task) - first)),
                [round(float(number), 3) for number in vectors_of(world.task)],
                direct.get((name, world.number)),
                None if world.agent is None else run.agents.agent(world.agent),
                world.task,
            )
            for world in run.worlds
        ]
        moves = [(each.iteration, each.source, each.target, each.tuned, each.accepted) for each in run.transfers]
        stories.append(Story(name, branches, moves, run.iteration, run.annecs))
    return PoetStory(environment, poet.solved, share * poet.solved, stories)


def vectors_of(task: PyTree) -> np.ndarray:
    """One task as a vector."""
    return vectors(jax.tree.map(lambda leaf: np.asarray(leaf)[None], task))[0]


def as_record(story: PoetStory) -> dict[str, Any]:
    """The story as JSON, without its agents."""
    runs = []
    for run in story.runs:
        kept = [
            {name: value for name, value in branch._asdict().items() if name not in ("agent", "given")} for branch in run.branches
        ]
        runs.append({**run._asdict(), "branches": kept})
    return {"solved": story.solved, "begun": story.begun, "runs": runs}


def from_record(record: dict[str, Any]) -> PoetStory:
    """The inverse of `as_record`, without agents and without the environment."""
    runs = []
    for run in record["runs"]:
        branches = [Branch(**branch, agent=None, given=None) for branch in run["branches"]]
        runs.append(Story(**{**run, "branches": branches, "transfers": [tuple(each) for each in run["transfers"]]}))
    return PoetStory(None, record["solved"], record["begun"], runs)
