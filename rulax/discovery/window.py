"""N updates of one agent's life, as a differentiable function of the rule's parameters.

`live` collects experience and updates the agent in one scan. Experience is data: no derivative passes through the environment.
`relive` makes the same updates again from a `Record`, without any environment, and gives the same agent and the same gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.discovery.critic import CriticState, Judgement, improve, judge
from rulax.discovery.memory import Updates, repeat
from rulax.discovery.outer_loss import PENALTY, now_taken, predict_along
from rulax.discovery.population import Family, Member
from rulax.learning.life import Keys, Life, draw, episode_metrics, split_keys, store
from rulax.learning.rollout import act
from rulax.types import Array, Experience, LearnerState, Metrics, Policy, PyTree, now
from rulax.values.normalisation import masked_mean


class Window(NamedTuple):
    """What an outer objective reads of N updates. Only `agent` and `penalties` depend on the rule; the rest is data."""

    agent: PyTree  # the parameters after the last update
    penalties: dict[str, Array]  # means over the updates
    validation: Experience  # [T', B, ...] by which that agent is judged
    advantage: Array  # [T', B] normalised, by the critic
    record: Record  # from which the window can be lived again


class Record(NamedTuple):
    """The data of a window, as arrays."""

    learner_state: LearnerState  # before the first update
    experience: Experience  # [N, T, B, ...] what each update learned from
    keys: Array  # [N] and its randomness


class Rollout(NamedTuple):
    """Fresh experience, the sums over its finished episodes, and the key of the update that learns from it."""

    fresh: Experience  # [T, B, ...]
    episodes: Metrics
    key: Array


def live(family: Family, updates: Updates, rule_params: PyTree, member: Member) -> tuple[Member, Window, Metrics]:
    """N updates and a validation rollout.

    With `collection` "on_policy" the agent collects a rollout before every update, and validation after the last one. With
    "before_window" the agent as it is now collects all of it in advance, as DeepMind's notebook does; updates and critic then
    learn off-policy, and the critic judges the agent after the window by importance weights.

    Args:
        family: the environment, the agents' recipe and the settings.
        updates: how an update is made, and what its derivative stores.
        rule_params: the parameters to differentiate with respect to.
        member: one agent at the start of the window.

    Returns:
        The member after the window, what an outer objective judges, and metrics (scalars).
    """
    settings, before = family.settings, member.life.learner_state
    on_policy = settings.collection == "on_policy"
    ahead = validation = None
    if not on_policy:
        member, ahead = jax.lax.scan(lambda member, _: collect(family, member), member, None, settings.window)
        member, validation = collect(family, member, settings.validation_unroll)

    def one(member: Member, rollout: Rollout | None) -> tuple[Member, tuple]:
        if rollout is None:
            member, rollout = collect(family, member)
        life, fresh = store(member.life, rollout.fresh), rollout.fresh
        key_mix, key_update = jax.random.split(rollout.key)
        experience = draw(family.recipe.learning, life, fresh, key_mix)
        learner, learned = updates.one(rule_params, life.learner_state, experience, key_update)
        critic, measured = member.critic, rewards_of(fresh) | {"update_norm": distance(learner.params, life.learner_state.params)}
        if settings.critic_learns_from == "updates":
            policy = fresh.behaviour if on_policy else policy_of(life.learner_state.params, fresh)
            critic, criticised = improve(settings, critic, fresh, policy)
            measured |= criticised
        member = member._replace(life=life._replace(learner_state=learner), critic=critic, age=member.age + 1)
        return member, (experience, key_update, learned | rollout.episodes | measured)

    member, (experience, keys, metrics) = repeat(updates, one, member, ahead, settings.window)
    if validation is None:
        member, validation = collect(family, member, settings.validation_unroll)
    agent, judged = member.life.learner_state.params, validation.fresh
    policy = judged.behaviour if on_policy else policy_of(agent, judged)
    critic, judgement, criticised = judge_validation(family, member.critic, judged, policy)
    window = Window(agent, mean_penalties(metrics), judged, judgement.normalised_advantage, Record(before, experience, keys))
    return member._replace(critic=critic), window, describe(metrics, judged, validation.episodes) | criticised


def collect(family: Family, member: Member, unroll: int = 0) -> tuple[Member, Rollout]:
    """One rollout of `unroll` steps (0: as long as those that agents learn from) with the agent as it is."""
    life, fresh, episodes, keys = collect_as_data(family, member, unroll or family.recipe.learning.unroll)
    return member._replace(life=life._replace(key=keys.life)), Rollout(fresh, episodes, keys.learn)


def collect_as_data(family: Family, member: Member, unroll: int) -> tuple[Life, Experience, Metrics, Keys]:
    """Act with the agent as it is: its life (with the key unchanged), what happened, sums over finished episodes, and all keys."""
    keys = split_keys(member.life)
    # To the meta-gradient experience is data, whoever made it.
    agent, actor = jax.lax.stop_gradient((member.life.learner_state.params, member.life.actor))
    actor, experience, episode = act(family.streams, agent, actor, unroll, keys.act)
    return member.life._replace(actor=actor), experience, episode_metrics(experience, episode), keys


def policy_of(agent: PyTree, experience: Experience) -> Policy:
    """The agent's policy logits at the T steps of some experience, as data."""
    return jax.lax.stop_gradient(now_taken(predict_along(agent, experience))["policy"])


def judge_validation(
    family: Family, critic: CriticState, validation: Experience, policy: Policy
) -> tuple[CriticState, Judgement, Metrics]:
    """The critic after a window, its judgement of the validation experience, and that judgement in numbers.

    Advantages are normalised by averages that include this experience. Whether it stays in them is a setting.
    """
    settings = family.settings
    judgement = judge(settings, critic, validation, policy)
    measured = {
        "critic_value": masked_mean(now(judgement.value), validation.valid),
        "critic_advantage": masked_mean(judgement.advantage, validation.valid),
        "importance_weight": masked_mean(jnp.minimum(1, judgement.ratios), validation.valid),
    }
    if settings.critic_learns_from == "validation":
        critic, criticised = improve(settings, critic, validation, policy)
        measured |= criticised
    elif settings.critic_statistics == "all":
        critic = critic._replace(advantage=judgement.moments[0], error=judgement.moments[1])
    return critic, judgement, measured


def relive(updates: Updates, rule_params: PyTree, record: Record) -> tuple[LearnerState, Metrics]:
    """The same updates from recorded arrays: the agent after them, and their metrics, [N] each."""

    def one(learner: LearnerState, inputs: tuple[Experience, Array]) -> tuple[LearnerState, Metrics]:
        return updates.one(rule_params, learner, *inputs)

    return repeat(updates, one, record.learner_state, (record.experience, record.keys), len(record.keys))


def mean_penalties(metrics: Metrics) -> dict[str, Array]:
    """The penalties that `outer_loss.with_penalties` put among the metrics of N updates."""
    return {name.removeprefix(PENALTY): jnp.mean(values) for name, values in metrics.items() if name.startswith(PENALTY)}


def rewards_of(experience: Experience) -> Metrics:
    """The mean reward per valid step, and how many of them were positive and negative."""
    reward, valid = experience.reward, experience.valid
    return {
        "reward": masked_mean(reward, valid),
        "positive_rewards": jnp.sum(valid & (reward > 0)),
        "negative_rewards": jnp.sum(valid & (reward < 0)),
    }


def distance(after: PyTree, before: PyTree) -> Array:
    """The Euclidean norm of a change of parameters, as data."""
    return optax.global_norm(jax.lax.stop_gradient(jax.tree.map(lambda new, old: new - old, after, before)))


WATCHED = ("loss", "gradient_norm", "entropy", "target_entropy", "reward", "update_norm", "critic_loss")  # means over updates
COUNTED = ("positive_rewards", "negative_rewards")  # sums over updates


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
    means = {name: jnp.mean(metrics[name]) for name in WATCHED if name in metrics}
    return episodes | counts | means | {"validation_reward": masked_mean(validation.reward, validation.valid)}
