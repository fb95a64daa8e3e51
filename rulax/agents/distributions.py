"""How actions are chosen from a policy: drawn, or the likeliest. What policies say of actions is in values/policies.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.types import Array, Policy, is_real, logits_of


def sample_choice(key: Array, policy: Policy) -> Array:
    """Draw actions [...] from logits [..., A], or [..., D] from a factored policy or one over D real numbers."""
    return policy.sample(key) if is_real(policy) else jax.random.categorical(key, logits_of(policy))


def likeliest_choice(policy: Policy) -> Array:
    """The actions without exploration: [...] from logits [..., A], or [..., D] from a factored policy or one over real numbers."""
    return policy.greedy() if is_real(policy) else jnp.argmax(logits_of(policy), -1)
