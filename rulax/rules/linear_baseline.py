"""A baseline without a network: ridge regression of returns on simple features, fitted to every batch (Duan et al. 2016b)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.types import Array, Experience, now, starts

RIDGE = 1e-5


def fitted_values(experience: Experience, returns: Array) -> Array:
    """A linear function of (o, o², t, t², t³, 1), fitted to the returns [T, B] of valid steps, at all steps: [T, B]."""
    features = episode_features(experience).reshape(returns.size, -1)
    weight = experience.valid.reshape(-1).astype(returns.dtype)
    clean = jnp.where(experience.valid, returns, 0).reshape(-1)  # an invalid step may hold a NaN
    weighted = features * weight[:, None]
    # One-hot observations equal their squares: without the ridge the system would be singular.
    square = weighted.T @ features + RIDGE * jnp.eye(features.shape[1], dtype=features.dtype)
    solution = jax.scipy.linalg.solve(square, weighted.T @ clean, assume_a="pos")
    return (features @ solution).reshape(returns.shape)


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
