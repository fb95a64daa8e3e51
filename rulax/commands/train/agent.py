"""A trained agent as a user holds it: show it an observation, get an action; evaluate it, save it, load it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.distributions import likeliest_choice
from rulax.commands import build
from rulax.envs.adapters.gymnasium import GymnasiumEnvironment
from rulax.envs.adapters.limit import set_up
from rulax.envs.adapters.stacking import Stacked
from rulax.envs.base import Environment, HostEnvironment, WrappedHost
from rulax.envs.own import environment_name, environment_of
from rulax.envs.registry import lasting_options
from rulax.envs.unseen import unseen_options
from rulax.errors import UserError
from rulax.evaluation.episodes import Evaluator, make_evaluator
from rulax.evaluation.scores import Evaluation, Score, Way
from rulax.evaluation.skills import Skills, judge_skills
from rulax.own import hold, shown
from rulax.records import agent_file
from rulax.records.agent_file import Description
from rulax.text import merge_options, split_options
from rulax.types import Array, Level, Policy, PyTree

if TYPE_CHECKING:  # both with Pillow
    from rulax.evaluation.playing import Moment
    from rulax.report.film import Film

EPISODES = 100  # of an evaluation
OTHER_LEVELS = "the levels are others than in training: this is how well the agent generalises"
EVALUATION = 0x0E7A1  # sets the random numbers of evaluations apart from those of training with the same seed


@jax.jit
def _decide(params: PyTree, observation: Array, first: Array, memory: PyTree) -> tuple[Policy, PyTree]:
    logits, memory = params.act(observation, first, memory)
    return logits, memory


class AgentHandle:
    """One agent's parameters, the environment that it was trained in, and its memory of the episode so far.

    Observations and actions are the environment's own: the index of a `Discrete` space is read, and counted, as it does; where
    frames are stacked it is shown one frame after the other.
    """

    def __init__(self, params: PyTree, environment: Any, task: PyTree = None, describe: Callable[[], Description] | None = None):
        """`task` is the agent's own, None for the environment's default one; `describe` says what `save` writes beside arrays."""
        self.params, self.environment, self.observation = params, environment, environment.observation
        self.task, self._describe = task, describe
        self.reset()

    @property
    def description(self) -> Description:
        """What is known of the agent beside its arrays: environment, rule, network, steps of training, return."""
        if self._describe is None:
            raise UserError("this agent was made without a run or a file, so nothing is known of where it comes from")
        return self._describe()

    def save(self, path: str | Path) -> Path:
        """Write the agent as one file, `agent.safetensors`, which `rulax.load_agent` and `rulax play` read."""
        return agent_file.save(path, self.description, self.params, self.task)

    def evaluate(self, episodes: int = EPISODES, seed: int = 0, greedy: bool | None = None) -> Evaluation:
        """Play whole episodes and learn nothing: greedily, with actions drawn as in training, or (`None`) both.

        Args:
            episodes: how many.
            seed: of all random numbers; never those of training.
            greedy: True, False, or None for both.
        """
        return evaluate_agents([self], episodes, seed, greedy)

    def skills(self, seed: int = 0, episodes: int = 0) -> Skills | None:
        """What its skills are worth, for an agent that has some (rule `diayn`), else None: `agent.skills().information`.

        Args:
            seed: of all random numbers; never those of training.
            episodes: how many to play; 0 for the usual number.
        """
        return judge_skills(self.params, self.environment, evaluation_key(seed), episodes, self.task)

    def plot_skills(self, path: str | Path | None = None, seed: int = 0) -> Any:
        """Where each of its skills goes, as a matplotlib figure; also written to `path`, if there is one."""
        from rulax.report.plot import save_figure
        from rulax.report.skills_plot import skills_figure

        skills = self.skills(seed)
        if skills is None:
            raise UserError("this agent has no skills; those that are trained with the rule diayn have some")
        figure = skills_figure(*skills.paths)
        if path is not None:
            save_figure(Path(path), figure)
        return figure

    def play(self, episodes: int = 1, seed: int = 0, greedy: bool = True) -> Iterator[Moment]:
        """Play episodes step by step: pictures with the return so far, for those who draw them themselves."""
        from rulax.evaluation.playing import play  # with Pillow, which acting does not need

        return play(self.params, watchable(self), evaluation_key(seed), episodes, greedy, self.task)

    def film(self, episodes: int = 1, seed: int = 0, greedy: bool = True, fps: float = 15, most: int = 0) -> Film:
        """A film of some episodes: `run.agent.film().save("agent.gif")`. With `most` it ends after so many pictures."""
        from rulax.report.film import Film

        return Film(self.play(episodes, seed, greedy), fps, most)

    def reset(self, level: Level = Level.LIFE) -> None:
        """Begin a new episode with no memory at all; or, with a lower level, with the memory that lasts longer than that.

        An agent with `memory_level` "trial" is played as it was trained by `reset(Level.EPISODE)` between the episodes of a trial.
        """
        # Below that the memory stays, and the network itself clears what does not last beyond `first`.
        if level == Level.LIFE:
            self.memory: PyTree = None
        self.frames: PyTree = None  # the last ones, where the environment stacks them
        self.first = level

    def act(self, observation: Any, key: Array | None = None, greedy: bool = True) -> Any:
        """The action for one observation: an int, or an array if the observation has a leading axis of streams.

        Where an action has several dimensions, or is made of real numbers, it is an array of the environment's own shape.
        Greedy takes the most likely action; otherwise it is drawn with `key`.
        """
        if not greedy and key is None:
            raise ValueError("act(greedy=False) draws an action at random and needs a key, for example jax.random.key(0)")
        # The agent was trained on what the adapter makes of an observation, so the same is done here to the environment's own.
        read = self.environment.preprocess(observation)
        if isinstance(self.environment, Stacked):
            read = self.frames = self.environment.push(self.frames, read)
        observation = jax.tree.map(lambda spec, part: jnp.asarray(part, spec.dtype), self.observation, read)
        parts = list(zip(jax.tree.leaves(self.observation), jax.tree.leaves(observation), strict=True))  # one, or a dictionary's
        single = all(part.shape == spec.shape for spec, part in parts)
        for spec, part in parts:
            if not single and part.shape[1:] != spec.shape:
                raise ValueError(f"an observation has shape {spec.shape}, not {part.shape}")
        batch = jax.tree.map(lambda part: part[None], observation) if single else observation
        streams = len(jax.tree.leaves(batch)[0])
        if self.memory is None:
            self.memory = self.params.initial_memory(streams)
        remembered = [leaf.shape[0] for leaf in jax.tree.leaves(self.memory)]
        # Broadcasting might accept it silently and mix the memories of different episodes.
        if remembered and remembered[0] != streams:
            raise ValueError(
                f"the agent remembers {remembered[0]} stream(s) of this episode, but was shown {streams}; call reset() first"
            )
        first = jnp.full(streams, self.first, jnp.int8)
        logits, self.memory = _decide(self.params, batch, first, self.memory)
        # Only after the network has seen it: the next observation goes on with the same episode.
        self.first = Level.NOTHING
        chosen = likeliest_choice(logits) if greedy or key is None else self.params.sample(key, logits)
        action = self.environment.native_action(np.asarray(chosen))
        if not single:
            return action
        return int(action[0]) if action.ndim == 1 and np.issubdtype(action.dtype, np.integer) else action[0]


# -- evaluation ----------------------------------------------------------------------------------------------------------------


class Examiner:
    """Evaluates agents of one environment; what it compiles serves all of them, and all later evaluations."""

    def __init__(self, environment: Environment | HostEnvironment, episodes: int, unseen: bool):
        self.episodes, self.unseen = episodes, unseen
        with build.user_errors():
            self.evaluator: Evaluator = make_evaluator(environment, episodes)

    def scores(self, agents: list[AgentHandle], key: Array, ways: list[Way]) -> list[Score]:
        """Every agent in every way, each with random numbers of its own; both ways meet the same episodes."""
        found = []
        for way in ways:
            for number, agent in enumerate(agents):
                task = None if self.unseen else agent.task
                episodes = self.evaluator(agent.params, jax.random.fold_in(key, number), way == "greedy", task)
                found.append(Score(number, way, episodes))
        return found


def make_examiner(agent: AgentHandle, episodes: int, ranges: dict[str, Any] | None = None) -> Examiner:
    """For the agent's environment, with levels that it was not trained on where the environment tells them apart.

    `ranges` are those of its constants, if they are not those of training.
    """
    about = agent._describe() if agent._describe else None
    if about is not None and ranges:
        own_object = agent.environment if "env" in about.custom else None
        environment = build.with_other_ranges(about.env, about.env_options, ranges, own_object)
        return Examiner(environment, episodes, unseen=False)
    options = unseen_options(about.env, about.env_options) if about and "env" not in about.custom else None
    if about is None or options is None:
        return Examiner(agent.environment, episodes, unseen=False)
    return Examiner(build.make_environment(about.env, options), episodes, unseen=True)


def ways_of(greedy: bool | None) -> list[Way]:
    """Which kinds of episodes are asked for."""
    return ["greedy", "sampled"] if greedy is None else ["greedy"] if greedy else ["sampled"]


def evaluation_key(seed: int) -> Array:
    """Random numbers that no training uses."""
    return jax.random.fold_in(jax.random.key(seed), EVALUATION)


def evaluate_agents(agents: list[AgentHandle], episodes: int, seed: int, greedy: bool | None) -> Evaluation:
    """Agents of one run, or one alone."""
    examiner = make_examiner(agents[0], episodes)
    scores = examiner.scores(agents, evaluation_key(seed), ways_of(greedy))
    about = agents[0]._describe() if agents[0]._describe else None
    title = f"{shown(about.env)} · {shown(about.rule)}" if about else type(agents[0].environment).__name__
    drawn = about.env_options.get("randomise") if about else ""
    notes = [OTHER_LEVELS] * examiner.unseen + [f"drawn anew for every episode: {drawn}"] * bool(drawn)
    judged = [agent.skills(seed) for agent in agents]
    return Evaluation(title, scores, "; ".join(notes), [skills for skills in judged if skills])


# -- watching ------------------------------------------------------------------------------------------------------------------


def watchable(agent: AgentHandle) -> Environment | HostEnvironment:
    """The agent's environment, made anew where it is Gymnasium's and draws itself only if asked to."""
    innermost = agent.environment
    while isinstance(innermost, WrappedHost):
        innermost = innermost.environment
    about = agent._describe() if agent._describe else None
    if not isinstance(innermost, GymnasiumEnvironment) or about is None or "env" in about.custom:
        return agent.environment
    if not set_up(innermost.name, draws_itself, innermost):
        return agent.environment
    # In this process, where pictures can be taken.
    options = {name: value for name, value in about.env_options.items() if name != "processes"}
    return build.make_environment(about.env, {**options, "render_mode": "rgb_array"})


def draws_itself(environment: GymnasiumEnvironment) -> bool:
    """Whether it would make pictures."""
    probe = environment.make_env()
    draws = "rgb_array" in (probe.metadata or {}).get("render_modes", ())
    probe.close()
    return draws


# -- files ---------------------------------------------------------------------------------------------------------------------


def load_agent(
    path: str | Path,
    env: Any = None,
    rule: Any = None,
    env_options: dict[str, Any] | None = None,
    network: dict[str, Any] | None = None,
) -> AgentHandle:
    """An agent from its file: `rulax.load_agent("agent.safetensors").act(observation)`.

    Args:
        path: what `run.agent.save(path)` wrote.
        env: the environment, by name or as an object; needed where it was code of your own. Another one with the same
            observations and actions will do.
        rule: the `Recipe`, where the agent was made by code of your own (`Recipe.make_agent`).
        env_options: options of the environment that differ from the file's.
        network: settings of its network that name code of your own, such as `{"torso": "mine.py:Torso"}` or `{"torso": Torso}`.
    """
    if isinstance(env, str):
        env, inside = split_options(env)
        env_options = merge_options(env, inside, env_options or {}, "env_options")
    description, tensors = agent_file.read(path)
    build.start_jax("auto")
    if env is None and ("env" in description.custom or ":" in description.env):
        # A name with a colon is code to import, which a file that may come from anybody must not choose.
        raise UserError(
            f"the agent in {path} was trained in '{description.env}', which is code outside of Rulax: name it again, with --env on "
            "the command line or env=... in Python"
        )
    if env is None or isinstance(env, str):
        name = env or description.env
        kept = description.env_options if name == description.env else lasting_options(description.env_options)
        options = {**kept, **(env_options or {})}
        environment = build.make_environment(name, options)
        about = dataclasses.replace(description, env=name, env_options=options, custom=without(description.custom, "env"))
    else:
        with build.user_errors():
            environment = environment_of(env, environment_name(env), env_options or {})
        about = dataclasses.replace(description, custom=[*without(description.custom, "env"), "env"])
    # A network of the user's own becomes a name, as in `rulax.train`.
    named = {name: part if isinstance(part, str) else hold(name, part) for name, part in (network or {}).items()}  # type: ignore[arg-type]
    params, task = agent_file.restore(description, tensors, environment, path, getattr(rule, "make_agent", None), named)
    return AgentHandle(params, environment, task, lambda: about)


def without(words: list[str], word: str) -> list[str]:
    """The other words."""
    return [each for each in words if each != word]
