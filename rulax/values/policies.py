"""What policies say of actions: log-probabilities, entropies, divergences. Factored policies add up.

Policies over choices are given as logits; those over real numbers know their own densities (real_policies.py).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.types import Array, Factored, Policy, is_real, logits_of


def at_action(values: Array, action: Array) -> Array:
    """Of values per action [..., A], the one at `action` [...]."""
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]


def log_probability(policy: Policy, action: Array) -> Array:
    """Log-probability [...] of an action, [...] or with all its dimensions [..., D], under a policy of logits [..., A]."""
    if is_real(policy):
        return policy.log_probability(action)
    return joint(policy, at_action(jax.nn.log_softmax(logits_of(policy)), action))


def exploring(probabilities: Array, epsilon: Array | float) -> Array:
    """Logits [..., A] of the policy that follows `probabilities` [..., A] but for a share epsilon of uniformly random actions."""
    mixed = (1 - epsilon) * probabilities + epsilon / probabilities.shape[-1]
    # Never quite zero, so that the logarithm of a policy without exploration is finite.
    return jnp.log(jnp.maximum(mixed, 1e-8))


def epsilon_greedy(values: Array, epsilon: Array | float) -> Array:
    """Logits [..., A] of the policy that takes the action of the largest value [..., A], but for a share epsilon of random ones."""
    return exploring(jax.nn.one_hot(jnp.argmax(values, -1), values.shape[-1], dtype=values.dtype), epsilon)


def entropy(policy: Policy) -> Array:
    """Entropy [...] of the distribution over actions that a policy of logits [..., A] says."""
    if is_real(policy):
        return policy.entropy()
    logits = logits_of(policy)
    # `log_softmax`, not the logarithm of the softmax, which is -inf where a probability underflows.
    return joint(policy, -jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), -1))


def kl(target_policy: Policy, policy: Policy) -> Array:
    """KL(target || prediction) [...] of two categorical distributions given as logits."""
    target = jax.nn.log_softmax(logits_of(target_policy))
    return joint(policy, jnp.sum(jnp.exp(target) * (target - jax.nn.log_softmax(logits_of(policy))), -1))


def joint(policy: Policy, values: Array) -> Array:
    """What holds of an action [...], from what holds of each of its dimensions [..., D]: they are independent, so it adds up."""
    return jnp.sum(values, -1) if isinstance(policy, Factored) else values
