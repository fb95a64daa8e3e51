"""Meta-gradient reinforcement learning: an agent's discount and trace are learned within its one lifetime (Xu et al. 2018).

    theta' = theta + f(batch, theta, eta),   eta -= beta dJ'(next batch, theta') / d eta,   eta = (discount, trace)

The return that an agent learns from depends on eta, and so do its new parameters. How well they do on the next batch, measured
with a fixed reference discount, says in which direction eta should move; then the agent learns from that batch, and so on. This is
discovery (`rulax/discovery`) with one agent, a window of one update, and a rule of two parameters (`rulax/rules/tunable.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.discovery.critic import improve, judge
from rulax.discovery.estimators import Problem, backprop, split_life_key
from rulax.discovery.memory import Updates, make_updates
from rulax.discovery.meta_optimiser import MetaOptimiser, make_meta_optimiser
from rulax.discovery.objectives import by_policy_gradient, validation_reward
from rulax.discovery.population import Family, Member, init_member
from rulax.discovery.settings import Discovery
from rulax.discovery.window import Record, Window, collect_member, describe
from rulax.envs.base import Environment
from rulax.envs.conditioned import Conditioned, ConditionedTask
from rulax.learning.life import make_learner
from rulax.learning.rollout import begin
from rulax.rules.actor_critic import actor_critic
from rulax.rules.base import Recipe
from rulax.rules.tunable import constants_of, tunable
from rulax.settings import Learning, Network
from rulax.types import Array, Experience, Metrics, PyTree
from rulax.values.two_hot import Bins

CONTEXT_SCALE = 5.0  # logits from 0.4 to 6, a discount of 0.6 to 0.9975, become inputs of about one
BINS = Bins(41, 4.0)  # returns are at most 1


@dataclasses.dataclass(frozen=True)
class MetaGradient:
    """An agent in its environment, and how the constants of its rule are learned."""

    environment: Environment
    updates: int  # of a lifetime
    learning: Learning
    network: Network
    tuned: tuple[str, ...] = ("discount", "trace")
    start: tuple[float, ...] = (0.6, 0.95)  # their initial values
    entropy_cost: float = 0.03
    meta_learning_rate: float = 0.05
    reference_discount: float = 0.9995  # of J', the objective on the next batch

    def recipe(self, start: Mapping[str, float] | None = None) -> Recipe:
        """Actor-critic whose constants named in `start` are parameters of the rule; by default all that are tuned."""
        start = dict(zip(self.tuned, self.start, strict=True)) if start is None else start
        rule = tunable(actor_critic, *start, start=start, entropy_cost=self.entropy_cost, normalise_advantages=False, bins=BINS)
        return Recipe(rule, self.learning, self.network)

    def family(self) -> Family:
        """A population of one agent, which observes its own constants. J' is the plain policy gradient, without regularisers."""
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
        # The right value of a state depends on the discount, so a value function has to know which one it is for.
        return Family("meta_gradient", Conditioned(self.environment, len(self.tuned)), self.recipe(), settings)

    def optimiser(self) -> MetaOptimiser:
        """Adam on the logits of the constants."""
        return make_meta_optimiser(self.family().settings, self.updates)


class Online(NamedTuple):
    """An agent in the middle of its lifetime, and the batch that it has collected but not yet learned from."""

    member: Member
    pending: Experience


class OnlineState(NamedTuple):
    """Everything that a meta-update changes."""

    meta_params: PyTree  # logits of the constants
    optimiser_state: PyTree
    online: Online


def init_online_state(method: MetaGradient, key: Array) -> OnlineState:
    """A new agent that has collected its first batch."""
    family = method.family()
    key_rule, key_member, key_env = jax.random.split(key, 3)
    meta_params = family.recipe.rule.init(key_rule)
    member = init_member(family, key_member)
    task = ConditionedTask(method.environment.default_task(), context_of(meta_params))
    actor = begin(family.streams, task, member.life.actor.memory, key_env)
    member = member._replace(life=member.life._replace(actor=actor))
    member, rollout = collect_member(family, member)
    return OnlineState(meta_params, method.optimiser().init(meta_params, 1), Online(member, rollout.learned_from))


def meta_update(problem: Problem, optimiser: MetaOptimiser, state: OnlineState) -> tuple[OnlineState, Metrics]:
    """One update of the agent, and one of its constants: learn, act, differentiate the outcome, move the constants."""
    grads, online, metrics = backprop(problem, state.meta_params, state.online)
    # The optimiser expects an axis of agents.
    of_one_agent = jax.tree.map(lambda x: x[None], grads)
    meta_params, optimiser_state, _ = optimiser.step(state.meta_params, state.optimiser_state, of_one_agent)
    logged = {name: metrics[name] for name in ("episodes", "episode_return")} | constants_of(meta_params)
    return OnlineState(meta_params, optimiser_state, online), logged


def context_of(meta_params: PyTree) -> Array:
    """The constants as the agent observes them, [n]."""
    return jnp.stack(jax.tree.leaves(meta_params)) / CONTEXT_SCALE


def online_problem(method: MetaGradient) -> Problem[Online, Window]:
    """Online cross-validation: learn from the pending batch, act, and judge by that new experience, which is pending next."""
    family = method.family()
    environment, settings = family.environment, family.settings
    assert isinstance(environment, Conditioned)

    def enter(meta_params: PyTree, online: Online) -> tuple[PyTree, Online]:
        context = jax.lax.stop_gradient(context_of(meta_params))  # observations are data
        actor = online.member.life.actor
        task, observation = actor.task._replace(context=context), environment.recondition(actor.observation, context)
        # The batch was collected under the constants before; the values learned from it have to be those for the present ones.
        pending = online.pending._replace(observation=environment.recondition(online.pending.observation, context))
        life = online.member.life._replace(actor=actor._replace(task=task, observation=observation))
        return meta_params, Online(online.member._replace(life=life), pending)

    def live(updates: Updates, rule_params: PyTree, online: Online) -> tuple[Online, Window, Metrics]:
        member, before = online.member, online.member.life.learner_state
        key_life, key_update = jax.random.split(member.life.key)
        state, learned, _ = updates.one(rule_params, before, online.pending, key_update)
        member = member._replace(life=member.life._replace(learner_state=state, key=key_life), age=member.age + 1)
        member, rollout = collect_member(family, member)
        fresh, acted = rollout.fresh, rollout.episodes
        judgement = judge(settings, member.critic, fresh, fresh.behaviour)
        # After the judgement, so that its advantages come from a critic that has not seen this batch.
        critic, _ = improve(settings, member.critic, fresh, fresh.behaviour)
        # A window of one update, hence the axes of length 1.
        record = Record(before, jax.tree.map(lambda x: x[None], online.pending), key_update[None])
        window = Window(state.params, {}, fresh, judgement.normalised_advantage, record)
        # The only rollout is the one that validates, so there are no other episodes to add to its own.
        of_updates = learned | {name: jnp.zeros_like(value) for name, value in acted.items()}
        metrics = describe({name: value[None] for name, value in of_updates.items()}, fresh, acted)
        return Online(member._replace(critic=critic), rollout.learned_from), window, metrics

    def split_key(online: Online) -> tuple[Online, Array]:
        member, key = split_life_key(online.member)
        return online._replace(member=member), key

    learner = make_learner(family.recipe, method.updates)
    return Problem(
        enter=enter,
        live=live,
        updates=make_updates(learner, "plain"),
        judge=by_policy_gradient(family),
        fitness=validation_reward,
        split_key=split_key,
    )
