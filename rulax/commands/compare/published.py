"""What others have published in the environments of a comparison, beside it: returns, scores on the same axis, Crafter, Atari-5."""

from __future__ import annotations

from typing import Any

import numpy as np

from rulax.commands.cells import Cell
from rulax.commands.compare.evaluation import read_evaluation
from rulax.commands.compare.settings import CompareConfig
from rulax.commands.compare.suite import environments
from rulax.commands.names import read_spec
from rulax.envs.suites import SUITES
from rulax.evaluation import statistics as st
from rulax.evaluation.published import PUBLISHED, atari5_median
from rulax.files import jsonable

STATISTICS = {"iqm": st.interquartile_mean, "median": st.median, "mean": st.mean, "optimality_gap": st.optimality_gap}


def suite_facts(config: CompareConfig) -> dict[str, Any] | None:
    """The suite, if the comparison is of one, and whether it has published scores."""
    if not config.suite:
        return None
    return {"name": config.suite, "summary": SUITES[config.suite].summary, "published": config.suite in PUBLISHED}


def published(config: CompareConfig, known: list[str], scale: Any) -> list[dict[str, Any]]:
    """Every agent with published figures in the suite; its aggregates only where it has a figure in each of these environments."""
    names = dict(zip((read_spec(env).env for env in config.envs), config.env_names, strict=True))
    whole = bool(config.suite) and set(environments(config.suite, config.budget)) == set(config.envs)
    found = []
    for entry in PUBLISHED.get(config.suite, ()):
        returns = {names[env]: value for env, value in entry.returns.items() if env in names}
        scores = {env: scale.normalise(np.array([returns[env]]), [env])[0] for env in known if env in returns}
        statistics: dict[str, Any] = {}
        if len(scores) == len(known) > 1:
            # Over games and not over runs: one figure for each is all that was published.
            statistics |= {name: of(np.array([[*scores.values()]])) for name, of in STATISTICS.items()}
        # Another set of games would make another number of it.
        statistics |= entry.scores if whole and len(known) == len(config.envs) else {}
        facts = {"returns": returns, "scores": scores, "statistics": statistics, "achievements": entry.achievements}
        found.append({"agent": entry.agent, "steps": entry.steps, "source": entry.source, "note": entry.note} | jsonable(facts))
    return found


def achievements(config: CompareConfig, done: dict[tuple[str, str], Cell]) -> dict[str, Any] | None:
    """Success in each of Crafter's achievements and Crafter's score, by rule, with intervals over seeds."""
    found = {rule: read_evaluation(cell) for (_, rule), cell in done.items()}
    found = {rule: found[rule] for rule in config.rule_names if "score" in found.get(rule, {})}
    if not found:
        return None

    def over_seeds(values: list[float]) -> dict[str, Any]:
        return estimate(np.array(values)[:, None])

    return {
        "episodes": config.eval_episodes,
        "rates": {rule: {name: over_seeds(each) for name, each in of["achievements"].items()} for rule, of in found.items()},
        "scores": {rule: over_seeds(of["score"]) for rule, of in found.items()},
    }


def atari5(config: CompareConfig, known: list[str], scores: dict[str, np.ndarray]) -> dict[str, Any] | None:
    """The median over 57 games that the five of Atari-5 predict, by rule, where all of them are finished; scores [S, E]."""
    names = dict(zip(config.env_names, (read_spec(env).env.partition("/")[2] for env in config.envs), strict=True))
    if config.suite != "atari5" or len(known) < len(SUITES["atari5"].environments):
        return None

    def predicted(values: np.ndarray) -> np.ndarray:
        return atari5_median({names[env]: values[..., n].mean(-1) for n, env in enumerate(known)})

    return {rule: estimate(values, predicted) for rule, values in scores.items()}


def estimate(values: np.ndarray, statistic: st.Statistic = st.mean) -> dict[str, Any]:
    """A statistic of values [S, E] with its interval over seeds, for JSON; none where no resample differs."""
    found = st.interval(statistic, values)
    if found.low == found.high:
        found = found._replace(low=np.full((), np.nan), high=np.full((), np.nan))
    return jsonable(found._asdict())
