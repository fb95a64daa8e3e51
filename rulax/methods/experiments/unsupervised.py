"""Experiments of unsupervised meta-RL: a point in a box finds goals, after learning over tasks that the box made of itself.

Each seed finds skills first (DIAYN), then trains one agent on tasks of their discriminator, one on those of a random one and one on
true goals, all from the same weights and for as long; and tests them, and the untrained one, on goals that no training used.
"""

from __future__ import annotations

import abc
import functools
from typing import NamedTuple, Protocol

import jax
import numpy as np

from rulax.agents.base import Agent
from rulax.envs.base import Environment
from rulax.envs.point import Box, PointTask, best_return, box
from rulax.envs.wrappers import Binned, TimeLimit
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.rollout import act, begin
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.methods.adaptation import environment_tasks
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.experiments.adaptation import (
    TEST_UPDATES,
    AdaptationRun,
    AdaptationSetup,
    AdaptationTest,
    PolicySizes,
    Scores,
    gap_closed,
    init_gaussian,
    policy_cost,
    policy_learner,
    policy_optimiser,
    sampled_tasks,
)
from rulax.methods.loop import advance_trainer
from rulax.methods.maml import MAML, meta_update
from rulax.methods.rl2 import RL2
from rulax.methods.unsupervised import (
    LogDiscriminator,
    discriminator_of,
    earned_by_chance,
    in_units_of_chance,
    random_discriminator,
    skill_trainer,
    with_discriminator,
)
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.types import Array, strong

DIAYN, RANDOM, TRUE, SCRATCH = "DIAYN", "random", "true", "scratch"
SHARE = 0.85  # goal: of the gap that learning over true goals closes
TIMES = 1.5  # goal: what random discriminators gain over the gain of an untrained agent


class SkillSizes(NamedTuple):
    """How tasks are made."""

    number: int = 50  # of skills, and of the tasks that their discriminator makes
    steps: int = 1_000_000  # of DIAYN
    # Of DIAYN's discriminator. With the recommended ones (64 and 1e-3) nearly all skills end at a wall, and a task that is about
    # the way to a wall teaches nothing about goals before it.
    hidden: int = 256
    rate: float = 3e-3
    random: int = 20  # tasks of the random discriminator


class Learner(Protocol):
    """One agent that learns over tasks."""

    initial: Agent  # before its first update

    def agent(self) -> Agent:
        """As it is now."""

    def advance(self) -> Progress:
        """Train for about a second."""

    def done(self) -> bool:
        """Whether it is trained."""


class Stages(SeedRun):
    """One seed: DIAYN, then one learner after the other, each with tasks from elsewhere."""

    def __init__(self, sizes: SkillSizes, learners: tuple[str, ...], seed: int):
        self.sizes, self.seed, self.wanted = sizes, seed, learners
        self.key_skills, self.key_random = jax.random.split(jax.random.key(seed))
        discriminator = {"discriminator_hidden": sizes.hidden, "discriminator_rate": sizes.rate}
        self.trainer = skill_trainer(box(), sizes.number, sizes.steps, Box.horizon, **discriminator)
        self.state = self.trainer.init(self.key_skills)
        self.learners: dict[str, Learner] = {}
        self.latest: dict[str, Progress] = {}

    @abc.abstractmethod
    def learner(self, name: str) -> Learner:
        """A learner with tasks of its own."""

    def discriminator(self, name: str) -> LogDiscriminator:
        """Where the tasks of a learner come from."""
        if name == DIAYN:
            return discriminator_of(self.trainer.agent(self.state))
        return random_discriminator(self.key_random, Box.observation, self.sizes.random)

    def advance(self) -> Progress:
        if not self._has_skills():
            self.state, _ = self.trainer.advance(self.state)
            return self._progress(self.trainer.steps(self.state) / self.trainer.config.total_steps, float("nan"))
        name = next(each for each in self.wanted if each not in self.learners or not self.learners[each].done())
        if name not in self.learners:
            self.learners[name] = self.learner(name)
        self.latest[name] = found = self.learners[name].advance()
        # What the others are paid is counted in other units.
        return self._progress(1.0, found.value if name == self.wanted[0] else float("nan"))

    def _progress(self, skills: float, value: float) -> Progress:
        made = self.latest.values()
        share = (min(skills, 1.0) + sum(each.fraction for each in made)) / (1 + len(self.wanted))
        steps = self.trainer.steps(self.state) + sum(each.env_steps for each in made)
        return Progress(share, sum(each.meta_updates for each in made), steps, value)

    def begun(self) -> dict[str, Learner]:
        """All learners that have begun; where a run was cut short before that, the first as it would begin."""
        return self.learners or {self.wanted[0]: self.learner(self.wanted[0])}

    def done(self) -> bool:
        return self._has_skills() and all(each in self.learners and self.learners[each].done() for each in self.wanted)

    def _has_skills(self) -> bool:
        return DIAYN not in self.wanted or self.trainer.done(self.state)


# -- MAML -------------------------------------------------------------------------------------------------------------------------

MAML_SIZES = {
    "quick": PolicySizes(total=60, tasks=10, trajectories=10, hidden=(32, 32), meta_rate=5e-3, tested=100, chunk=10),
    # The deviation of actions as for MAML on the point, which found why (`policy_optimiser`); on a seed of validation.
    "full": PolicySizes(total=150, hidden=(64, 64), deviation_rate=3.0),
}
SKILL_SIZES = {"quick": SkillSizes(), "full": SkillSizes()}
MAML_LEARNERS = {"quick": (RANDOM,), "full": (DIAYN, RANDOM, TRUE)}


class MAMLLearner(AdaptationRun):
    """An initialisation."""

    def agent(self) -> Agent:
        """The one that three updates start from."""
        return self.state.meta_params


class MAMLStages(Stages):
    """MAML over tasks of different origin, judged by what three updates gain on goals."""

    def __init__(self, suite: Suite, seed: int):
        super().__init__(SKILL_SIZES[suite], MAML_LEARNERS[suite], seed)
        self.policy = MAML_SIZES[suite]
        self.maml = maml_setup(Box(), self.policy)  # over true goals; its test is that of all learners

    def learner(self, name: str) -> Learner:
        setup = self.maml if name == TRUE else maml_setup(with_discriminator(Box(), self.discriminator(name)), self.policy)
        return MAMLLearner(setup, self.seed)

    def scores(self) -> Scores:
        """Returns [goals, updates + 1] on test goals of all learners that have begun, and of the weights that all began with."""
        tester = MAMLLearner(self.maml, self.seed)
        agents = {name: run.agent() for name, run in self.begun().items()} | {SCRATCH: tester.initial}
        return {name: tester.scores(agent) for name, agent in agents.items()}

    def test(self) -> Tested:
        return self.maml.report(self.scores(), sampled_tasks(self.maml.test))


def maml_setup(environment: Environment, sizes: PolicySizes) -> AdaptationSetup:
    """MAML over the tasks of an environment, and its test on goals in the box."""
    learner, optimiser = policy_learner(sizes), policy_optimiser(sizes)
    tasks = environment_tasks(environment, Box.horizon, sizes.trajectories)
    outer, init = likelihood_ratio(clip=sizes.clip), init_gaussian(Box(), sizes)
    method = MAML(tasks, learner, outer, optimiser, sizes.tasks, sizes.updates, sizes.epochs, memory="mixed")
    goals = environment_tasks(Box(), Box.horizon, 2 * sizes.trajectories)
    return AdaptationSetup(
        init_agent=lambda key: strong(init(key)),  # with weak types the second chunk would compile again
        meta_update=functools.partial(meta_update, method),
        optimiser=optimiser,
        total=sizes.total,
        cost=policy_cost(Box(), sizes),
        test=AdaptationTest(goals, learner, TEST_UPDATES, sizes.tested),
        report=report_updates,
        chunk=sizes.chunk,
    )


def report_updates(scores: Scores, tasks: PointTask) -> Tested:
    """What three updates gain, of the gap between each agent's own return without any and that of who sees the goal."""
    best = float(jax.vmap(functools.partial(best_return, Box()))(tasks).mean())
    closed = {name: gap_closed(values, best, TEST_UPDATES) for name, values in scores.items()}
    gained = {name: float((values[:, TEST_UPDATES] - values[:, 0]).mean()) for name, values in scores.items()}
    details = {f"{name}_{n}": float(value) for name, values in scores.items() for n, value in enumerate(values.mean(0))}
    if RANDOM in gained:
        details["random over scratch"] = gained[RANDOM] / gained[SCRATCH]
    return compared(closed, details | {"sees the goal": best}, {"random over scratch": TIMES})


def compared(closed: dict[str, np.ndarray], details: dict[str, float], least: dict[str, float]) -> Tested:
    """The result, from what share of the gap each learner closes on each goal [goals].

    The metric is the share that DIAYN's tasks lead to (without them, a random discriminator's), over that of true goals (without
    these, of the whole gap). The details hold the worst margin over all goals: of `least`, by name, as a share of each, and of the
    order of learners.
    """
    mean = {name: float(values.mean()) for name, values in closed.items()}
    whole, judged = mean.get(TRUE, 1.0), DIAYN if DIAYN in mean else RANDOM
    details |= {f"{name} closed": value for name, value in mean.items()}
    if {DIAYN, RANDOM, TRUE} <= set(mean):  # all that the goals are about: a run that was cut short lacks some
        margins = [mean[DIAYN] / whole / SHARE - 1, mean[DIAYN] - mean[RANDOM], mean[RANDOM] - mean[SCRATCH]]
        details[WORST_MARGIN] = min(margins + [details[name] / value - 1 for name, value in least.items()])
    baselines = {name: value / whole for name, value in mean.items() if name not in (judged, TRUE)}
    reference = Reference("learned over true goals", 1.0, "baseline") if TRUE in mean else Reference("sees the goal", 1.0, "exact")
    return Tested(closed[judged] / whole, baselines[SCRATCH], reference, baselines, details)


# -- RL² --------------------------------------------------------------------------------------------------------------------------

EPISODES, STEPS = 3, 20  # of a trial; of an episode, in which any goal is five steps away
CHANCE_SEED = 1  # of the random actions by which units of reward are found
TEST_SEED = 1806_04640  # never a seed of training


class TrialSizes(NamedTuple):
    """Sizes of RL²."""

    updates: int
    streams: int = 128
    memory: int = 64
    learning_rate: float = 3e-3
    tested: int = 2000  # goals


# Not longer: a memory that meets the same 50 tasks again and again learns them by heart, and does worse on goals. On other goals,
# and with another seed, than those of the results, 80 updates closed 0.71 of the gap, 200 closed 0.58.
TRIAL_SIZES = {"quick": TrialSizes(30, memory=32, tested=500), "full": TrialSizes(80)}
TRIAL_SKILLS = {"quick": SkillSizes(20, 60_000, 64), "full": SkillSizes(random=50)}
TRIAL_LEARNERS = {"quick": (DIAYN,), "full": (DIAYN, RANDOM, TRUE)}


class RL2Learner:
    """A recurrent agent, and the environment whose tasks it is trained on, in units of what random actions earn there."""

    def __init__(self, environment: Environment, sizes: TrialSizes, seed: int):
        rl2 = trials_of(environment, sizes)
        config = TrainerConfig(1, sizes.updates * sizes.streams * rl2.steps)
        self.trainer = CompiledTrainer(rl2.trials(), rl2.recipe(), config)
        self.state = self.trainer.init(jax.random.key(seed))
        self.initial = self.agent()

    def advance(self) -> Progress:
        self.state, progress = advance_trainer(self.trainer, self.state)
        return progress

    def done(self) -> bool:
        return self.trainer.done(self.state)

    def agent(self) -> Agent:
        """As it is now."""
        return self.trainer.agent(self.state)


def trials_of(environment: Environment, sizes: TrialSizes) -> RL2:
    """The trials of an environment's tasks, and how an agent learns from them."""
    limited = TimeLimit(in_units_of_chance(environment, STEPS, jax.random.key(CHANCE_SEED)), STEPS)
    return RL2(
        environment=lambda: limited,
        steps=EPISODES * STEPS,
        updates=sizes.updates,
        streams=sizes.streams,
        episodes=EPISODES,
        memory=sizes.memory,
        discount=0.9,
        learning_rate=sizes.learning_rate,
    )


class RL2Stages(Stages):
    """RL² over tasks of different origin, judged by the last episode of a trial."""

    def __init__(self, suite: Suite, seed: int):
        super().__init__(TRIAL_SKILLS[suite], TRIAL_LEARNERS[suite], seed)
        self.trial_sizes = TRIAL_SIZES[suite]

    def learner(self, name: str) -> Learner:
        made = Binned(Box())
        return RL2Learner(made if name == TRUE else with_discriminator(made, self.discriminator(name)), self.trial_sizes, self.seed)

    def returns(self) -> tuple[Scores, PointTask]:
        """Returns [goals, episodes] on test goals of all learners that have begun and of an untrained one, and the goals."""
        begun = self.begun()
        agents = {name: run.agent() for name, run in begun.items()} | {SCRATCH: next(iter(begun.values())).initial}
        trials = trials_of(Binned(Box()), self.trial_sizes).trials()
        mean, deviation = earned_by_chance(Binned(Box()), STEPS, jax.random.key(CHANCE_SEED))
        streams = make_streams(trials, self.trial_sizes.tested)

        @jax.jit
        def play(agent: Agent, key: Array) -> tuple[Array, PointTask]:
            key_env, key_act = jax.random.split(key)
            actor = begin(streams, trials.default_task(), agent.initial_memory(self.trial_sizes.tested), key_env)
            _, experience, _ = act(streams, agent, actor, EPISODES * STEPS, key_act)
            paid = experience.reward * deviation + mean  # as the box pays
            # The states before acting: after a trial another goal is drawn.
            return paid.reshape(EPISODES, STEPS, -1).sum(1).T, actor.env_state.stream.env_state.task

        found = {name: play(agent, jax.random.key(TEST_SEED)) for name, agent in agents.items()}
        return {name: np.asarray(returns) for name, (returns, _) in found.items()}, found[SCRATCH][1]

    def test(self) -> Tested:
        return report_trials(*self.returns())


def report_trials(returns: Scores, goals: PointTask) -> Tested:
    """How much of the gap between an untrained agent and one that sees the goal the last episode of a trial closes."""
    taken = Box.stride * np.arange(1, STEPS + 1)
    left = np.maximum(np.abs(np.asarray(goals.goal))[:, :, None] - taken, 0.0)  # [goals, 2, steps]
    best, zero = float(-np.sqrt(np.square(left).sum(1)).sum(-1).mean()), float(returns[SCRATCH].mean())
    closed = {name: (values[:, -1] - zero) / (best - zero) for name, values in returns.items()}
    details = {f"{name}_{n}": float(value) for name, values in returns.items() for n, value in enumerate(values.mean(0), 1)}
    return compared(closed, details | {"sees the goal": best}, {})


# -- the list ---------------------------------------------------------------------------------------------------------------------

EXPERIMENTS = (
    Experiment(
        method="unsupervised",
        name="maml",
        about="MAML over tasks of DIAYN's discriminator (quick: a random one), tested on goals in a box",
        metric="share of the gap closed by 3 updates, over that of MAML on true goals (quick: of the whole gap)",
        goal=SHARE,
        quick_goal=0.4,
        start=MAMLStages,
        minutes=4.0,
    ),
    Experiment(
        method="unsupervised",
        name="rl2",
        about="RL² over tasks of DIAYN's discriminator, tested on goals in a box",
        metric="share of the gap closed by the third episode, over that of RL² on true goals (quick: of the whole gap)",
        goal=SHARE,
        quick_goal=0.15,
        start=RL2Stages,
        minutes=4.0,
    ),
)
