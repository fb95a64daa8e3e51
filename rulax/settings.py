"""Numbers that say how a rule is run and what network it trains. A rule recommends them, a user may override each.

Nothing here imports JAX: the command line builds its flags from these fields and must answer `--help` at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from rulax.errors import UserError
from rulax.own import JsonFile, OwnPart

STEP_LIMIT = 300.0  # seconds that one step or reset of a host environment may take


def setting(
    default: Any,
    group: str = "",
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    not_empty: bool = False,
    on_resume: bool = False,
    formerly: str = "",
    before: Any = dataclasses.MISSING,
    **metadata: Any,
) -> Any:
    """A dataclass field together with all that is known about it; commands/settings.py reads it.

    Args:
        default: its default value; `dict` makes a new dictionary for each instance.
        group: the heading under which `--help` lists its flag.
        at_least, above, at_most, below: bounds of the number, or of each number of a tuple.
        not_empty: whether a tuple must hold at least one number.
        on_resume: whether a resumed run may change it, because what is computed does not depend on it.
        formerly: its name in earlier versions, which is still understood.
        before: what runs did before the setting existed; run folders of that time lack it.
        metadata: `positional`, `metavar`, or `settings` (the dataclasses whose fields an `overrides` field takes).
    """
    bounds = {"at_least": at_least, "above": above, "at_most": at_most, "below": below}
    known = {name: bound for name, bound in bounds.items() if bound is not None} | ({"not_empty": True} if not_empty else {})
    facts: dict[str, Any] = {"group": group, "bounds": known, "on_resume": on_resume, **metadata}
    facts |= {"formerly": formerly} if formerly else {}
    # MISSING and not None as the mark, since None may be what runs did before.
    facts |= {"before": before} if before is not dataclasses.MISSING else {}
    if default is dict:
        # dataclasses refuse a mutable default, which all instances would share.
        return dataclasses.field(default_factory=dict, metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


class Bounds(dict[str, float]):
    """The bounds of an argument, written where it is declared: `discount: Annotated[float, Bounds(at_least=0, at_most=1)]`."""


Fraction = Annotated[float, Bounds(at_least=0, at_most=1)]


def check_bounds(settings: Any) -> None:
    """Each number of a dataclass against the bounds of its own field; a `UserError` names the first that is beyond them."""
    for field in dataclasses.fields(settings):
        check_value(field.name, getattr(settings, field.name), field.metadata.get("bounds", {}))


def check_value(label: str, value: Any, bounds: Mapping[str, float]) -> None:
    """One number, or each of a tuple, against its bounds; what has none, text and dictionaries among it, passes."""
    if bounds.get("not_empty") and value == ():
        raise UserError(f"{label} needs at least one number, for example 64")
    for number in value if isinstance(value, tuple) else (value,):
        if not _within(number, bounds):
            found = f"{number:g}" if isinstance(number, float) else number
            raise UserError(f"{label} must {_in_words(bounds)}, not {found}")


def _within(number: Any, bounds: Mapping[str, float]) -> bool:
    tests = {
        "at_least": lambda bound: number >= bound,
        "above": lambda bound: number > bound,
        "at_most": lambda bound: number <= bound,
        "below": lambda bound: number < bound,
    }
    return all(tests[name](bound) for name, bound in bounds.items() if name in tests)


def _in_words(bounds: Mapping[str, float]) -> str:
    if "at_least" in bounds and "at_most" in bounds:
        return f"lie between {bounds['at_least']} and {bounds['at_most']}"
    # Whoever gave -1 understands "must not be negative" sooner than a bound of 0.
    if bounds.get("at_least") == 0 and "below" not in bounds:
        return "not be negative"
    words = {"at_least": "at least", "above": "greater than", "at_most": "at most", "below": "less than"}
    return "be " + " and ".join(f"{words[name]} {bound}" for name, bound in bounds.items() if name in words)


def earlier_names(*classes: type) -> dict[str, str]:
    """The names that fields had in earlier versions, each with today's."""
    fields = [field for cls in classes for field in dataclasses.fields(cls)]
    return {field.metadata["formerly"]: field.name for field in fields if "formerly" in field.metadata}


def with_current_names(values: Mapping[str, Any], *classes: type) -> dict[str, Any]:
    """Settings by name, where names of earlier versions are replaced by today's."""
    earlier = earlier_names(*classes)
    return {earlier.get(name, name): value for name, value in values.items()}


@dataclasses.dataclass(frozen=True)
class Learning:
    """How a rule is run: where its data comes from and how its gradient becomes a step."""

    streams: int = setting(64, at_least=1)
    """Copies of the environment that act side by side."""
    unroll: int = setting(16, at_least=1)
    """Steps per trajectory (T)."""
    batch: int = setting(0, at_least=0)
    """Trajectories per update; 0 means one per stream."""
    replay: float = setting(0.0, at_least=0, at_most=1)
    """Fraction of each batch drawn from the replay buffer; the rest is fresh."""
    capacity: int = setting(1024, at_least=1)
    """Size of the replay buffer in trajectories, rounded up to a multiple of the streams."""
    replay_priority: float = setting(0.0, at_least=0, before=0.0)
    """How strongly replay prefers trajectories with large errors: it draws in proportion to this power of their priority; 0 draws
    all alike."""
    replay_correction: float = setting(0.4, at_least=0, at_most=1, before=0.4)
    """How much of that preference importance weights undo in the loss: none at 0, all at 1."""
    burn_in: int = setting(0, at_least=0)
    """Steps at the start of each trajectory that only refresh a recurrent memory, and are not learned from."""
    warmup: int = setting(0, at_least=0)
    """Trajectories that the replay buffer must hold before the first update."""
    epochs: int = setting(1, at_least=1)
    """Passes over each batch with the same targets."""
    minibatches: int = setting(1, at_least=1)
    """Parts into which a batch is split in each pass."""
    shuffle: Literal["streams", "steps"] = setting("streams", before="streams")
    """What those parts are drawn from: whole streams, in which a recurrent agent can remember, or single steps."""
    learning_rate: float = setting(3e-4, above=0)
    """Step size at the start."""
    schedule: Literal["constant", "linear", "cosine"] | JsonFile = "constant"
    """How the step size falls to zero: over schedule_steps in training, over the lifetime of each agent in discovery. In training
    also a file that a population has written, schedule.json, or its run folder: every hyper-parameter in it is followed."""
    schedule_steps: int = setting(0, at_least=0, before=0)
    """Environment steps over which a schedule falls: a shorter run is the start of one of this length. A longer run, and every
    run if it is 0, falls over its own steps."""
    warmup_updates: int = setting(0, at_least=0)
    """Gradient steps over which the step size rises from zero."""
    clip_gradient: float = setting(0.0, at_least=0)
    """Largest global norm of a gradient, before Adam; 0 means no limit."""
    clip_update: float = setting(0.0, at_least=0)
    """Largest absolute element of Adam's direction, before the learning rate; 0 means no limit."""
    weight_decay: float = setting(0.0, at_least=0)
    """Decoupled weight decay, times the learning rate."""
    adam_b1: float = setting(0.9, at_least=0, below=1)
    """Adam: decay of the mean of gradients."""
    adam_b2: float = setting(0.999, at_least=0, below=1)
    """Adam: decay of the mean of squared gradients."""
    adam_eps: float = setting(1e-8, above=0)
    """Adam: added to the denominator."""
    reward_scale: float = setting(1.0, above=0, before=1.0)
    """What rewards are multiplied with before the rule sees them; returns are reported as the environment pays them."""
    normalise_observations: bool = setting(False, before=False)
    """Show the agent observations with mean 0 and deviation 1, by running statistics that are saved with it."""
    normalise_rewards: bool = setting(False, before=False)
    """Divide rewards by the running deviation of their discounted return (discount 0.99) before the rule sees them."""
    worst: float = setting(1.0, above=0, at_most=1, before=1.0)
    """Share of the episodes to learn from, those with the lowest returns (EPOpt): 0.1 is the worst tenth of those that end in an
    unroll, which should be longer than an episode; 1 means all."""
    worst_after: int = setting(100, at_least=0, before=100)
    """Unrolls at the start that are learned from as a whole, whatever the share."""
    slow_decay: float = setting(0.9, at_least=0, at_most=1)
    """How much of the slow copy of the agent stays at each update."""
    slow_period: int = setting(0, at_least=0, before=0)
    """Updates between two moves of the slow copy: with slow_decay 0 it becomes the agent then. 0 and 1 move it at every update."""


@dataclasses.dataclass(frozen=True)
class Network:
    """What the agent is made of."""

    torso: Literal["auto", "mlp", "conv", "strided", "impala"] | OwnPart = "auto"
    """How images are read; auto takes conv from 8 x 8 pixels on, strided from 32 x 32 on, and mlp for all else. Or your own, as
    file.py:name."""
    hidden: tuple[int, ...] = setting((64, 64), at_least=1, not_empty=True)
    """Widths of the fully connected layers of the torso."""
    channels: tuple[int, ...] = setting((), at_least=1)
    """Channels of the convolutions, if the torso has any; none means the torso's own."""
    blocks: int = setting(2, at_least=0)
    """Residual blocks per section of the torso impala."""
    symbols: int = setting(6000, at_least=1)
    """How many symbols there are, where an observation is made of whole numbers (NetHack's glyphs)."""
    embedding: int = setting(16, at_least=1)
    """Width of the vector that stands for a symbol."""
    activation: Literal["relu", "tanh", "elu", "gelu", "swish"] = "relu"
    """Non-linearity of the torso."""
    activate_last: bool = True
    """Whether the torso's last layer is followed by the non-linearity (in the reference it is not)."""
    core: Literal["none", "lstm", "gru", "associative", "episodic_lstm"] | OwnPart = "none"
    """Recurrent memory between torso and heads; associative finds what followed similar observations, episodic_lstm also keeps a
    table by contexts. Or your own, as file.py:name."""
    core_size: int = setting(128, at_least=1)
    """Width of that memory."""
    core_rows: int = setting(16, before=16, at_least=1)
    """Contexts that the table of the core episodic_lstm holds (those least recently met are given up), or the width of the
    addresses of the core associative."""
    memory_level: Literal["episode", "trial", "life"] = setting("episode", before="episode")
    """When that memory is cleared: at the start of every episode, of every trial or task, or never in a lifetime."""
    action_distribution: Literal["gaussian", "squashed", "beta", "bins"] = setting("bins", before="bins")
    """Policy over real-valued actions: Gaussian, clipped by the environment or squashed by tanh, Beta, or a choice of bins."""
    action_model: int = setting(128, at_least=1)
    """Width of the action-conditional LSTM, where a rule asks for predictions per action."""
    action_hidden: tuple[int, ...] = setting((128,), at_least=1)
    """Hidden widths of the heads behind it."""
    value_init: Literal["drawn", "zero"] = setting("drawn", before="drawn", formerly="first_values")
    """Action values that a new agent predicts: whatever its random weights give (as in the reference), or zero everywhere."""
