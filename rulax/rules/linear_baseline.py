"""A baseline without a network: ridge regression of returns on simple features, fitted to every batch (Duan et al. 2016b)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.types import Array, Experience, now, starts

RIDGE = 1e-5  # the least
TRIES = 9  # each with ten times the ridge of the one before


def fitted_values(experience: Experience, returns: Array) -> Array:
    """A linear function of (o, o², t, t², t³, 1), fitted to the returns [T, B] of valid steps, at all steps: [T, B]."""
    features = episode_features(experience).reshape(returns.size, -1)
    weight = experience.valid.reshape(-1).astype(returns.dtype)
    clean = jnp.where(experience.valid, returns, 0).reshape(-1)  # an invalid step may hold a NaN
    weighted = features * weight[:, None]
    square, projected = weighted.T @ features, weighted.T @ clean
    # A baseline is data, like the returns that it is fitted to.
    square, projected, features, clean = jax.lax.stop_gradient((square, projected, features, clean))
    # A ridge solution never fits worse than zero does; with a margin for rounding.
    most = 1.01 * jnp.sum(jnp.square(clean))

    def fit(tried: Fit) -> Fit:
        ridge = 10 * tried.ridge
        # One-hot observations equal their squares: without the ridge the system would be singular.
        damped = square + ridge * jnp.eye(len(square), dtype=square.dtype)
        solution = jax.scipy.linalg.solve(damped, projected, assume_a="pos")
        return Fit(ridge, features @ solution, tried.tries + 1)

    def unfit(tried: Fit) -> Array:
        error = jnp.sum(jnp.square(clean - weight * tried.values))
        return (tried.tries < TRIES) & ~(error <= most)  # not `>`: the error may be NaN

    # In float32 the least ridge is too small where many features repeat each other, for example numbers that stay the same over
    # an episode in fewer episodes than numbers. The next ones are then tried, as in the published code; all others keep the least.
    start = Fit(jnp.asarray(RIDGE / 10, clean.dtype), jnp.full_like(clean, jnp.nan), jnp.int32(0))
    return jax.lax.while_loop(unfit, fit, start).values.reshape(returns.shape)


class Fit(NamedTuple):
    """One attempt to fit the baseline."""

    ridge: Array  # []
    values: Array  # [T * B], of the fitted function at all steps
    tries: Array  # [] int32, how many attempts there have been


def episode_features(experience: Experience) -> Array:
    """Features [T, B, F] of each observation and of the time since its episode began, in hundreds of steps."""
    parts = jax.tree.leaves(now(experience.observation))  # an observation may be a dictionary
    # Clipped, and time in hundreds, as in the linear baseline of rllab (Duan et al. 2016b).
    flat = [jnp.clip(part, -10, 10).reshape(*experience.reward.shape, -1) for part in parts]
    observation = flat[0] if len(flat) == 1 else jnp.concatenate(flat, -1)
    time = (steps_since_start(now(experience.first)) / 100).astype(observation.dtype)[..., None]
    return jnp.concatenate([observation, observation**2, time, time**2, time**3, jnp.ones_like(time)], -1)


def steps_since_start(first: Array) -> Array:
    """Steps [T, B] since the episode began, or since the batch began if the episode is older, from episode starts [T, B]."""
    index = jnp.arange(first.shape[0])[:, None]
    return index - jax.lax.cummax(jnp.where(starts(first), index, 0), 0)
