"""Evaluation of a comparison's cells: trained agents play whole episodes for their score, and learn nothing.

What came out stands in the cell's folder, so that a comparison that was interrupted evaluates nothing twice.
"""

from __future__ import annotations

from typing import Any, TypedDict

import jax
import numpy as np

from rulax.commands import build
from rulax.commands.cells import COST, FAILED, SCORE, Cell, Cost, cost_of, failure, finished
from rulax.commands.compare.settings import CompareConfig
from rulax.commands.driver import Clock
from rulax.commands.train.agent import AgentHandle, Examiner, evaluation_key, make_examiner
from rulax.commands.train.result import load
from rulax.envs.base import EnvironmentFailed
from rulax.evaluation.episodes import quotas
from rulax.evaluation.published import crafter_score
from rulax.files import jsonable, read_json, write_json

EVALUATION = "evaluation.json"
CRAFTER = "crafter/"


class _Returns(TypedDict):
    episodes: int
    unseen: bool
    returns: list[list[float]]


class Evaluated(_Returns, total=False):
    """The form of a cell's evaluation."""

    achievements: dict[str, list[float]]
    score: list[float | None]


def done(cell: Cell, config: CompareConfig) -> bool:
    """Whether nothing is left to do: trained to the end and, where its score is of an evaluation, evaluated."""
    return finished(cell) and not waits(cell, config)


def waits(cell: Cell, config: CompareConfig) -> bool:
    """Whether a cell is trained and not yet evaluated."""
    if not config.eval_episodes or cell.purpose != SCORE or not finished(cell) or failure(cell) is not None:
        return False
    return not read_evaluation(cell)  # a damaged one is made again


def read_evaluation(cell: Cell) -> dict[str, Any]:
    """What its agents earned in their evaluation; empty if there was none."""
    found = read_json(cell.folder / EVALUATION, Evaluated)
    whole = found and [len(each) for each in found["returns"]] == [found["episodes"]] * cell.config.seeds
    return found if whole else {}


def evaluate_cell(cell: Cell, config: CompareConfig) -> None:
    """Let the agents of a cell play; an environment that fails ends the cell, not the comparison."""
    clock = Clock(**cost_of(cell)._asdict())
    try:
        write_json(cell.folder / EVALUATION, evaluate(cell, config))
    except EnvironmentFailed as error:
        write_json(cell.folder / FAILED, {"reason": f"its evaluation stopped: {error}"})
    finally:
        write_json(cell.folder / COST, Cost(clock.seconds, clock.cpu_seconds)._asdict())


def evaluate(cell: Cell, config: CompareConfig) -> dict[str, Any]:
    """Returns by seed and episode; in Crafter, how often each achievement was unlocked, too."""
    agents, key = load(cell.folder).agents, evaluation_key(cell.config.seed)
    crafter = cell.config.env.startswith(CRAFTER)
    returns, unseen, rates = [], False, []
    examiner = None if crafter else make_examiner(agents[0], config.eval_episodes)
    for number, agent in enumerate(agents):
        episodes: list[list[dict[str, int]]] = []
        judge = examiner or crafter_examiner(agent, config.eval_episodes, episodes)
        (score,) = judge.scores([agent], jax.random.fold_in(key, number), ["sampled"])
        returns.append(score.episodes.returns)
        unseen = judge.unseen
        rates.append(success(episodes, config.eval_episodes))
    found = {"episodes": config.eval_episodes, "unseen": unseen, "returns": jsonable(np.stack(returns))}
    if crafter:
        scores = crafter_score(np.array([list(each.values()) for each in rates]))
        found |= {"achievements": {name: [each[name] for each in rates] for name in rates[0]}, "score": jsonable(scores)}
    return found


def crafter_examiner(agent: AgentHandle, episodes: int, unlocked: list[list[dict[str, int]]]) -> Examiner:
    """An examiner whose environment also notes in `unlocked` what each episode has unlocked."""
    from rulax.envs.adapters.crafter import recorded

    about = agent.description
    # In this process, where the notes are read.
    options = {name: value for name, value in about.env_options.items() if name != "processes"}
    return Examiner(recorded(build.make_environment(about.env, options), unlocked), episodes, unseen=False)


def success(unlocked: list[list[dict[str, int]]], episodes: int) -> dict[str, float]:
    """The share of episodes in which each achievement was unlocked; of every stream as many episodes count as in the returns."""
    quota = quotas(episodes, max(1, len(unlocked)))[: len(unlocked)]
    counted = [each for stream, most in zip(unlocked, quota, strict=True) for each in stream[:most]]
    return {name: float(np.mean([each[name] > 0 for each in counted])) for name in sorted(counted[0])} if counted else {}
