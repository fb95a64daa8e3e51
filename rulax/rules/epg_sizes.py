"""Settings of an evolved loss: the sizes of its network, and the constants of the rule around it. No JAX here."""

from __future__ import annotations

import dataclasses

from rulax.settings import setting

HANDOVER = "ppo_share"  # the entry of the rule's state by which discovery lets PPO's share fall


@dataclasses.dataclass(frozen=True)
class EpgSizes:
    """The loss network, with the widths of Houthooft et al. (2018)."""

    buffer: int = setting(512, at_least=32)
    """Latest steps of the life that make up its context; 32 is what both convolutions need."""
    first_channels: int = setting(16, at_least=1)
    """Channels of the first convolution over time, 6 steps wide with a stride of 5."""
    second_channels: int = setting(32, at_least=1)
    """Channels of the second, 4 wide with a stride of 2."""
    context: int = setting(32, at_least=1)
    """Width of what is made of their mean over time."""
    loss_hidden: int = setting(16, at_least=1)
    """Width of the layer between a step with its context and its loss."""


@dataclasses.dataclass(frozen=True)
class EpgConstants:
    """Hand-chosen constants of the rule; those that PPO has too are PPO's."""

    ppo_share: float = setting(0.0, at_least=0, at_most=1)
    """Share of PPO's loss in the mixture: 1 is PPO itself. Discovery may let it fall from 1 (setting handover)."""
    first_std: float = setting(0.0, at_least=0)
    """Standard deviation of the loss network's last weights at first: with 0 it teaches nothing until it has been found."""
    discount: float = setting(0.99, at_least=0, at_most=1)
    """Discount of the value."""
    trace: float = setting(0.95, at_least=0, at_most=1)
    """Lambda of the generalised advantages."""
    clip: float = setting(0.2, at_least=0)
    """Of PPO's part."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus, in PPO's part."""
    value_cost: float = 0.1
    """Weight of the value's loss, which is not learned."""
    bins: int = setting(61, at_least=2)
    """Bins of the two-hot value."""
    largest_value: float = setting(60.0, above=0)
    """Value of the outermost bins, in squashed space."""
