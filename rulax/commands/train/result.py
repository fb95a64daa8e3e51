"""What Python users hold after `rulax.train(...)` or `rulax.load(folder)`: a run's curve, its numbers and its agents."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rulax.agents.worst import learning_from_all
from rulax.commands.build import user_errors
from rulax.commands.resume import read_record
from rulax.commands.train.agent import EPISODES, AgentHandle, evaluate_agents
from rulax.commands.train.settings import TrainConfig
from rulax.commands.train.setup import KIND, Prepared, check_own, prepare, saved_config
from rulax.errors import UserError
from rulax.evaluation.normalised import normalised
from rulax.evaluation.scores import Evaluation
from rulax.evaluation.skills import Skills
from rulax.files import jsonable, read_json, write_atomically, write_json
from rulax.files.reading import blamed
from rulax.own import shown, shown_with
from rulax.records import folder as folders
from rulax.records import stages
from rulax.records.agent_file import Description, observation_form
from rulax.records.population import Point, Turn, best_member, read_turns, schedule_of, write_schedule
from rulax.records.rows import RESTARTS, Row, final_returns, read_rows
from rulax.report import plot
from rulax.report.population_plot import population_figure
from rulax.report.skills_plot import skills_figure
from rulax.text import plural, shown_return

FILMED, MOST_PICTURES, MOST_BYTES = 3, 200, 300_000  # episodes, pictures and size of the animation on a page


class Run:
    """A run, finished or interrupted: its curve, its numbers, its agents."""

    def __init__(self, config: TrainConfig, folder: Path | None, rows: list[Row], finished: bool, seconds: float):
        self.config, self.folder, self.rows, self.finished, self.seconds = config, folder, rows, finished, seconds
        self.steps_per_second = 0.0  # of all seeds, compiling not counted; 0 if not measured
        self.cpu_seconds: float | None = None  # None if not measured
        self.restarts: int | None = None  # of environments that raised, where rows do not reach the end; None: the rows know
        self.last_failure = ""  # what the last of them said
        self.made: int | None = None  # environment steps per seed, where rows do not reach the end; None: the rows know
        self.source: tuple[Prepared, Any] | None = None  # what was built, and the state; None: they are in the folder
        self.no_animation = ""  # why the page shows no episode, if that failed
        self.skills: list[Skills] = []  # of each seed's agent, once results are written
        self.no_skills = ""  # why they are not judged, if that failed
        self.stopped_by = ""  # the callback that ended the run before its budget was spent, and why
        self.turns: list[Turn] = []  # of a population, what each did; the first one says how it began
        self.own: tuple[Any, Any] = (None, None)  # environment and recipe, where they are not made from their names

    @property
    def steps(self) -> np.ndarray:
        """Environment steps per seed at each point of the curve, [P]."""
        return np.array([row["step"] for row in self.rows], np.int64)

    @property
    def returns(self) -> np.ndarray:
        """Mean return of the episodes that ended in each part of the run, [P, K]; NaN where none ended."""
        # Reshaped, because an empty list of rows has lost its second axis.
        return as_array([row["return_per_seed"] for row in self.rows]).reshape(-1, self.config.seeds)

    @property
    def final_returns(self) -> list[float | None]:
        """Per seed, the mean over the last tenth of the run."""
        return final_returns(self.rows)

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Everything that was measured, by name, averaged over seeds, [P]."""
        names = [name for name in (self.rows[-1] if self.rows else {}) if not name.endswith("_per_seed")]
        return {name: as_array([row.get(name) for row in self.rows]) for name in names}

    # Cached: handles remember their episode, so asking twice must give the same ones, and restoring builds a trainer.
    @functools.cached_property
    def agents(self) -> list[AgentHandle]:
        """The trained agents, one per seed."""
        prepared, state = self.source or restore(self)
        return agents_of(prepared, state, self.steps_made, self.rows)

    @property
    def steps_made(self) -> int:
        """Environment steps per seed."""
        return self.made if self.made is not None else int(self.steps[-1]) if self.rows else 0

    @property
    def agent(self) -> AgentHandle:
        """The first seed's agent, or the best member of a population: `run.agent.act(observation)`."""
        return self.agents[self.best]

    @property
    def best(self) -> int:
        """The member of a population with the highest final return; without a population 0."""
        return best_member(self.final_returns) if self.config.population else 0

    @property
    def schedule(self) -> list[Point]:
        """The hyper-parameters that a population's best member and its ancestors had, from the step at which each was in force."""
        return schedule_of(self.turns, self.best) if self.turns else []

    def plot_population(self, path: str | Path | None = None) -> Any:
        """Scores and hyper-parameters of a population's members as a matplotlib figure; also written to `path`, if there is one."""
        if not self.turns:
            raise UserError("this run is no population, or it has not begun; train with population=16, tune=['learning_rate']")
        figure = population_figure(self.turns, self.best, self.steps_made, self.title)
        if path is not None:
            plot.save_figure(Path(path), figure)
        return figure

    def evaluate(self, episodes: int = EPISODES, seed: int = 0, greedy: bool | None = None) -> Evaluation:
        """Let every seed's agent play whole episodes, and learn nothing from them.

        Args:
            episodes: of each agent.
            seed: of all random numbers; never those of training.
            greedy: True for the most likely actions, False for actions drawn as in training, None for both.
        """
        return evaluate_agents(self.agents, episodes, seed, greedy)

    @property
    def title(self) -> str:
        """What the run is called in a picture."""
        env = shown_with(self.config.env, self.config.env_options)
        rule = shown_with(self.config.rule, self.config.rule_options)
        return f"{env} · {rule} · {plural(self.config.seeds, self.unit)}"

    @property
    def unit(self) -> str:
        """What its agents are to each other."""
        return "member" if self.config.population else "seed"

    def plot(self, path: str | Path | None = None) -> Any:
        """The learning curve as a matplotlib figure; also written to `path`, if there is one."""
        figure = plot.curve_figure(self.steps, self.returns, self.title)
        if path is not None:
            plot.save_figure(Path(path), figure)
        return figure

    def summary(self) -> dict[str, Any]:
        """The result in a few numbers; the content of summary.json."""
        final = self.final_returns
        known = [value for value in final if value is not None]
        mean = sum(known) / len(known) if known else None
        restarts = sum(row.get(RESTARTS) or 0 for row in self.rows) if self.restarts is None else self.restarts
        return {
            "env": self.config.env,
            "rule": self.config.rule,
            "seeds": self.config.seeds,
            "steps": self.steps_made,
            "finished": self.finished,
            "seconds": round(self.seconds, 1),
            "cpu_seconds": None if self.cpu_seconds is None else jsonable(round(self.cpu_seconds, 1)),
            "final_return": mean,
            "final_return_per_seed": final,
            "normalised": None if mean is None else normalised(self.config.env, mean, self.config.env_options),
            **self.last_evaluation(),
            **({"best_member": self.best, "turns": len(self.turns) - 1} if self.turns else {}),
            **({"no_animation": self.no_animation} if self.no_animation else {}),
            **({"stopped_by": self.stopped_by} if self.stopped_by else {}),
            **({"no_skills": self.no_skills} if self.no_skills else {}),
            **({"skills": [skills.as_dict() for skills in self.skills]} if self.skills else {}),
        } | ({RESTARTS: restarts, "last_failure": self.last_failure} if restarts else {})

    def last_evaluation(self) -> dict[str, Any]:
        """The returns of the last evaluation during training, if there was one; `final_return` is that of training episodes."""
        names = ("evaluation_greedy_return", "evaluation_sampled_return")
        last = next((row for row in reversed(self.rows) if any(name in row for name in names)), {})
        found = {name: last[name] for name in names if name in last}
        return {"evaluation_step": last["step"], **found} if found else {}

    def write_results(self, animation: bool = False, record: Callable[[str], None] = lambda stage: None) -> None:
        """Summary, curve and page, into the run folder; with an animation, if wanted. `record` is told what is done."""
        from rulax.report.train import write_train_page

        assert self.folder is not None
        # Whatever is there is of an earlier part of the run.
        (self.folder / folders.FILM).unlink(missing_ok=True)
        if animation:
            self.write_animation(self.folder / folders.FILM)
        (self.folder / folders.SKILLS).unlink(missing_ok=True)
        # Asked of the recipe, since to ask agents one has to restore them.
        if self.finished and self.source and self.source[0].recipe.env_options.get("with_skill"):
            self.write_skills(self.folder / folders.SKILLS)
        # Before the page, which reads it.
        write_json(self.folder / folders.SUMMARY, self.summary())
        record(stages.SUMMARY)
        self.plot(self.folder / folders.CURVE)
        record(stages.CURVE)
        if self.turns:
            self.plot_population(self.folder / folders.POPULATION)
            facts = {"env": self.config.env, "rule": self.config.rule, "steps": self.steps_made, "member": self.best}
            facts["final_return"] = self.final_returns[self.best] if self.rows else None
            write_schedule(self.folder / folders.SCHEDULE, self.schedule, facts)
        write_train_page(self.folder)
        record(stages.PAGE)

    def write_animation(self, path: Path) -> None:
        """A short film of the first seed's agent, or of a population's best, small enough to be a part of the page."""
        from rulax.envs.base import Environment, HostEnvironment

        if not isinstance(self.agent.environment, Environment | HostEnvironment):
            return
        try:
            write_atomically(path, self.agent.film(FILMED, seed=self.config.seed, most=MOST_PICTURES).gif(MOST_BYTES))
        # Whatever goes wrong in an environment or in drawing it: the run is trained, and its results must not be lost with it.
        except Exception as error:
            self.no_animation = f"{type(error).__name__}: {error}"

    def write_skills(self, path: Path) -> None:
        """What the skills of every seed's agent are worth, and a picture of the first one's, where agents have some."""
        try:
            judged = [agent.skills(self.config.seed) for agent in self.agents]
            self.skills = [skills for skills in judged if skills]
            if self.skills:
                title = f"Where each skill goes · {shown(self.config.env)}"
                plot.save_figure(path, skills_figure(*self.skills[0].paths, title))
        # As above: the environment is played once more, and may fail.
        except Exception as error:
            self.no_skills = f"{type(error).__name__}: {error}"

    def __repr__(self) -> str:
        final = self.summary()["final_return"]
        shown = "no episode ended" if final is None else f"final return {shown_return(final)}"
        return f"Run({self.title}, {self.summary()['steps']:,} steps, {shown})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the final return of every seed, and the curve."""
        from rulax.report.notebook import run_html

        return run_html(self.title, self.summary()["steps"], self.seconds, self.final_returns, self.plot())


def as_array(values: list[Any]) -> np.ndarray:
    """JSON's null is our NaN."""
    return np.array(values, dtype=object).astype(np.float64)


def load(folder: str | Path, env: Any = None, rule: Any = None) -> Run:
    """A run from its folder; its agents are restored when they are first asked for.

    `env` and `rule` are needed only for the agents of a run that was made with objects of your own.
    """
    if folder is None:
        raise UserError(
            "this run was not kept in a folder; rulax.train(..., out='runs/mine') keeps it, and run.agent.save(FILE) an agent"
        )
    if not isinstance(folder, str | Path):
        raise UserError(f"load takes the folder of a run, as in rulax.load('runs/catch-ppo-001'), not {folder!r}")
    folder = Path(folder)
    # A name would be silently ignored, as the folder says already what the run was made with.
    if isinstance(env, str) or isinstance(rule, str):
        raise UserError("load takes an environment and a rule of your own; a run that has names for them needs neither")
    with blamed(folder / folders.CONFIG):
        config = saved_config(read_record(folder, KIND), {})
    rows = read_rows(folder, config.seeds)
    # From the rows and not from summary.json, which a killed run does not have and a resumed one has outlived.
    # With the stage, because the last row is written shortly before the last checkpoint.
    finished = bool(rows) and rows[-1]["step"] >= config.steps and not stages.missing(folder, (stages.TRAINED,), rows[-1]["step"])
    run = Run(config, folder, rows, finished, rows[-1]["seconds"] if rows else 0.0)
    run.turns = read_turns(folder) if config.population else []
    run.own = own_objects(env, rule, config.env_options, config.rule_options)
    run.stopped_by = "" if finished else str(read_json(folder / folders.SUMMARY, folders.Summary).get("stopped_by", ""))
    return run


def restore(run: Run) -> tuple[Prepared, Any]:
    """What a run that is only in a folder was built from, and its state."""
    from rulax.records import checkpoint, sharded

    assert run.folder is not None
    # Only here and not in `load`: curve and numbers of such a run can be read without its objects.
    check_own(folders.read_config(run.folder), str(run.folder), *run.own)
    prepared = prepare(run.config, *run.own)
    path = run.folder / folders.CHECKPOINT
    found = sharded.load(run.folder, checkpoint.Facts)
    if found.note:
        print(found.note, file=sys.stderr)
    state = sharded.unpack(found, prepared.trainer, path)
    run.made = found.facts["step"]
    # Agents need the parameters and the environment's description, not the streams that a host trainer has opened.
    prepared.trainer.close()
    return prepared, state


def agents_of(prepared: Prepared, state: Any, step: int, rows: list[Row]) -> list[AgentHandle]:
    """The agents of all seeds as they are in a state, which may be consumed afterwards."""
    trainer, config = prepared.trainer, prepared.config
    returns: list[float | None] = final_returns(rows) or [None] * config.seeds

    def one(seed: int) -> AgentHandle:
        task = trainer.task(state, seed) if config.task == "random" else None
        describe = functools.partial(describe_agent, prepared, seed, step, returns[seed])
        return AgentHandle(learning_from_all(trainer.agent(state, seed)), prepared.environment, task, describe)

    return [one(seed) for seed in range(config.seeds)]


def describe_agent(prepared: Prepared, seed: int, step: int, training_return: float | None) -> Description:
    """What a file says about one of a run's agents."""
    config, recipe, environment = prepared.config, prepared.recipe, prepared.environment
    own = prepared.record["custom"]
    return Description(
        env=config.env,
        env_options=config.env_options,
        rule=config.rule,
        rule_options=config.rule_options,
        task=config.task,
        custom=[*(["env"] if "env" in own else []), *(["agent"] if "rule" in own and recipe.make_agent is not None else [])],
        heads={name: [head.size, head.per_action] for name, head in recipe.rule.heads(environment.num_actions).items()},
        network=prepared.record["network"],
        streams=recipe.learning.streams,
        normalises=[what for what in ("observations", "rewards") if getattr(recipe.learning, f"normalise_{what}")],
        num_actions=environment.num_actions,
        action_dimensions=environment.action_dimensions,
        observation=observation_form(environment.observation),
        steps=step,
        seed=seed,
        training_return=training_return,
        versions=prepared.record["versions"],
    )


def own_objects(
    env: Any, rule: Any, env_options: dict[str, Any] | None = None, rule_options: dict[str, Any] | None = None
) -> tuple[Any, Any]:
    """Environment and recipe, where the user gave objects instead of names; None stands for a name, or for nothing."""
    from rulax.envs.adapters.limit import set_up
    from rulax.envs.own import environment_name, environment_of
    from rulax.rules.own import rule_name
    from rulax.rules.registry import own_recipe

    environment = recipe = None
    with user_errors():
        if env is not None and not isinstance(env, str):
            name = environment_name(env)
            environment = set_up(name, environment_of, env, name, env_options or {})
        if rule is not None and not isinstance(rule, str):
            recipe = own_recipe(rule, rule_name(rule), rule_options or {})
    return environment, recipe
