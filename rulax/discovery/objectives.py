"""What counts as good in the discovery of a rule: losses to differentiate, and the fitness for estimators that do not.

An objective is made for one family and is a `Problem.judge`: (updates, rule_params, member, window) -> loss [], metrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from rulax.agents.base import join, split
from rulax.discovery.memory import Updates
from rulax.discovery.outer_loss import now_taken, outer_loss, policy_gradient_loss, predict_along
from rulax.discovery.population import Family, Member
from rulax.discovery.window import Window, live
from rulax.types import Array, Metrics, PyTree
from rulax.values.normalisation import masked_mean
from rulax.values.policies import kl

Objective = Callable[[Updates, PyTree, Member, Window], tuple[Array, Metrics]]
WindowObjective = Callable[[Updates, PyTree, Any, Window], tuple[Array, Metrics]]  # whatever the member is


def by_policy_gradient(family: Family) -> WindowObjective:
    """The paper's objective: the policy gradient on validation experience, with regularisers."""

    def judge(updates: Updates, rule_params: PyTree, member: Any, window: Window) -> tuple[Array, Metrics]:
        del updates, rule_params, member
        return outer_loss(family.settings, window.agent, window.validation, window.advantage, window.penalties)

    return judge


def by_bootstrap(family: Family) -> Objective:
    """Bootstrapped meta-gradients (Flennerhag et al. 2022): match now the agent of a few updates later.

    The target is the agent after further updates by its own rule and one step along the policy gradient; the loss is
    KL(target policy || policy) on validation experience, with the same regularisers. Nothing is differentiated through the
    further updates, so that the horizon grows while the memory does not.
    """
    settings = family.settings
    further = dataclasses.replace(family, settings=dataclasses.replace(settings, window=settings.bootstrap_updates))

    def judge(updates: Updates, rule_params: PyTree, member: Member, window: Window) -> tuple[Array, Metrics]:
        data = jax.lax.stop_gradient((rule_params, member))  # the agent moves to the target, not the target to it
        later = live(further, updates, *data)[0].life.learner_state.params

        trained, carried = split(later)

        def loss(trained: PyTree) -> Array:
            # On the window's own validation: target and agent are compared in the same states.
            predicted = now_taken(predict_along(join(trained, carried), window.validation))
            return policy_gradient_loss(predicted, window.validation, window.advantage)

        ahead = jax.tree.map(lambda p, g: p - settings.bootstrap_rate * g, trained, jax.grad(loss)(trained))
        wanted = jax.lax.stop_gradient(now_taken(predict_along(join(ahead, carried), window.validation))["policy"])
        reached = now_taken(predict_along(window.agent, window.validation))["policy"]
        distance = masked_mean(kl(wanted, reached), window.validation.valid)
        _, parts = outer_loss(settings, window.agent, window.validation, window.advantage, window.penalties)
        return distance + parts["regulariser"], parts | {"bootstrap_distance": distance}

    return judge


def validation_reward(member: Any, window: Window, metrics: Metrics) -> Array:
    """The default fitness of a rule: the mean reward of its agent's valid validation steps, a scalar."""
    del member, metrics
    return masked_mean(window.validation.reward, window.validation.valid)


OBJECTIVES: dict[str, Callable[[Family], Objective]] = {"policy_gradient": by_policy_gradient, "bootstrap": by_bootstrap}
