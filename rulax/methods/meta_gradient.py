"""Meta-gradient reinforcement learning: an agent's discount and trace are learned within its one life (Xu et al. 2018).

    theta' = theta + f(batch, theta, eta),   eta -= beta dJ'(next batch, theta') / d eta,   eta = (discount, trace)

The return that an agent learns from depends on eta, and so do its new parameters; what they do next, judged with a fixed
reference discount, says in which direction eta should move. Then the next batch is learned from, and so on: that is discovery
(`rulax/discovery`) with one agent, a window of one update, and a rule of two parameters (`rulax/rules/tunable.py`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.discovery.critic import improve, judge
from rulax.discovery.estimators import Problem, backprop, split_life_key
from rulax.discovery.memory import Updates, make_updates
from rulax.discovery.meta_optimiser import make_meta_optimiser
from rulax.discovery.objectives import by_policy_gradient, validation_reward
from rulax.discovery.population import Family, Member, init_member
from rulax.discovery.settings import Discovery
from rulax.discovery.window import Record, Window, collect, describe
from rulax.envs.base import Environment
from rulax.envs.choice import DelayedChoice
from rulax.envs.conditioned import Conditioned, ConditionedTask
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.life import make_learner
from rulax.learning.rollout import act, begin
from rulax.learning.train import COMPILE_FAST, CompiledTrainer, TrainerConfig
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Published, Reference, Study, Suite, Tested
from rulax.methods.loop import Loop
from rulax.methods.meta_gradient_mrp import MRP_EXPERIMENTS
from rulax.rules.actor_critic import actor_critic
from rulax.rules.base import Recipe
from rulax.rules.tunable import constants_of, parameters_of, tunable
from rulax.settings import Learning, Network
from rulax.types import Array, Experience, Metrics, PyTree
from rulax.values.two_hot import Bins

TEST_SEED = 2018  # never a seed of training
TOLD = 5.0  # logits are told in this unit: from 0.4 to 6 is from a discount of 0.6 to 0.9975
FIXED = (0.6, 0.9, 0.99, 0.995, 0.998, 0.9995)
COMMON = 0.99
LEAST_SHARE = 0.95  # of the best fixed discount's return: the second goal
BINS = Bins(41, 4.0)  # returns are at most 1
LEARNING = Learning(streams=64, unroll=20, learning_rate=1e-3, clip_gradient=0.5, adam_eps=1e-5)
QUICK = dataclasses.replace(LEARNING, learning_rate=3e-3)  # the delays are short
NETWORK = Network(hidden=(64, 64), activation="tanh")


class Online(NamedTuple):
    """An agent in its life, and the batch that it has lived but not yet learned from."""

    member: Member
    pending: Experience


class State(NamedTuple):
    """Everything that changes."""

    meta_params: PyTree
    optimiser_state: PyTree
    online: Online


@dataclasses.dataclass(frozen=True)
class Setting:
    """An environment, its learner, and the learner of its constants."""

    world: DelayedChoice
    updates: int
    tuned: tuple[str, ...] = ("discount", "trace")
    start: tuple[float, ...] = (0.6, 0.95)
    fixed: tuple[float, ...] = FIXED  # discounts to compare with
    test_episodes: int = 4096
    entropy_cost: float = 0.03
    meta_learning_rate: float = 0.05
    reference_discount: float = 0.9995
    learning: Learning = LEARNING
    network: Network = NETWORK

    def recipe(self, start: Mapping[str, float]) -> Recipe:
        """Actor-critic with some of its constants among the rule's parameters."""
        rule = tunable(actor_critic, *start, start=start, entropy_cost=self.entropy_cost, normalise_advantages=False, bins=BINS)
        return Recipe(rule, self.learning, self.network)

    def family(self) -> Family:
        """The agent in an environment that tells it its constants, and by what it is judged: the policy gradient and nothing
        else."""
        settings = Discovery(
            agents=1,
            window=1,
            validation_unroll=self.learning.unroll,
            lifetimes=(self.updates,),
            meta_learning_rate=self.meta_learning_rate,
            policy_entropy_cost=0.0,
            critic_hidden=(64, 64),
            critic_learning_rate=self.learning.learning_rate,
            critic_discount=self.reference_discount,
            critic_trace=0.95,
            critic_learns_from="validation",
        )
        world = Conditioned(self.world, len(self.tuned))
        return Family("meta_gradient", world, self.recipe(dict(zip(self.tuned, self.start, strict=True))), settings)


def online_problem(family: Family, updates: int) -> Problem[Online, Window]:
    """Online cross-validation: learn from the batch at hand, act, judge by what happened, which is the next batch."""
    world, settings, judged = family.environment, family.settings, by_policy_gradient(family)
    assert isinstance(world, Conditioned)

    def enter(meta_params: PyTree, online: Online) -> tuple[PyTree, Online]:
        context = jax.lax.stop_gradient(jnp.stack(jax.tree.leaves(meta_params)) / TOLD)  # what an agent knows is data
        actor = online.member.life.actor
        actor = actor._replace(task=actor.task._replace(context=context), observation=world.recondition(actor.observation, context))
        pending = online.pending._replace(observation=world.recondition(online.pending.observation, context))
        member = online.member._replace(life=online.member.life._replace(actor=actor))
        return meta_params, Online(member, pending)

    def live(updates: Updates, rule_params: PyTree, online: Online) -> tuple[Online, Window, Metrics]:
        member, before = online.member, online.member.life.learner_state
        key_life, key_update = jax.random.split(member.life.key)
        learner, learned, _ = updates.one(rule_params, before, online.pending, key_update)
        member = member._replace(life=member.life._replace(learner_state=learner, key=key_life), age=member.age + 1)
        member, rollout = collect(family, member)
        fresh, acted = rollout.fresh, rollout.episodes
        judgement = judge(settings, member.critic, fresh, fresh.behaviour)
        critic, _ = improve(settings, member.critic, fresh, fresh.behaviour)
        record = Record(before, jax.tree.map(lambda x: x[None], online.pending), key_update[None])
        window = Window(learner.params, {}, fresh, judgement.normalised_advantage, record)
        metrics = describe({name: value[None] for name, value in (learned | acted).items()}, fresh, acted)
        return Online(member._replace(critic=critic), rollout.learned_from), window, metrics

    def split_key(online: Online) -> tuple[Online, Array]:
        member, key = split_life_key(online.member)
        return online._replace(member=member), key

    learner = make_learner(family.recipe, updates)
    return Problem(
        enter=enter,
        live=live,
        updates=make_updates(learner, "plain"),
        judge=judged,
        fitness=validation_reward,
        split_key=split_key,
    )


class Tuning(Study):
    """One seed: first the agent that learns its discount, then agents with fixed ones, all for equally many steps."""

    def __init__(self, settings: dict[Suite, Setting], suite: Suite, seed: int):
        self.setting, self.seed = settings[suite], seed
        self.family = self.setting.family()
        self.problem = online_problem(self.family, self.setting.updates)
        self.optimiser = make_meta_optimiser(self.family.settings, self.setting.updates)
        self.loop = Loop(self._meta_step, self.setting.updates)
        self.state = jax.jit(self._start, compiler_options=COMPILE_FAST)(jax.random.key(seed))
        self.trainer = self._trainer()
        self.fixed: Any = None  # the state of the agent that is being trained with a fixed discount
        self.scores: dict[float, np.ndarray] = {}

    # -- the agent that learns its constants ------------------------------------------------------------------------------------

    def _start(self, key: Array) -> State:
        key_rule, key_member = jax.random.split(key)
        meta_params = self.family.recipe.rule.init(key_rule)
        member = init_member(self.family, key_member)
        task = ConditionedTask(self.setting.world.default_task(), jnp.stack(jax.tree.leaves(meta_params)) / TOLD)
        actor = begin(self.family.streams, task, member.life.actor.memory, key_member)
        member = member._replace(life=member.life._replace(actor=actor))
        member, rollout = collect(self.family, member)
        return State(meta_params, self.optimiser.init(meta_params, 1), Online(member, rollout.learned_from))

    def _meta_step(self, state: State) -> tuple[State, Metrics]:
        grads, online, metrics = backprop(self.problem, state.meta_params, state.online)
        each = jax.tree.map(lambda x: x[None], grads)
        meta_params, optimiser_state, _ = self.optimiser.step(state.meta_params, state.optimiser_state, each)
        shown = {name: metrics[name] for name in ("episodes", "episode_return")} | constants_of(meta_params)
        return State(meta_params, optimiser_state, online), shown

    # -- agents with fixed constants --------------------------------------------------------------------------------------------

    def _trainer(self) -> CompiledTrainer:
        steps = self.setting.updates * self.setting.learning.streams * self.setting.learning.unroll
        start = dict(zip(self.setting.tuned, self.setting.start, strict=True))
        return CompiledTrainer(self.setting.world, self.setting.recipe({"discount": start["discount"]}), TrainerConfig(1, steps))

    def _train_fixed(self) -> float:
        """One second of the next fixed discount. The discount is an argument of the trainer's program, compiled once."""
        discount = self.setting.fixed[len(self.scores)]
        self.trainer.rule_params = parameters_of({"discount": discount})
        if self.fixed is None:
            self.fixed = self.trainer.init(jax.random.key(self.seed))
        self.fixed, metrics = self.trainer.advance(self.fixed)
        if self.trainer.done(self.fixed):
            self.scores[discount] = play(self.setting, self.setting.world, self.trainer.agent(self.fixed))
            self.fixed = None
        return float(metrics["episode_return"].sum() / max(metrics["episodes"].sum(), 1))

    # -- both ---------------------------------------------------------------------------------------------------------------------

    def advance(self) -> Progress:
        if self.loop.done():
            value = self._train_fixed()
        else:
            self.state, metrics = self.loop.advance(self.state)
            value = metrics["episode_return"] / max(metrics["episodes"], 1e-9)
            self.shown = metrics
        each = self.setting.updates
        made = self.loop.made + each * len(self.scores) + (int(self.fixed.iteration) if self.fixed is not None else 0)
        steps = self.loop.made * self.setting.learning.streams * self.setting.learning.unroll  # without those of the baselines
        return Progress(made / (each * (1 + len(self.setting.fixed))), self.loop.made, steps, value)

    def done(self) -> bool:
        return self.loop.done() and len(self.scores) == len(self.setting.fixed)

    def test(self) -> Tested:
        constants = {name: float(value) for name, value in constants_of(self.state.meta_params).items()}
        context = jnp.stack(jax.tree.leaves(self.state.meta_params)) / TOLD
        tuned = play(self.setting, self.family.environment, self.state.online.member.life.learner_state.params, context)
        return judged(self.setting, tuned, self.scores, constants)


def judged(setting: Setting, tuned: np.ndarray, scores: dict[float, np.ndarray], constants: dict[str, float]) -> Tested:
    """Returns of test episodes, over the mean return of the fixed discount that everybody takes.

    Where no agents with fixed discounts were trained (quick), those that know everything stand in: what they get is known.
    """
    ideal = {discount: setting.world.ideal_return(discount) for discount in FIXED}
    means = {discount: float(values.mean()) for discount, values in scores.items()} if scores else ideal
    common = means.get(COMMON, ideal[COMMON])
    best = max(means, key=lambda discount: means[discount])
    share = float(tuned.mean()) / means[best]
    details = {"return": float(tuned.mean()), "of the best fixed discount's return": share, WORST_MARGIN: share - LEAST_SHARE}
    details |= {"over that of the first discount": float(tuned.mean()) / means.get(setting.start[0], ideal[setting.start[0]])}
    details |= {"best fixed discount": best} | {f"final {name}": value for name, value in constants.items()}
    details |= {f"ideal with discount {discount:g}": value for discount, value in ideal.items()}
    others = {f"discount {discount:g}": mean / common for discount, mean in means.items()}
    random = (1 + setting.world.small) / 2 / common
    return Tested(tuned / common, random, Reference("the best fixed discount", means[best] / common, "baseline"), others, details)


def play(setting: Setting, world: Environment, agent: PyTree, context: Array | None = None) -> np.ndarray:
    """The returns of test episodes, one per stream, of an agent that learns no more."""
    streams = make_streams(world, setting.test_episodes)
    task = world.default_task() if context is None else world.default_task()._replace(context=context)

    @functools.partial(jax.jit, compiler_options=COMPILE_FAST)
    def run(agent: PyTree, task: PyTree, key: Array) -> Array:
        key_env, key_act = jax.random.split(key)
        actor = begin(streams, task, agent.initial_memory(setting.test_episodes), key_env)
        _, _, episode = act(streams, agent, actor, setting.world.longest + 1, key_act)
        first = jnp.argmax(episode.ended, 0)  # every stream ends an episode within the time of the longest
        return jnp.take_along_axis(episode.total, first[None], 0)[0]

    return np.asarray(run(agent, task, jax.random.key(TEST_SEED)))


SETTINGS: dict[Suite, Setting] = {
    "quick": Setting(DelayedChoice(longest=12), 300, fixed=(), test_episodes=1024, learning=QUICK),
    "full": Setting(DelayedChoice(), 2500),
}
EXPERIMENTS = (
    Experiment(
        "meta_gradient",
        "delayed-choice",
        "a small reward now or a large one after up to 150 steps (quick: 12); the discount begins at 0.6",
        "return, over that of a fixed discount of 0.99",
        1.12,
        0.95,  # of what a perfect learner with 0.99 gets, which is all there is: delays are short here; chance is 0.8
        functools.partial(Tuning, SETTINGS),
        Published(287.6 / 257.1, "Xu et al. 2018, 57 Atari games, median, meta-learned over fixed 0.995", "M"),
        minutes=5,
    ),
    *MRP_EXPERIMENTS,
)
