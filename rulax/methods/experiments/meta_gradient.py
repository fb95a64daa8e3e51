"""Experiments with meta-gradients: a delayed choice, in which a large discount pays, and two processes with exact answers."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents import Agent
from rulax.envs.base import Environment
from rulax.envs.choice import DelayedChoice
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.rollout import act, begin
from rulax.learning.train import COMPILE_FAST, CompiledTrainer, Trainer, TrainerConfig, TrainState
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.experiments.meta_gradient_mrp import MRP_EXPERIMENTS
from rulax.methods.loop import Loop
from rulax.methods.meta_gradient import MetaGradient, context_of, init_online_state, meta_update, online_problem
from rulax.rules.tunable import constants_of, parameters_of
from rulax.settings import Learning, Network
from rulax.types import Array, PyTree

TEST_SEED = 2018  # never a seed of training
FIXED = (0.6, 0.9, 0.99, 0.995, 0.998, 0.9995)  # discounts of the baselines
COMMON = 0.99  # the usual choice: returns are reported relative to it
LEAST_SHARE = 0.95  # of the best fixed discount's return: the second goal
LEARNING = Learning(streams=64, unroll=20, learning_rate=1e-3, clip_gradient=0.5, adam_eps=1e-5)
NETWORK = Network(hidden=(64, 64), activation="tanh")


@dataclasses.dataclass(frozen=True)
class DelayedChoiceSetup:
    """The environment, the agent, and what it is compared with."""

    environment: DelayedChoice
    updates: int
    learning: Learning = LEARNING
    network: Network = NETWORK
    fixed: tuple[float, ...] = FIXED
    test_episodes: int = 4096

    def method(self) -> MetaGradient:
        """The agent that learns its discount and trace."""
        return MetaGradient(self.environment, self.updates, self.learning, self.network)


class DelayedChoiceRun(SeedRun):
    """One seed: first the agent that learns its discount, then agents with fixed ones, all for equally many steps."""

    def __init__(self, suites: dict[Suite, DelayedChoiceSetup], suite: Suite, seed: int):
        self.setup, self.seed = suites[suite], seed
        self.method = self.setup.method()
        step = functools.partial(meta_update, online_problem(self.method), self.method.optimiser())
        self.loop = Loop(step, self.setup.updates)
        init = functools.partial(init_online_state, self.method)
        self.state = jax.jit(init, compiler_options=COMPILE_FAST)(jax.random.key(seed))
        self.trainer = self._make_trainer()
        self.fixed: TrainState | None = None  # state of the agent that is being trained with a fixed discount
        self.scores: dict[float, np.ndarray] = {}  # test returns of the fixed discounts that are done

    def _make_trainer(self) -> Trainer:
        learning = self.setup.learning
        config = TrainerConfig(1, self.setup.updates * learning.streams * learning.unroll)
        return CompiledTrainer(self.setup.environment, self.method.recipe({"discount": self.method.start[0]}), config)

    def _train_fixed(self) -> float:
        """Train with the next fixed discount for a second. It is an argument of the trainer's program, which compiles only once."""
        discount = self.setup.fixed[len(self.scores)]
        self.trainer.rule_params = parameters_of({"discount": discount})
        if self.fixed is None:
            # The same seed for every discount, so that agents differ in nothing else at the start.
            self.fixed = self.trainer.init(jax.random.key(self.seed))
        self.fixed, metrics = self.trainer.advance(self.fixed)
        if self.trainer.done(self.fixed):
            self.scores[discount] = play_episodes(self.setup, self.setup.environment, self.trainer.agent(self.fixed))
            self.fixed = None
        return float(metrics["episode_return"].sum() / max(metrics["episodes"].sum(), 1))

    def advance(self) -> Progress:
        if self.loop.done():
            value = self._train_fixed()
        else:
            self.state, metrics = self.loop.advance(self.state)
            value = metrics["episode_return"] / max(metrics["episodes"], 1e-9)
        each = self.setup.updates
        made = self.loop.made + each * len(self.scores) + (int(self.fixed.iteration) if self.fixed is not None else 0)
        steps = self.loop.made * self.setup.learning.streams * self.setup.learning.unroll  # without those of the baselines
        return Progress(made / (each * (1 + len(self.setup.fixed))), self.loop.made, steps, value)

    def done(self) -> bool:
        return self.loop.done() and len(self.scores) == len(self.setup.fixed)

    def test(self) -> Tested:
        constants = {name: float(value) for name, value in constants_of(self.state.meta_params).items()}
        agent = self.state.online.member.life.learner_state.params
        environment = self.method.family().environment
        assert isinstance(environment, Environment)
        tuned = play_episodes(self.setup, environment, agent, context_of(self.state.meta_params))
        return report_delayed_choice(self.setup, tuned, self.scores, constants)


def play_episodes(setup: DelayedChoiceSetup, environment: Environment, agent: Agent, context: Array | None = None) -> np.ndarray:
    """Returns of test episodes, one per stream, [episodes], of an agent that has stopped learning.

    `context` is what a `Conditioned` environment shows; None for the environment without it.
    """
    streams = make_streams(environment, setup.test_episodes)
    task = environment.default_task() if context is None else environment.default_task()._replace(context=context)

    @functools.partial(jax.jit, compiler_options=COMPILE_FAST)
    def run(agent: Agent, task: PyTree, key: Array) -> Array:
        key_env, key_act = jax.random.split(key)
        actor = begin(streams, task, agent.initial_memory(setup.test_episodes), key_env)
        _, _, episode = act(streams, agent, actor, setup.environment.longest + 1, key_act)
        first = jnp.argmax(episode.ended, 0)  # every stream ends an episode within the length of the longest
        return jnp.take_along_axis(episode.total, first[None], 0)[0]

    return np.asarray(run(agent, task, jax.random.key(TEST_SEED)))


def report_delayed_choice(
    setup: DelayedChoiceSetup, tuned: np.ndarray, scores: dict[float, np.ndarray], constants: dict[str, float]
) -> Tested:
    """The metric is the return of test episodes over the mean return with the usual fixed discount.

    Where no agents with fixed discounts were trained (quick), perfect agents take their place: their returns are known exactly.
    """
    start = setup.method().start[0]
    ideal = {discount: setup.environment.ideal_return(discount) for discount in FIXED}
    means = {discount: float(values.mean()) for discount, values in scores.items()} if scores else ideal
    common = means.get(COMMON, ideal[COMMON])
    best = max(means, key=lambda discount: means[discount])
    share = float(tuned.mean()) / means[best]
    details = {"return": float(tuned.mean()), "of the best fixed discount's return": share, WORST_MARGIN: share - LEAST_SHARE}
    details |= {"over that of the first discount": float(tuned.mean()) / means.get(start, ideal[start])}
    details |= {"best fixed discount": best} | {f"final {name}": value for name, value in constants.items()}
    details |= {f"ideal with discount {discount:g}": value for discount, value in ideal.items()}
    baselines = {f"discount {discount:g}": mean / common for discount, mean in means.items()}
    random = (1 + setup.environment.small) / 2 / common
    reference = Reference("the best fixed discount", means[best] / common, "baseline")
    return Tested(tuned / common, random, reference, baselines, details)


SETUPS: dict[Suite, DelayedChoiceSetup] = {
    "quick": DelayedChoiceSetup(
        DelayedChoice(longest=12),
        updates=300,
        learning=dataclasses.replace(LEARNING, learning_rate=3e-3),  # the delays are short
        fixed=(),
        test_episodes=1024,
    ),
    "full": DelayedChoiceSetup(DelayedChoice(), updates=2500),
}
EXPERIMENTS = (
    Experiment(
        method="meta_gradient",
        name="delayed-choice",
        about="a small reward now or a large one after up to 150 steps (quick: 12); the discount begins at 0.6",
        metric="return, over that of a fixed discount of 0.99",
        goal=1.12,
        quick_goal=0.95,  # of a perfect learner's return with 0.99, which is the maximum here: delays are short; chance is 0.8
        start=functools.partial(DelayedChoiceRun, SETUPS),
        minutes=5,
    ),
    *MRP_EXPERIMENTS,
)
