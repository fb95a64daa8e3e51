"""Settings of a learned drift function: the size of its network, and the constants of the rule around it. No JAX here."""

from __future__ import annotations

import dataclasses

from rulax.settings import setting


@dataclasses.dataclass(frozen=True)
class DriftSizes:
    """The network of a learned drift function, as in Lu et al. (2022): eight features, one hidden layer, no biases."""

    drift_hidden: int = setting(128, at_least=1)
    """Width of its hidden layer."""


@dataclasses.dataclass(frozen=True)
class DriftConstants:
    """Hand-chosen constants of the rule; those that PPO has too are PPO's."""

    discount: float = setting(0.99, at_least=0, at_most=1)
    """Discount of the value."""
    trace: float = setting(0.95, at_least=0, at_most=1)
    """Lambda of the generalised advantages."""
    clip: float = setting(0.2, at_least=0)
    """Of PPO's drift, to which the network adds its own."""
    flat: float = setting(1e-4, above=0)
    """How much the network must say before it counts, so that there is no drift around ratio 1 whatever its weights."""
    first_std: float = setting(0.0, at_least=0)
    """Standard deviation of the network's last weights at first; with 0 the rule starts as PPO, exactly."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    value_cost: float = 0.1
    """Weight of the value's loss."""
    bins: int = setting(61, at_least=2)
    """Bins of the two-hot value."""
    largest_value: float = setting(60.0, above=0)
    """Value of the outermost bins, in squashed space."""
