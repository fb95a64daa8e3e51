"""N updates of one agent's life, as a differentiable function of the rule's parameters.

`live` collects experience and updates the agent in one scan. Experience is data: no derivative passes through the environment.
`relive` makes the same updates again from a `Record`, without any environment, and gives the same agent and the same gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.agents.base import Agent, overwrite, split, write
from rulax.discovery.critic import CriticState, Judgement, improve, judge
from rulax.discovery.memory import Penalties, Updated, Updates, repeat
from rulax.discovery.outer_loss import now_taken, predict_along
from rulax.discovery.population import Family, Member
from rulax.envs.base import Episode
from rulax.learning.life import draw, episode_metrics, split_keys, store
from rulax.learning.rollout import act
from rulax.learning.update import LearnerState
from rulax.types import Array, Experience, Metrics, Policy, PyTree, now
from rulax.values.normalisation import masked_mean


class Window(NamedTuple):
    """What an outer objective reads of N updates. Only `agent` and `penalties` depend on the rule; the rest is data."""

    agent: Agent  # after the last update
    penalties: Penalties  # means over the updates
    validation: Experience  # [T', B, ...] by which that agent is judged
    advantage: Array  # [T', B] normalised, by the critic
    record: Record  # from which the window can be lived again


class Record(NamedTuple):
    """The data of a window, as arrays."""

    learner_state: LearnerState  # before the first update
    experience: Experience  # [N, T, B, ...] what each update learned from
    keys: Array  # [N] and its randomness
    written: PyTree = ()  # [N, ...] the agent's arrays that it wrote before each update (agents/base.py); () if none


class Acted(NamedTuple):
    """What happened while an agent acted, before it has written anything down."""

    fresh: Experience  # [T, B, ...]
    episodes: Episode  # [T, B] those that ended
    key: Array  # of the update that learns from it


class Rollout(NamedTuple):
    """Fresh experience, the sums over its finished episodes, and the key of the update that learns from it."""

    fresh: Experience  # [T, B, ...] as the environment paid for it: for the critic and for validation
    learned_from: Experience  # [T, B, ...] as the agent wants to learn from it (`Agent.written`)
    episodes: Metrics
    key: Array
    written: PyTree  # the arrays that the agent wrote (agents/base.py)


def live(family: Family, updates: Updates, rule_params: PyTree, member: Member) -> tuple[Member, Window, Metrics]:
    """N updates and a validation rollout.

    With `collection` "on_policy" the agent collects a rollout before every update, and validation after the last one. With
    "before_window" the agent as it is now collects all of it in advance, as DeepMind's notebook does; updates and critic then
    learn off-policy, and the critic judges the agent after the window by importance weights. What an agent keeps in tables
    (`Agent.written`) it writes when it has collected, so in that case before its first update. Its validation it writes last in
    both cases: an agent is judged by experience that it has not seen.

    Args:
        family: the environment, the agents' recipe and the settings.
        updates: how an update is made, and what its derivative stores.
        rule_params: the parameters to differentiate with respect to.
        member: one agent at the start of the window.

    Returns:
        The member after the window, what an outer objective judges, and metrics (scalars).
    """
    settings = family.settings
    on_policy = settings.collection == "on_policy"
    ahead = validated = None
    if not on_policy:
        member, ahead = jax.lax.scan(lambda member, _: collect_member(family, member), member, None, settings.window)
        member, validated = act_only(family, member, settings.validation_unroll)
    before = member.life.learner_state

    def one(member: Member, rollout: Rollout | None) -> tuple[Member, tuple]:
        if rollout is None:
            member, rollout = collect_member(family, member)
        life, fresh = store(member.life, rollout.learned_from), rollout.fresh
        # As in `life.sample_and_update`. The record keeps the drawn batch itself, so it needs only the update's key.
        key_mix, key_update = jax.random.split(rollout.key)
        experience = draw(family.recipe.learning, life, rollout.learned_from, key_mix)
        member = member._replace(life=life)
        member, learned, penalties = learn(family, updates, rule_params, member, experience, fresh, key_update)
        # What was collected before the window was also written before it, and is part of `before`.
        written = rollout.written if on_policy else ()
        return member, (experience, key_update, written, learned | rollout.episodes, penalties)

    member, (experience, keys, written, metrics, penalties) = repeat(updates, one, member, ahead, settings.window)
    agent = member.life.learner_state.params  # judged is this agent, before it writes anything about its validation
    if validated is None:
        member, validated = act_only(family, member, settings.validation_unroll)
    member, validation = write_down(member, validated)
    judged = validation.fresh
    policy = judged.behaviour if on_policy else policy_of(agent, judged)
    critic, judgement, criticised = judge_validation(family, member.critic, judged, policy)
    record = Record(before, experience, keys, written)
    window = Window(agent, mean_penalties(penalties), judged, judgement.normalised_advantage, record)
    return member._replace(critic=critic), window, describe(metrics, judged, validation.episodes) | criticised


def learn(
    family: Family, updates: Updates, rule_params: PyTree, member: Member, experience: Experience, fresh: Experience, key: Array
) -> tuple[Member, Metrics, Penalties]:
    """One update of the agent, and one step of the critic.

    Args:
        family: its settings.
        updates: how an update is made.
        rule_params: the parameters to differentiate with respect to.
        member: after it has collected and written.
        experience: the batch that the agent learns from, [T, N, ...].
        fresh: what was collected last, [T, B, ...], that the critic learns from.
        key: of the update.
    """
    settings, before = family.settings, member.life.learner_state
    state, learned, penalties = updates.one(rule_params, before, experience, key)
    critic, measured = member.critic, rewards_of(fresh) | {"update_norm": distance(state.params, before.params)}
    if settings.critic_learns_from == "updates":
        # On-policy, `behaviour` is the policy of this very agent, and already data.
        policy = fresh.behaviour if settings.collection == "on_policy" else policy_of(before.params, fresh)
        # Nothing that reaches the critic depends on the rule: experience and policy are data already.
        critic, criticised = improve(settings, critic, fresh, policy)
        measured |= criticised
    life = member.life._replace(learner_state=state)
    return member._replace(life=life, critic=critic, age=member.age + 1), learned | measured, penalties


def collect_member(family: Family, member: Member) -> tuple[Member, Rollout]:
    """One rollout to learn from, with the agent as it is, which it then writes down."""
    return write_down(*act_only(family, member, family.recipe.learning.unroll))


def act_only(family: Family, member: Member, unroll: int) -> tuple[Member, Acted]:
    """Act for `unroll` steps with the agent as it is.

    To the meta-gradient what happens is data: no derivative passes through the environment.
    """
    keys = split_keys(member.life)
    agent, actor = jax.lax.stop_gradient((member.life.learner_state.params, member.life.actor))
    actor, fresh, episodes = act(family.streams, agent, actor, unroll, keys.act)
    return member._replace(life=member.life._replace(actor=actor, key=keys.life)), Acted(fresh, episodes, keys.learn)


def write_down(member: Member, acted: Acted) -> tuple[Member, Rollout]:
    """Let the agent keep what it wants of a rollout (`Agent.written`)."""
    state, (fresh, episodes, key) = member.life.learner_state, acted
    # To the agent itself and not to a stopped copy: arrays that it does not replace must stay differentiable.
    agent, learned_from, written = write(state.params, fresh, episodes)
    life = member.life._replace(learner_state=state._replace(params=agent))
    return member._replace(life=life), Rollout(fresh, learned_from, episode_metrics(fresh, episodes), key, written)


def policy_of(agent: Agent, experience: Experience) -> Policy:
    """The agent's policy logits at the T steps of some experience, as data."""
    return jax.lax.stop_gradient(now_taken(predict_along(agent, experience))["policy"])


def judge_validation(
    family: Family, critic: CriticState, validation: Experience, policy: Policy
) -> tuple[CriticState, Judgement, Metrics]:
    """The critic after a window, its judgement of the validation experience, and that judgement in numbers.

    Advantages are normalised by averages that include this experience. Whether it stays in them is a setting.
    """
    settings = family.settings
    # Judged before it may improve: the critic that weights the policy gradient has not been fitted to this experience.
    judgement = judge(settings, critic, validation, policy)
    measured = {
        "critic_value": masked_mean(now(judgement.value), validation.valid),
        "critic_advantage": masked_mean(judgement.advantage, validation.valid),
        "critic_normalised_advantage": masked_mean(judgement.normalised_advantage, validation.valid),
        "importance_weight": masked_mean(jnp.minimum(1, judgement.ratios), validation.valid),
    }
    if settings.critic_learns_from == "validation":
        critic, criticised = improve(settings, critic, validation, policy)
        measured |= criticised
    elif settings.critic_statistics == "all":
        critic = critic._replace(advantage=judgement.moments[0], error=judgement.moments[1])
    return critic, judgement, measured


def relive(updates: Updates, rule_params: PyTree, record: Record) -> Updated:
    """The same updates from recorded arrays: the agent after them, and their metrics and penalties, [N] each."""

    def one(state: LearnerState, inputs: tuple[Experience, Array, PyTree]) -> tuple[LearnerState, tuple[Metrics, Penalties]]:
        experience, key, written = inputs
        # Before the update, in the order of `collect_member` and then `one` in `live`.
        state = state._replace(params=overwrite(state.params, written))
        state, metrics, penalties = updates.one(rule_params, state, experience, key)
        return state, (metrics, penalties)

    inputs = record.experience, record.keys, record.written
    state, outputs = repeat(updates, one, record.learner_state, inputs, len(record.keys))
    return Updated(state, *outputs)


def mean_penalties(penalties: Penalties) -> Penalties:
    """Means over N updates of penalties [N] each."""
    return {name: jnp.mean(values) for name, values in penalties.items()}


def rewards_of(experience: Experience) -> Metrics:
    """The mean reward per valid step, and how many of them were positive and negative."""
    reward, valid = experience.reward, experience.valid
    return {
        "reward": masked_mean(reward, valid),
        "positive_rewards": jnp.sum(valid & (reward > 0)),
        "negative_rewards": jnp.sum(valid & (reward < 0)),
    }


def distance(after: Agent, before: Agent) -> Array:
    """The Euclidean norm of a change of an agent's trained parameters, as data."""
    (new, _), (old, _) = split(after), split(before)
    return optax.global_norm(jax.lax.stop_gradient(jax.tree.map(jnp.subtract, new, old)))


COUNTED = ("positive_rewards", "negative_rewards")  # sums over updates; of everything else, means
# Of all agents and rules, under their own names. What else a rule reports of an update is `agent_...`: `policy_loss` is a part of
# the outer loss.
WATCHED = ("loss", "gradient_norm", "entropy", "target_entropy", "reward", "update_norm", "critic_loss")


def describe(metrics: Metrics, validation: Experience, acted: Metrics) -> Metrics:
    """Numbers of a window to watch.

    Args:
        metrics: of the N updates, [N] each.
        validation: what the agent was judged by.
        acted: sums over the episodes that ended in the validation rollout.

    Returns:
        Sums over all finished episodes, sums and means over the updates, and the reward per valid step of validation.
    """
    episodes = {name: jnp.sum(metrics[name], 0) + acted[name] for name in acted}
    counts = {name: jnp.sum(metrics[name], 0) for name in COUNTED if name in metrics}
    others = [name for name in metrics if name not in (*acted, *COUNTED)]
    means = {name if name in WATCHED else f"agent_{name}": jnp.mean(metrics[name]) for name in others}
    return episodes | counts | means | {"validation_reward": masked_mean(validation.reward, validation.valid)}
