"""Settings of a discovered rule: sizes and switches of its meta-network, and the constants of its losses.

No JAX here: the command line reads these fields, and rule files store them.
"""

from __future__ import annotations

import dataclasses

from rulax.settings import setting

ABLATIONS = {  # as in `disco103:no_yz`: the switch of `Sizes` that each turns off
    "no_yz": "predictions",
    "no_bootstrap": "bootstrap",
    "no_lifetime": "lifetime",
    "no_value": "value",
    "no_next_policy": "next_policy",
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes and switches of the meta-network. The defaults are those of Disco103 (Oh et al. 2025, Methods)."""

    prediction_size: int = setting(600, at_least=1)
    """Numbers in each state prediction (y) and each action prediction (z)."""
    bins: int = setting(601, at_least=2)
    """Bins of the two-hot action value (q)."""
    largest_value: float = 300.0
    """Value of the outermost bins, in squashed space."""
    hidden: int = setting(256, at_least=1)
    """Width of the LSTM that runs backwards in time."""
    embedding: int = setting(16, at_least=1)
    """Hidden width of the encoders of y and z, whose output is one number."""
    action_channels: tuple[int, ...] = setting((16, 2), at_least=1)
    """Channels of the action-set convolution that reads the inputs per action."""
    policy_channels: tuple[int, ...] = setting((16,), at_least=1)
    """Channels of the action-set convolution before the policy target."""
    lifetime_hidden: int = setting(128, at_least=1)
    """Width of the LSTM that runs over the agent's updates."""
    lifetime_embedding: int = setting(16, at_least=1)
    """Width of its input, one vector per update."""
    predictions: bool = True
    """Whether the agent makes the predictions y and z, whose meaning is left to discovery."""
    bootstrap: bool = True
    """Whether a target may depend on predictions of later states: y, z and the value at t + 1 (its Retrace advantage stays)."""
    lifetime: bool = True
    """Whether the rule remembers anything from one update to the next."""
    value: bool = True
    """Whether the agent predicts the action value q, and the rule reads it."""
    next_policy: bool = True
    """Whether the agent predicts its own policy at the next state (p)."""

    def __post_init__(self) -> None:
        for name in ("action_channels", "policy_channels"):
            value = getattr(self, name)
            object.__setattr__(self, name, tuple(value) if isinstance(value, (list, tuple)) else (value,))  # as YAML gives them
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), field.metadata.get("bounds", {}).get("at_least")
            if least is None:
                continue
            numbers = value if isinstance(value, tuple) else (value,)
            if not numbers or any(type(number) is not int or number < least for number in numbers):
                raise ValueError(f"{field.name} must be a whole number of at least {least}, or a list of them, not {value!r}")

    @property
    def scalars(self) -> int:
        """Numbers per step that need no encoding: probabilities 3, outcome 2, and 4 about the value."""
        return 5 + (4 if self.value else 0)

    @property
    def channels(self) -> int:
        """Numbers per action: probabilities 3, the action taken 1, z and the slow copy's z 2, and 3 about the value."""
        return 4 + (2 if self.predictions else 0) + (3 if self.value else 0)

    @property
    def inputs(self) -> int:
        """Numbers per step that the backward LSTM reads: scalars, 14 of y and z, two views of the action encoding."""
        return self.scalars + (14 if self.predictions else 0) + 2 * self.action_channels[-1]


@dataclasses.dataclass(frozen=True)
class Constants:
    """Hand-chosen constants of a discovered rule, with the values that Disco103 was discovered with."""

    discount: float = setting(0.997, at_least=0, at_most=1)
    """Discount of the action value."""
    trace: float = setting(0.95, at_least=0, at_most=1)
    """Lambda of its Retrace target."""
    policy_cost: float = 1.0
    """Weight of KL(policy target || policy)."""
    state_prediction_cost: float = 1.0
    """Weight of the same for y."""
    action_prediction_cost: float = 1.0
    """Weight of the same for z at the action taken."""
    next_policy_cost: float = 1.0
    """Weight of the same for p at the action taken; its target is the policy one step later."""
    value_cost: float = 0.2
    """Weight of the two-hot loss of q at the action taken."""
    moments_decay: float = setting(0.99, at_least=0, at_most=1)
    """Decay of the moving averages that normalise advantages and errors."""
