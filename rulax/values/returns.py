"""From rewards and values to what values should have been: the only file that steps through time; rules call it in `targets`.

Every function works on whole trajectories of **one** stream; `over_streams` maps it over [T, B]. Common arguments:

    rewards   [T]    reward of step t
    discounts [T]    the rule's discount times `experience.discount`: 0 where the episode ended
    values    [T+1]  value of each observation, the last one included
    valid     [T]    False where nothing may be learned; None means that every step counts
    trace            lambda, a number or one per step [T]

All of them are one recursion, backwards in time, over temporal-difference errors e_t:

    acc_t = valid_t * (e_t + discount_t * lambda * c_t * acc_{t+1}),        acc_T = 0

so an invalid step has no error, nothing reaches across it, and the step before it bootstraps from the value it shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.types import Array, later, now


class VTrace(NamedTuple):
    """What V-trace says about each step of a trajectory."""

    targets: Array  # [T] what the values should have been
    advantages: Array  # [T] weights of the policy gradient, importance ratio included


class Clips(NamedTuple):
    """Largest importance ratios of V-trace, in the order of the paper: of errors (rho), of traces (c), of advantages."""

    error: float = 1.0
    trace: float = 1.0
    advantage: float = 1.0


def over_streams(function: Callable, *arrays: Array | None, **shared):
    """Apply a function of one stream to every stream of `arrays` [T, B, ...]; keywords (`trace`, clips) are shared."""
    # Streams are axis 1 of [T, B], so each function sees time as its leading axis. `None` is an empty tree, which `vmap` leaves
    # alone.
    return jax.vmap(functools.partial(function, **shared), in_axes=1, out_axes=1)(*arrays)


def accumulate(errors: Array, decays: Array, valid: Array | None = None) -> Array:
    """Backward discounted sum that no invalid step enters or lets through: acc_t = valid_t (e_t + decay_t acc_{t+1}), [T]."""
    valid = _all_valid(valid, errors)

    def step(total, inputs):
        error, decay, keep = inputs
        # A choice, not a product: whatever a dummy step holds (even a NaN), it must not get through.
        total = jnp.where(keep, error + decay * total, jnp.zeros_like(total))
        return total, total

    _, sums = jax.lax.scan(step, jnp.zeros_like(errors[0]), (errors, jnp.broadcast_to(decays, errors.shape), valid), reverse=True)
    return sums


def generalised_advantages(
    rewards: Array, discounts: Array, values: Array, valid: Array | None = None, *, trace: Array | float = 1.0
) -> Array:
    """Generalised advantage estimates [T] (Schulman et al. 2016, eq. 16).

    A_t = d_t + discount_t lambda A_{t+1}  with  d_t = r_t + discount_t V_{t+1} - V_t.

    Args:
        rewards: [T], the reward of each step.
        discounts: [T], the rule's discount times `experience.discount`: 0 where the episode ended.
        values: [T+1], the value of each observation, the last one included.
        valid: [T], False where nothing may be learned; None means that every step counts.
        trace: lambda, a number or one per step [T].
    """
    # At an end the next value belongs to another episode, and its discount is 0.
    return accumulate(rewards + discounts * later(values) - now(values), discounts * trace, valid)


def lambda_returns(
    rewards: Array, discounts: Array, values: Array, valid: Array | None = None, *, trace: Array | float = 1.0
) -> Array:
    """Lambda-returns [T] (Sutton and Barto 2018, eq. 12.18); with lambda = 1, the sum of rewards and a bootstrap at the end.

    G_t = r_t + discount_t ((1 - lambda) V_{t+1} + lambda G_{t+1});  an invalid step gets its own value, G_t = V_t.

    Args:
        rewards: [T], the reward of each step.
        discounts: [T], the rule's discount times `experience.discount`: 0 where the episode ended.
        values: [T+1], the value of each observation, the last one included.
        valid: [T], False where nothing may be learned; None means that every step counts.
        trace: lambda, a number or one per step [T].
    """
    # G = V + A: one recursion serves both, and an invalid step, where A is 0, keeps its value.
    return now(values) + generalised_advantages(rewards, discounts, values, valid, trace=trace)


def n_step_returns(rewards: Array, discounts: Array, values: Array, valid: Array | None = None, *, steps: int) -> Array:
    """Returns [T] over the next n = `steps` rewards and the value after them (Sutton and Barto 2018, eq. 7.1).

    G_t^n = r_t + discount_t G_{t+1}^{n-1},  G_t^0 = V_t

    Where fewer than n steps are left, all of them count and the last value is bootstrapped from. An invalid step gets its own
    value, G_t = V_t, so that no return reaches across it.
    """
    valid, returns = _all_valid(valid, rewards), values
    for _ in range(min(steps, len(rewards))):
        longer = jnp.where(valid, rewards + discounts * later(returns), now(values))
        returns = jnp.concatenate([longer, values[-1:]])
    return now(returns)


def vtrace(
    rewards: Array,
    discounts: Array,
    values: Array,
    ratios: Array,
    valid: Array | None = None,
    *,
    trace: Array | float = 1.0,
    clips: Clips = Clips(),
) -> VTrace:
    """V-trace targets and policy-gradient advantages (Espeholt et al. 2018, eq. 1 and section 4.2), `ratios` [T] = pi / mu.

    v_t = V_t + acc_t  with  e_t = min(rho, ratio_t) d_t  and  c_t = min(c, ratio_t)
    A_t = min(rho', ratio_t) (r_t + discount_t (V_{t+1} + lambda (v_{t+1} - V_{t+1})) - V_t)

    The values may be those of a slow copy: the targets then are what the reference of DiscoRL calls `value_target`.

    Args:
        rewards: [T], the reward of each step.
        discounts: [T], the rule's discount times `experience.discount`: 0 where the episode ended.
        values: [T+1], the value of each observation, the last one included.
        ratios: [T], pi / mu: how likely the action taken is now, over how likely it was then.
        valid: [T], False where nothing may be learned; None means that every step counts.
        trace: lambda, a number or one per step [T].
        clips: the largest ratios of errors, traces and advantages.
    """
    valid = _all_valid(valid, rewards)
    errors = rewards + discounts * later(values) - now(values)
    corrections = accumulate(jnp.minimum(clips.error, ratios) * errors, discounts * trace * jnp.minimum(clips.trace, ratios), valid)
    # `_shift(corrections)` is v_{t+1} - V_{t+1}; beyond the trajectory there is nothing to correct the bootstrap with.
    advantages = jnp.minimum(clips.advantage, ratios) * (errors + discounts * trace * _shift(corrections))
    # `errors` of invalid steps still hold whatever the dummy showed; only their accumulation was masked.
    return VTrace(now(values) + corrections, jnp.where(valid, advantages, jnp.zeros_like(advantages)))


def retrace(
    rewards: Array,
    discounts: Array,
    values: Array,
    taken_values: Array,
    ratios: Array,
    valid: Array | None = None,
    *,
    trace: Array | float = 1.0,
) -> Array:
    """Retrace targets [T] of the values Q(s_t, a_t) of the actions taken (Munos et al. 2016, eq. 4).

    G_t = r_t + discount_t (V_{t+1} + lambda min(1, ratio_{t+1}) (G_{t+1} - Q_{t+1})),  V the policy's mean of Q.

    `taken_values` [T] are Q at the actions taken. An invalid step gets its own value, G_t = Q_t. Other corrections come from
    other `ratios`: the policy's own probability gives Tree-Backup, ones give Q(lambda) of Harutyunyan et al. (2016).

    Args:
        rewards: [T], the reward of each step.
        discounts: [T], the rule's discount times `experience.discount`: 0 where the episode ended.
        values: [T+1], the policy's mean of Q at each observation, the last one included.
        taken_values: [T], Q at the actions taken.
        ratios: [T], pi / mu of the actions taken.
        valid: [T], False where nothing may be learned; None means that every step counts.
        trace: lambda, a number or one per step [T].
    """
    errors = rewards + discounts * later(values) - taken_values
    # Cut by the ratio of the next action: Q is conditioned on the action taken at t, which needs no correction.
    return taken_values + accumulate(errors, discounts * trace * _shift(jnp.minimum(1.0, ratios)), valid)


def q_lambda(
    rewards: Array,
    discounts: Array,
    values: Array,
    valid: Array | None = None,
    greedy: Array | None = None,
    *,
    trace: Array | float = 1.0,
) -> Array:
    """Q(lambda) targets [T] of the actions taken, `values` [T+1] being those of the greedy actions: V_t = max_a Q(s_t, a).

    Without `greedy` this is Peng's: a lambda-return over V (Peng and Williams 1996). With `greedy` [T], whether the action
    taken was greedy, it is Watkins': the trace is cut before the first action that was not (Watkins 1989).

    Args:
        rewards: [T], the reward of each step.
        discounts: [T], the rule's discount times `experience.discount`: 0 where the episode ended.
        values: [T+1], the largest Q at each observation, the last one included.
        valid: [T], False where nothing may be learned; None means that every step counts.
        greedy: [T], whether the action taken was greedy; None for Peng's.
        trace: lambda, a number or one per step [T].
    """
    if greedy is not None:
        # A non-greedy action at t + 1 cuts what step t receives; Q is conditioned on the action at t.
        trace = trace * _shift(greedy.astype(rewards.dtype))
    return lambda_returns(rewards, discounts, values, valid, trace=trace)


def _shift(values: Array) -> Array:
    """Entry t becomes that of step t + 1; after the end there is nothing."""
    return jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])


def _all_valid(valid: Array | None, like: Array) -> Array:
    return jnp.ones(like.shape, bool) if valid is None else valid.astype(bool)
