"""From the cells of a comparison to its numbers: `compare.json`, which holds everything that a table or a page shows.

Always computed from the folders of the cells, so that a comparison that was interrupted ends with the same numbers as one that
was not. Statistics are over the environments in which every rule is finished.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rulax.commands.cells import SCORE, TUNE, UNTRAINED, Cell, cost_of, failure, finished, read_cell
from rulax.commands.compare.cells import published_axes
from rulax.commands.compare.evaluation import done as is_done
from rulax.commands.compare.evaluation import read_evaluation
from rulax.commands.compare.provenance import cell_command, compare_command, rule_facts
from rulax.commands.compare.published import STATISTICS, achievements, atari5, published, suite_facts
from rulax.commands.compare.settings import HELD_OUT, CompareConfig, references, role_of, roles, suite_of, trials
from rulax.commands.train.result import Run
from rulax.evaluation import statistics as st
from rulax.files import jsonable
from rulax.files.reading import blamed
from rulax.learning.life import warm_iterations
from rulax.records.folder import read_config
from rulax.report.compare import seed_curve
from rulax.report.plot import carry_forward
from rulax.settings import Learning

NEARLY = 0.9  # normalised score that counts as learned, for sample efficiency
CLEAR = 2.0  # times the spread of its seeds, by which the best rule should be better than untrained
PROFILE = np.linspace(0.0, 1.2, 25)


def results(config: CompareConfig, record: dict[str, Any], cells: list[Cell]) -> dict[str, Any]:
    """The content of compare.json."""
    scored = [cell for cell in cells if cell.purpose == SCORE]
    done = {(cell.env, cell.rule): cell for cell in scored if is_done(cell, config)}
    random = untrained_returns(config, cells)
    # Only complete environments: a mean over different environments for each rule would compare nothing.
    known = [
        env for env in config.env_names if random.get(env) is not None and all((env, rule) in done for rule in config.rule_names)
    ]
    warnings = [f"{cell.title}: {failure(cell)}" for cell in cells if cell.purpose == UNTRAINED and failure(cell)]
    # Counted and not left out, or a rule would gain by failing where others do badly.
    warnings += [f"{cell.title}: {failure(cell)}; it counts as untrained" for cell in scored if failure(cell)]
    warnings += [f"{no_episode(env)}, so it has no scores" for env in random if random[env] is None]
    returns = {rule: final_returns(config, [done[env, rule] for env in known], random, warnings) for rule in config.rule_names}
    scale = Scale(config, known, random, returns, warnings)
    facts = [rule_facts(*names, cells) for names in zip(config.rules, config.rule_names, strict=True)]
    # To a hand-designed rule every environment is like any other.
    discovered = any(each["discovered"] for each in facts)
    described = [describe_cell(cell, config, scale, facts) for cell in scored]
    left = sum(not is_done(cell, config) for cell in cells)
    if left:
        warnings.insert(0, f"unfinished: {left} of {len(cells)} cells are not trained to their end")
    if config.part:
        warnings.insert(0, f"part {config.part}: the other cells are in other folders; `rulax compare --merge` puts them together")
    scores = {rule: scale.normalise(each, known) for rule, each in returns.items()} if known else {}
    return {
        "kind": "compare",
        "finished": not left,
        "seeds": config.seeds,
        "steps": config.steps,
        "environments": [environment_facts(env, known, random, scale, discovered) for env in config.env_names],
        "rules": facts,
        "cells": described,
        "statistics": all_statistics(config, known, returns, scale, discovered),
        "suite": suite_facts(config),
        "budget": config.budget,
        "published": published(config, known, scale),
        "achievements": achievements(config, done),
        "atari5": atari5(config, known, scores),
        "eval_episodes": config.eval_episodes,
        "normalisation": scale.words(),
        "tuning": tuning(config, cells) if config.tune else None,
        "warnings": alone(config) + st.too_few(config.seeds, max(1, len(known))) + warnings + record.get("merge_warnings", []),
        "settings": record["settings"],
        "versions": record.get("versions", {}),
        "commit": record.get("commit"),
        "command": record.get("command"),
        "commands": [compare_command(config)] + [cell["command"] for cell in described],
        "cost": total_cost(cells),
    }


# -- returns -------------------------------------------------------------------------------------------------------------------


def untrained_returns(config: CompareConfig, cells: list[Cell]) -> dict[str, float | None]:
    """What agents earn that never learned, by environment: measured, or random play as published."""
    measured = {cell.env: untrained_return(read_cell(cell)) for cell in cells if cell.purpose == UNTRAINED and finished(cell)}
    return {env: low for env, (_, low, _) in published_axes(config).items()} | measured


def untrained_return(run: Run | None) -> float | None:
    """Mean over all episodes of agents that never learned."""
    if run is None:
        return None
    returns, episodes = run.returns, np.array([row["episodes_per_seed"] for row in run.rows]).reshape(run.returns.shape)
    # Weighted by episodes, since a row in which one episode ended says less than one in which hundreds did.
    ended = episodes > 0
    return float((returns[ended] * episodes[ended]).sum() / episodes[ended].sum()) if ended.any() else None


def no_episode(env: str) -> str:
    """What to say of an environment in which untrained agents never come to an end."""
    limit = " (a time limit ends them: gymnasium/ID:max_episode_steps=200)" if env.startswith("gymnasium/") else ""
    return f"{env}: no episode of an untrained agent ended{limit}"


def alone(config: CompareConfig) -> list[str]:
    """What to say of a comparison of one rule: it is trained all the same."""
    (first, *others) = config.rule_names
    line = f"name another rule, for example --rules {first} {'ppo' if first != 'ppo' else 'actor_critic'}"
    return [] if others else [f"with one rule there is nothing to compare: {first} is only measured; {line}"]


def final_returns(config: CompareConfig, cells: list[Cell], random: dict[str, Any], warnings: list[str]) -> np.ndarray:
    """One rule's final returns, [S, E]; a seed in which no episode ended counts as untrained."""
    columns = []
    for cell in cells:
        run = read_cell(cell) if failure(cell) is None else None
        final = final_return(cell, run) if run else np.full(config.seeds, np.nan)
        if run and np.isnan(final).any():
            warnings.append(f"{cell.title}: in {int(np.isnan(final).sum())} seeds no episode ended; they count as untrained")
        # The same substitute for a failed cell and for a seed without an episode: neither has shown that it learned something.
        columns.append(np.where(np.isnan(final), random[cell.env], final))
    return np.stack(columns, 1) if columns else np.zeros((config.seeds, 0))


def final_return(cell: Cell, run: Run) -> np.ndarray:
    """What each seed's score is of, [S]: its evaluation, if there was one, or the last tenth of its training."""
    played = read_evaluation(cell).get("returns")
    if played is None:
        return np.array(run.final_returns, float)
    returns = np.array(played, float)
    ended = np.isfinite(returns)
    # Without a warning of NumPy where no episode of a seed ended: that is said in words.
    return np.where(ended.any(1), np.where(ended, returns, 0).sum(1) / np.maximum(ended.sum(1), 1), np.nan)


class Scale:
    """What counts as 0 and as 1 in each environment."""

    def __init__(self, config: CompareConfig, known: list[str], random: dict, returns: dict[str, np.ndarray], warnings: list[str]):
        self.stated, self.random, self.reference, self.source = references(config), dict(random), {}, {}
        axes = published_axes(config)
        for column, env in enumerate(known):
            axis = axes.get(env)
            if axis is not None:
                self.source[env], self.random[env], self.reference[env] = f"published ({axis[0]})", *axis[1:]
                continue
            means = {rule: float(each[:, column].mean()) for rule, each in returns.items()}
            best = max(means, key=lambda rule: means[rule])
            stated = self.stated.get(env)
            reference = means[best] if stated is None else stated
            self.source[env] = f"best rule ({best})" if stated is None else "stated"
            # A span of zero, or below it, would divide by nothing or turn the order of rules around.
            if reference <= random[env] + 1e-9 * max(1.0, abs(random[env])):
                who = "no rule learned anything" if stated is None else "the stated reference is no better than an untrained agent"
                warnings.append(f"{env}: {who}; its scores are returns above those of an untrained agent")
                reference, self.source[env] = random[env] + 1.0, "one unit of return"
            elif stated is None and reference - random[env] < CLEAR * returns[best][:, column].std():
                warnings.append(f"{env}: even the best rule is hardly better than untrained, so its scores are mostly noise")
            self.reference[env] = reference

    def normalise(self, returns: np.ndarray, envs: list[str]) -> np.ndarray:
        """Scores of returns [..., E]."""
        low, high = ([part[env] for env in envs] for part in (self.random, self.reference))
        return st.normalise(returns, np.array(low), np.array(high)) if envs else returns

    def words(self) -> str:
        """What 0 and 1 mean."""
        published = [env for env, source in self.source.items() if source.startswith("published")]
        others = len(self.source) - len(published)
        one = {"human": "a human", "norm": "the largest possible return"}
        ends_at = dict.fromkeys(one["human" if "human" in self.source[env] else "norm"] for env in published)
        where = "" if not others else f" for {', '.join(published)}"
        axis = f"as published{where}, 0 is random play and 1 {' or '.join(ends_at)}"
        if published and not others:
            return f"scores are {axis}"
        ways = [f"the best rule's mean in each environment{' without a stated reference' if self.stated else ''}"]
        if self.stated:
            ways.insert(0, "the stated reference")
            ways = ways if len(self.stated) < others else ways[:1]
        words = f"a score of 0 is the return of untrained agents, 1 is {' or '.join(ways)}"
        return f"{words}; {axis}" if published else words


# -- one cell ------------------------------------------------------------------------------------------------------------------


def describe_cell(cell: Cell, config: CompareConfig, scale: Scale, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Curve, scores and cost of one cell."""
    run, cost, facts = read_cell(cell), cost_of(cell), next(rule for rule in rules if rule["name"] == cell.rule)
    steps = run.steps if run else np.zeros(0)
    # Otherwise the mean curve would jump whenever a seed has no episode that ends in a row.
    returns = carry_forward(run.returns) if run and len(steps) else np.zeros((0, config.seeds))
    scores = scale.normalise(returns[..., None], [cell.env])[..., 0] if cell.env in scale.reference else None
    role = role_of(cell.env, facts["trained_on"], facts["validated_on"]) if facts["discovered"] else None
    reached = st.steps_to_threshold(steps, scores, NEARLY) if scores is not None and len(steps) else None
    return {
        "env": cell.env,
        "rule": cell.rule,
        "finished": is_done(cell, config),
        "failed": failure(cell),
        "role": role,  # what the environment was to the rule's discovery
        "folder": f"{cell.purpose}/{cell.folder.name}",
        "curve": seed_curve(steps, returns),
        "final_returns": jsonable(final_return(cell, run)) if run else [],
        "returns_of_training": jsonable(np.array(run.final_returns, float)) if run and config.eval_episodes else [],
        "area_under_curve": jsonable(st.area_under_curve(steps, returns)) if len(steps) else [],
        "steps_to_learn": jsonable(reached) if reached is not None else [],
        "environment_steps": int(steps[-1]) * config.seeds if len(steps) else 0,
        "updates": updates_in(cell, int(steps[-1])) * config.seeds if len(steps) else 0,
        "seconds": round(cost.seconds, 2),
        "cpu_seconds": round(cost.cpu_seconds, 2),
        "core_hours": cost.cpu_seconds / 3600,
        "command": cell_command(cell),
    }


def updates_in(cell: Cell, steps: int) -> int:
    """Updates of one agent in so many environment steps; while its replay is filled it makes none."""
    with blamed(cell.folder):
        learning = Learning(**read_config(cell.folder)["learning"])
    return max(0, steps // (learning.streams * learning.unroll) - warm_iterations(learning))


def environment_facts(env: str, known: list[str], random: dict[str, Any], scale: Scale, discovered: bool) -> dict[str, Any]:
    """An environment, its role in the suites of discovery (held out only if a `discovered` rule takes part), and its baselines."""
    role = known_roles().get(env.partition(":")[0], HELD_OUT)
    return {
        "name": env,
        "suite": suite_of(env),
        "role": role,
        "held_out": discovered and role == HELD_OUT,
        "complete": env in known,
        "random": random.get(env),
        "reference": scale.reference.get(env),
        "reference_is": scale.source.get(env),
    }


@functools.cache
def known_roles() -> dict[str, str]:
    """Read once."""
    return roles()


def total_cost(cells: list[Cell]) -> dict[str, float]:
    """All cells together: trials and untrained agents too."""
    costs = [cost_of(cell) for cell in cells]
    cpu = sum(cost.cpu_seconds for cost in costs)
    return {"seconds": round(sum(cost.seconds for cost in costs), 2), "cpu_seconds": round(cpu, 2), "core_hours": cpu / 3600}


# -- statistics ----------------------------------------------------------------------------------------------------------------


def all_statistics(
    config: CompareConfig, known: list[str], returns: dict[str, np.ndarray], scale: Scale, discovered: bool
) -> dict[str, Any]:
    """Per environment in returns; over all environments, and over those held out if there is a `discovered` rule, in scores."""
    if not known:
        return {"environments": {}, "overall": None, "held_out": None}
    each = {env: {rule: shown(st.interquartile_mean, returns[rule][:, [n]]) for rule in returns} for n, env in enumerate(known)}
    scores = {rule: scale.normalise(returns[rule], known) for rule in config.rule_names}
    apart = [n for n, env in enumerate(known) if known_roles().get(env.partition(":")[0], HELD_OUT) == HELD_OUT]
    # Where all environments are held out, or none is, the second table would repeat the first or be empty.
    some = {rule: values[:, apart] for rule, values in scores.items()} if discovered and 0 < len(apart) < len(known) else None
    return {"environments": each, "overall": group_statistics(scores), "held_out": group_statistics(some) if some else None}


def group_statistics(scores: dict[str, np.ndarray]) -> dict[str, Any]:
    """Everything that is said about a group of environments."""
    return {
        "rules": {rule: rule_statistics(values) for rule, values in scores.items()},
        "scores": {rule: jsonable(values) for rule, values in scores.items()},
        "improvement": [
            {
                "rule": rule,
                "over": other,
                "probability": shown(st.probability_of_improvement, scores[rule], scores[other]),
                "paired": {name: jsonable(value) for name, value in st.paired_test(scores[rule], scores[other])._asdict().items()},
            }
            for rule in scores
            for other in scores
            if rule != other
        ],
    }


def rule_statistics(scores: np.ndarray) -> dict[str, Any]:
    """One rule's aggregates and its performance profile."""
    found = {name: shown(statistic, scores) for name, statistic in STATISTICS.items()}
    profile = shown(lambda values: st.performance_profile(values, PROFILE), scores)
    return found | {"profile": {"thresholds": jsonable(PROFILE), **profile}}


def shown(statistic: st.Statistic, *scores: np.ndarray) -> dict[str, Any]:
    """A statistic with its interval, for JSON; none where no resample differs, from which a bootstrap can learn nothing."""
    found = st.interval(statistic, *scores)
    if found.value.ndim == 0 and found.low == found.high:
        found = found._replace(low=np.full((), np.nan), high=np.full((), np.nan))
    return jsonable(found._asdict())


# -- tuning --------------------------------------------------------------------------------------------------------------------


def tuning(config: CompareConfig, cells: list[Cell]) -> dict[str, Any]:
    """What the trials found: every rule's score in every trial, and the settings that it is compared with."""
    random = untrained_returns(config, cells)
    # NaN stays where a trial failed or no episode ended; `trial_scores` counts it like an untrained agent.
    returns: dict[str, np.ndarray] = {
        rule: np.full((len(trials(config)), len(config.env_names)), np.nan) for rule in config.rule_names
    }
    for cell in cells:
        run = read_cell(cell) if cell.purpose == TUNE and failure(cell) is None else None
        if run and any(value is not None for value in run.final_returns):
            final = np.array(run.final_returns, float)
            returns[cell.rule][cell.trial, config.env_names.index(cell.env)] = final[np.isfinite(final)].mean()
    scores = {rule: trial_scores(returns, rule, [random.get(env) for env in config.env_names]) for rule in config.rule_names}
    # Of equal trials the first, so the choice is the same whenever it is computed again after an interruption.
    best = {rule: int(np.argmax(scores[rule])) for rule in config.rule_names}
    return {
        "trials": trials(config),
        "seeds": config.tune_seeds,
        "steps": config.tune_steps,
        "rules": {
            rule: {"chosen": trials(config)[best[rule]], "scores": jsonable(scores[rule]), "returns": jsonable(returns[rule])}
            for rule in config.rule_names
        },
        "words": f"{len(trials(config))} trials for every rule, on seeds of their own; one choice for all environments",
    }


def trial_scores(returns: dict[str, np.ndarray], rule: str, random: list[float | None]) -> np.ndarray:
    """Mean over environments of each trial's score, [trials]: 0 is untrained, 1 the best trial of any rule."""
    total = np.zeros(len(returns[rule]))
    for column, low in enumerate(random):
        everyone = np.concatenate([each[:, column] for each in returns.values()])
        if low is None or not np.isfinite(everyone).any():
            continue
        # Of all rules together: with a span of its own, each rule's choice would weigh environments differently.
        span = np.nanmax(everyone) - low
        total += np.nan_to_num((returns[rule][:, column] - low) / (span if span > 0 else 1.0), nan=0.0)
    # Divided by all environments, those without a number included: it is the same for every trial, so no choice depends on it.
    return total / len(random)
