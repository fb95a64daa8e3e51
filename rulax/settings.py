"""Numbers that say how a rule is run and what network it trains. A rule recommends them, a user may override each.

Nothing here imports JAX: the command line builds its flags from these fields and must answer `--help` at once.
"""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Learning:
    """How a rule is run: where its data comes from and how its gradient becomes a step."""

    streams: int = 64
    """Copies of the environment that act side by side."""
    unroll: int = 16
    """Steps per trajectory (T)."""
    batch: int = 0
    """Trajectories per update; 0 means one per stream."""
    replay: float = 0.0
    """Fraction of each batch drawn from the replay buffer; the rest is fresh."""
    capacity: int = 1024
    """Size of the replay buffer in trajectories, rounded up to a multiple of the streams."""
    burn_in: int = 0
    """Steps at the start of each trajectory that only refresh a recurrent memory, and are not learned from."""
    warmup: int = 0
    """Trajectories that the replay buffer must hold before the first update."""
    epochs: int = 1
    """Passes over each batch with the same targets."""
    minibatches: int = 1
    """Parts into which a batch is split, by streams, in each pass."""
    learning_rate: float = 3e-4
    """Step size at the start."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the step size falls to zero over the run."""
    warmup_updates: int = 0
    """Gradient steps over which the step size rises from zero."""
    clip_gradient: float = 0.0
    """Largest global norm of a gradient, before Adam; 0 means no limit."""
    clip_update: float = 0.0
    """Largest absolute element of Adam's direction, before the learning rate; 0 means no limit."""
    weight_decay: float = 0.0
    """Decoupled weight decay, times the learning rate."""
    adam_b1: float = 0.9
    """Adam: decay of the mean of gradients."""
    adam_b2: float = 0.999
    """Adam: decay of the mean of squared gradients."""
    adam_eps: float = 1e-8
    """Adam: added to the denominator."""
    reward_scale: float = 1.0
    """What rewards are multiplied with before the rule sees them; returns are reported as the environment pays them."""
    slow_decay: float = 0.9
    """How much of the slow copy of the agent stays at each update."""


@dataclasses.dataclass(frozen=True)
class Network:
    """What the agent is made of."""

    torso: Literal["auto", "mlp", "conv", "strided", "impala"] = "auto"
    """How images are read; auto takes conv from 8 x 8 pixels on, strided from 32 x 32 on, and mlp for all else."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the fully connected layers of the torso."""
    channels: tuple[int, ...] = ()
    """Channels of the convolutions, if the torso has any; none means the torso's own."""
    blocks: int = 2
    """Residual blocks per section of the torso impala."""
    symbols: int = 6000
    """How many symbols there are, where an observation is made of whole numbers (NetHack's glyphs)."""
    embedding: int = 16
    """Width of the vector that stands for a symbol."""
    activation: Literal["relu", "tanh", "elu", "gelu", "swish"] = "relu"
    """Non-linearity of the torso."""
    activate_last: bool = True
    """Whether the torso's last layer is followed by the non-linearity (in the reference it is not)."""
    core: Literal["none", "lstm", "gru"] = "none"
    """Recurrent memory between torso and heads."""
    core_size: int = 128
    """Width of that memory."""
    memory_level: Literal["episode", "trial", "life"] = "episode"
    """When that memory is cleared: at the start of every episode, of every trial or task, or never in a lifetime."""
    action_model: int = 128
    """Width of the action-conditional LSTM, where a rule asks for predictions per action."""
    action_hidden: tuple[int, ...] = (128,)
    """Hidden widths of the heads behind it."""
    value_init: Literal["drawn", "zero"] = "drawn"
    """Values of actions that a newborn predicts: as its weights happen to be drawn (as in the reference), or zero for all."""
