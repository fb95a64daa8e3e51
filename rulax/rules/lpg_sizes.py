"""Settings of a learned policy gradient: the sizes of its network, and its constants. No JAX here."""

from __future__ import annotations

import dataclasses

from rulax.settings import setting


@dataclasses.dataclass(frozen=True)
class LpgSizes:
    """The network that says what an agent's predictions should become; as large as in Oh et al. (2020)."""

    prediction_size: int = setting(30, at_least=2)
    """Categories of y, the agent's prediction without a fixed meaning."""
    hidden: int = setting(256, at_least=1)
    """Width of the LSTM that reads a trajectory backwards."""
    encoder_hidden: int = setting(16, at_least=1)
    """Width of the hidden layer that makes one number of y."""


@dataclasses.dataclass(frozen=True)
class LpgConstants:
    """Hand-chosen constants of the rule."""

    discount: float = setting(0.99, at_least=0, at_most=1)
    """Only an input of the network: what it makes of it is learned."""
    prediction_cost: float = setting(0.5, at_least=0)
    """Weight of y's divergence from its target."""
