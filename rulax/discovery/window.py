"""N updates of one agent's life, as a differentiable function of the rule's parameters.

`live` acts and updates in one scan: experience is made with the agent as it is, then treated as data. `relive` makes the same
updates again from recorded experience; both give the same gradient, which is how environments outside of JAX are served.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.discovery.critic import improve, judge
from rulax.discovery.memory import Updates, repeat
from rulax.discovery.outer_loss import PENALTY
from rulax.discovery.population import Family, Member
from rulax.learning.life import draw, episode_metrics, split_keys, store
from rulax.learning.rollout import act
from rulax.types import Array, Experience, LearnerState, Metrics, PyTree


class Window(NamedTuple):
    """What an outer objective reads of N updates. Only `agent` and `penalties` depend on the rule; the rest is data."""

    agent: PyTree  # the parameters after the last update
    penalties: dict[str, Array]  # means over the updates
    validation: Experience  # what that agent did next
    advantage: Array  # [T', B] normalised, by the critic
    record: Record  # from which the window can be lived again


class Record(NamedTuple):
    """The data of a window, as arrays."""

    learner_state: LearnerState  # before the first update
    experience: Experience  # [N, T, B, ...] what each update learned from
    keys: Array  # [N] and its randomness


def live(family: Family, updates: Updates, rule_params: PyTree, member: Member) -> tuple[Member, Window, Metrics]:
    """Act and update N times, then act once more for validation: where the agent is now, what to judge it by, metrics."""
    settings, before = family.settings, member.life.learner_state

    def one(member: Member, _: None) -> tuple[Member, tuple]:
        life, fresh, acted, keys = collect_as_data(family, member, family.recipe.learning.unroll)
        life = store(life, fresh)
        key_mix, key_update = jax.random.split(keys.learn)
        experience = draw(family.recipe.learning, life, fresh, key_mix)
        learner, learned = updates.one(rule_params, life.learner_state, experience, key_update)
        critic = member.critic
        if settings.critic_learns_from == "updates":
            critic = improve(settings, critic, fresh, fresh.behaviour)  # fresh experience is on policy
        member = member._replace(life=life._replace(learner_state=learner, key=keys.life), critic=critic, age=member.age + 1)
        return member, (experience, key_update, learned | acted)

    member, (experience, keys, metrics) = repeat(updates, one, member, None, settings.window)
    after, validation, acted, keys_after = collect_as_data(family, member, settings.validation_unroll)
    judgement = judge(settings, member.critic, validation, validation.behaviour)
    critic = member.critic._replace(advantage=judgement.moments[0], error=judgement.moments[1])
    if settings.critic_learns_from == "validation":
        critic = improve(settings, member.critic, validation, validation.behaviour)
    member = member._replace(life=after._replace(key=keys_after.life), critic=critic)
    record = Record(before, experience, keys)
    window = Window(member.life.learner_state.params, mean_penalties(metrics), validation, judgement.normalised_advantage, record)
    return member, window, describe(metrics, validation, acted)


def collect_as_data(family: Family, member: Member, unroll: int):
    """Act with the agent as it is. To the meta-gradient what happens is data: no derivative passes through the environment."""
    keys = split_keys(member.life)
    agent, actor = jax.lax.stop_gradient((member.life.learner_state.params, member.life.actor))
    actor, experience, episode = act(family.streams, agent, actor, unroll, keys.act)
    return member.life._replace(actor=actor), experience, episode_metrics(experience, episode), keys


def relive(updates: Updates, rule_params: PyTree, record: Record) -> tuple[LearnerState, Metrics]:
    """The same updates from recorded arrays: the agent after them, and their metrics, [N] each."""

    def one(learner: LearnerState, inputs: tuple[Experience, Array]) -> tuple[LearnerState, Metrics]:
        return updates.one(rule_params, learner, *inputs)

    return repeat(updates, one, record.learner_state, (record.experience, record.keys), len(record.keys))


def mean_penalties(metrics: Metrics) -> dict[str, Array]:
    """The penalties that `outer_loss.with_penalties` put among the metrics of N updates."""
    return {name.removeprefix(PENALTY): jnp.mean(values) for name, values in metrics.items() if name.startswith(PENALTY)}


def describe(metrics: Metrics, validation: Experience, acted: Metrics) -> Metrics:
    """Numbers of a window to watch: sums over episodes, means over updates."""
    sums = {name: jnp.sum(metrics[name], 0) + acted[name] for name in acted}
    watched = ("loss", "gradient_norm", "entropy", "target_entropy")
    means = {name: jnp.mean(metrics[name]) for name in watched if name in metrics}
    steps = jnp.maximum(jnp.sum(validation.valid), 1)
    return sums | means | {"validation_reward": jnp.sum(validation.reward) / steps}
