"""Evolution over whole lives: a rule is scored by what an agent earns from its first update to its last.

Nothing is differentiated and nothing of a life is stored, so it may be as long as one likes. The estimator `evolution` lives the
same life with every perturbation of the rule: the same fresh agent, task and random numbers, in antithetic pairs. Afterwards the
agent's budget is spent, so that the next meta-step begins with a fresh one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.discovery.estimators import Problem
from rulax.discovery.memory import Updates, make_updates
from rulax.discovery.population import Family, Member
from rulax.discovery.window import collect_member
from rulax.learning.life import draw, store
from rulax.types import Array, Metrics, PyTree

END = 0.25  # of a life is what the fitness "end" counts


class Lived(NamedTuple):
    """What an agent earned until the end of its life, or in its last part, over all its streams."""

    reward: Array  # [] sum over valid steps, as the environment paid it
    episodes: Array  # [] begun: one per stream, and one after each that ended


def whole_life_problem(family: Family) -> Problem[Member, Lived]:
    """The discovery of a rule from whole lives: there is a fitness and no loss, so only `evolution` can estimate its gradient."""

    def lived(updates: Updates, rule_params: PyTree, member: Member) -> tuple[Member, Lived, Metrics]:
        return live_to_the_end(family, updates, rule_params, member)

    return Problem(
        enter=lambda meta_params, member: (meta_params, member),
        live=lived,
        updates=make_updates(family.learner, "plain"),
        fitness=reward_per_episode,
    )


def reward_per_episode(member: Member, lived: Lived, metrics: Metrics) -> Array:
    """The mean return of the episodes that were begun, a scalar; of the unfinished ones, what they have brought so far."""
    del member, metrics
    # Not the reward per step, which is the same for every agent where each step pays the same; and not only what has ended, which
    # would be nothing for an agent that never finishes.
    return lived.reward / lived.episodes


def live_to_the_end(family: Family, updates: Updates, rule_params: PyTree, member: Member) -> tuple[Member, Lived, Metrics]:
    """Collect and update until the agent's budget is spent.

    Args:
        family: the environment, the agents' recipe and the settings.
        updates: how an update is made.
        rule_params: the rule's parameters.
        member: one agent, usually a fresh one.

    Returns:
        The member at the end of its life, what it earned, and sums over the episodes that ended (scalars).
    """
    learning = family.recipe.learning

    # All of the life counts, or the last part of what is left of it.
    part = END if family.settings.fitness == "end" else 1.0
    began = member.budget - jnp.ceil(part * (member.budget - member.age)).astype(jnp.int32)

    def one(_: Array, carry: tuple[Member, Lived, Metrics]) -> tuple[Member, Lived, Metrics]:
        member, so_far, ended = carry
        counts = member.age >= began
        member, rollout = collect_member(family, member)
        life = store(member.life, rollout.learned_from)
        key_mix, key_update = jax.random.split(rollout.key)  # as in `life.sample_and_update`
        experience = draw(learning, life, rollout.learned_from, key_mix)
        state = updates.one(rule_params, life.learner_state, experience, key_update).state
        paid = jnp.sum(jnp.where(rollout.fresh.valid, rollout.fresh.reward, 0))
        member = member._replace(life=life._replace(learner_state=state), age=member.age + 1)
        now = Lived(paid, rollout.episodes["episodes"])
        so_far = jax.tree.map(lambda total, new: total + jnp.where(counts, new, 0).astype(total.dtype), so_far, now)
        return member, so_far, jax.tree.map(jnp.add, ended, rollout.episodes)

    # The sums start as zeros of whatever `collect_member` counts.
    counted = jax.eval_shape(lambda member: collect_member(family, member)[1].episodes, member)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), counted)
    start = member, Lived(jnp.zeros(()), nothing["episodes"]), nothing
    # Budgets differ: mapped over agents, the loop runs until the last one is at its end, and the others stay as they are.
    member, lived, ended = jax.lax.fori_loop(member.age, member.budget, one, start)
    return member, lived._replace(episodes=learning.streams + lived.episodes), ended
