"""N updates of one agent's life, as a differentiable function of the rule's parameters.

`live` acts and updates in one scan: experience is made with the agent as it is, then treated as data. `relive` makes the same
updates again from recorded experience; both give the same gradient, which is how environments outside of JAX are served.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.agents.base import overwrite, write
from rulax.discovery.critic import improve, judge
from rulax.discovery.memory import Penalties, Updated, Updates, repeat
from rulax.discovery.population import Family, Member
from rulax.learning.life import Keys, Life, draw, episode_metrics, split_keys, store
from rulax.learning.rollout import act
from rulax.learning.update import LearnerState
from rulax.types import Array, Experience, Metrics, PyTree


class Window(NamedTuple):
    """What an outer objective reads of N updates. Only `agent` and `penalties` depend on the rule; the rest is data."""

    agent: PyTree  # the parameters after the last update
    penalties: Penalties  # means over the updates
    validation: Experience  # what that agent did next
    advantage: Array  # [T', B] normalised, by the critic
    record: Record  # from which the window can be lived again


class Record(NamedTuple):
    """The data of a window, as arrays."""

    learner_state: LearnerState  # before the first update
    experience: Experience  # [N, T, B, ...] what each update learned from
    keys: Array  # [N] and its randomness
    written: PyTree = ()  # [N, ...] the agent's arrays that it wrote before each update (agents/base.py); () if none


class Collected(NamedTuple):
    """One unroll of a member's life."""

    life: Life  # after it, the agent having written what it keeps of it
    experience: Experience  # [T, B] as the environment paid for it: for the critic and for validation
    learned_from: Experience  # [T, B] as the agent wants to learn from it
    metrics: Metrics
    keys: Keys
    written: PyTree  # the arrays that the agent wrote


def live(family: Family, updates: Updates, rule_params: PyTree, member: Member) -> tuple[Member, Window, Metrics]:
    """Act and update N times, then act once more for validation: where the agent is now, what to judge it by, metrics."""
    settings, before = family.settings, member.life.learner_state

    def one(member: Member, _: None) -> tuple[Member, tuple]:
        life, fresh, learned_from, acted, keys, written = collect_as_data(family, member, family.recipe.learning.unroll)
        life = store(life, learned_from)
        key_mix, key_update = jax.random.split(keys.learn)
        experience = draw(family.recipe.learning, life, learned_from, key_mix)
        state, learned, penalties = updates.one(rule_params, life.learner_state, experience, key_update)
        critic = member.critic
        if settings.critic_learns_from == "updates":
            critic = improve(settings, critic, fresh, fresh.behaviour)  # fresh experience is on policy
        member = member._replace(life=life._replace(learner_state=state, key=keys.life), critic=critic, age=member.age + 1)
        return member, (experience, key_update, written, learned | acted, penalties)

    member, (experience, keys, written, metrics, penalties) = repeat(updates, one, member, None, settings.window)
    agent = member.life.learner_state.params  # judged is the agent that acts, before it writes anything about its validation
    after, validation, _, acted, keys_after, _ = collect_as_data(family, member, settings.validation_unroll)
    judgement = judge(settings, member.critic, validation, validation.behaviour)
    critic = member.critic._replace(advantage=judgement.moments[0], error=judgement.moments[1])
    if settings.critic_learns_from == "validation":
        critic = improve(settings, member.critic, validation, validation.behaviour)
    member = member._replace(life=after._replace(key=keys_after.life), critic=critic)
    record = Record(before, experience, keys, written)
    window = Window(agent, mean_penalties(penalties), validation, judgement.normalised_advantage, record)
    return member, window, describe(metrics, validation, acted)


def collect_as_data(family: Family, member: Member, unroll: int) -> Collected:
    """Act with the agent as it is. To the meta-gradient what happens is data: no derivative passes through the environment."""
    keys, state = split_keys(member.life), member.life.learner_state
    agent, actor = jax.lax.stop_gradient((state.params, member.life.actor))
    actor, experience, episodes = act(family.streams, agent, actor, unroll, keys.act)
    agent, learned_from, written = write(state.params, experience, episodes)
    life = member.life._replace(actor=actor, learner_state=state._replace(params=agent))
    return Collected(life, experience, learned_from, episode_metrics(experience, episodes), keys, written)


def relive(updates: Updates, rule_params: PyTree, record: Record) -> Updated:
    """The same updates from recorded arrays: the agent after them, and their metrics and penalties, [N] each."""

    def one(state: LearnerState, inputs: tuple[Experience, Array, PyTree]) -> tuple[LearnerState, tuple[Metrics, Penalties]]:
        experience, key, written = inputs
        state = state._replace(params=overwrite(state.params, written))
        state, metrics, penalties = updates.one(rule_params, state, experience, key)
        return state, (metrics, penalties)

    inputs = record.experience, record.keys, record.written
    state, outputs = repeat(updates, one, record.learner_state, inputs, len(record.keys))
    return Updated(state, *outputs)


def mean_penalties(penalties: Penalties) -> Penalties:
    """Means over N updates of penalties [N] each."""
    return {name: jnp.mean(values) for name, values in penalties.items()}


def describe(metrics: Metrics, validation: Experience, acted: Metrics) -> Metrics:
    """Numbers of a window to watch: sums over episodes, means over updates."""
    sums = {name: jnp.sum(metrics[name], 0) + acted[name] for name in acted}
    watched = ("loss", "gradient_norm", "entropy", "target_entropy")
    means = {name: jnp.mean(metrics[name]) for name in watched if name in metrics}
    steps = jnp.maximum(jnp.sum(validation.valid), 1)
    return sums | means | {"validation_reward": jnp.sum(validation.reward) / steps}
