"""The analyses of `rulax explain` in the order in which they run; each one fills its part of `explain.json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rulax.commands.build import make_trainer
from rulax.commands.explain.setup import Subject
from rulax.evaluation.explain import alignment, discovered, knowledge, trajectory
from rulax.evaluation.explain.intervals import over_groups
from rulax.evaluation.explain.record import Observed, TrainingRecord, observe, train_with_snapshots, windows
from rulax.evaluation.explain.record import first_streams as first
from rulax.evaluation.explain.reliance import Y, Z, without_predictions
from rulax.files import jsonable
from rulax.learning.train import CompiledTrainer, Trainer

WINDOW = 32  # steps of the trajectories that a rule is shown; the paper's have 29
RULE_STREAMS = 32  # of them, for what looks at the rule alone
GROUP_STEPS = 512  # steps of the batches whose gradients are compared: about one update's
ABLATIONS = {"own": "y and z blanked in ŷ and ẑ", "all": "y and z blanked in all targets"}
Report = Callable[[float, str], bool]  # how far a phase is, and what to say; False if the user asked to stop


class Analyses:
    """Everything that is known so far; `found` is what goes into `explain.json`."""

    def __init__(self, subject: Subject):
        self.subject, self.trainer = subject, compiled(subject.prepared.trainer)
        self.found: dict[str, Any] = {}
        self.life: TrainingRecord | None = None
        self.moments: dict[str, int] = {}
        self.watch = observe(self.trainer, subject.config.watch, subject.values)
        rule = self.trainer.recipe.rule
        # Compiled once for all snapshots and batches, whose shapes are the same; the rule is closed over, as it is no array.
        self.align = jax.jit(
            lambda params, state, agent, slow, part: alignment.align(rule, params, state, agent, slow, part, subject.values)
        )

    def phases(self) -> list[tuple[str, Callable[[Report], None], float]]:
        """What to do, with about how long each takes in seconds for disco103 on two cores."""
        config, inside = self.subject.config, self.subject.inside
        seconds = config.steps / (2500 if inside else 100_000)
        found: list[tuple[str, Callable[[Report], None], float]] = [
            ("training an agent", self.train, seconds),
            ("watching it over its life", self.look_over_life, 3.0 * config.snapshots),
        ]
        found.append(("looking closely", self.look_closely, 30.0))
        if self.can_ablate and config.ablations:
            found.append(("training without y and z", self.ablate, 2.3 * seconds))
        return found

    @property
    def can_ablate(self) -> bool:
        """Whether the rule has y and z that it could go without."""
        return self.subject.inside is not None and bool(self.subject.inside.sizes.predictions)

    def see(self, index: int) -> Observed:
        """What a snapshot does when it is left alone; the same each time it is asked."""
        assert self.life is not None
        # By index and not from a running key: asked again in another phase, a snapshot is watched in the very same episodes.
        key = jax.random.fold_in(jax.random.key(self.subject.config.seed), 1000 + index)
        return self.watch(self.life.snapshots[index], key)

    # -- phases ------------------------------------------------------------------------------------------------------------

    def train(self, report: Report) -> None:
        """The life that is looked at."""
        config = self.subject.config

        def go_on(step: int, mean: float | None) -> bool:
            return report(step / config.steps, "" if mean is None else f"return {mean:.2f}")

        self.life = train_with_snapshots(self.trainer, config.seed, config.snapshots, go_on)
        self.found["life"] = {"steps": self.life.steps, "returns": self.life.returns}

    def look_over_life(self, report: Report) -> None:
        """At every snapshot: what it achieves, the angle to the policy gradient, what its predictions know."""
        assert self.life is not None
        rows: list[dict[str, Any]] = []
        # Put there while still empty: what is filled in before an interruption is part of the results.
        self.found["over_life"] = rows
        for index, snapshot in enumerate(self.life.snapshots):
            observed = self.see(index)
            row: dict[str, Any] = {"step": snapshot.step, "return": observed.mean_return}
            row["cosines"] = self.compare_gradients(index, observed)
            row["probes"] = knowledge.probes_of(observed, self.subject.config.seed)
            if self.subject.inside is not None:
                shown = first(windows(observed.batch, WINDOW), RULE_STREAMS)
                row["reliance"] = discovered.reliance_of(
                    self.trainer.recipe.rule, self.trainer.rule_params, snapshot.rule_state, shown
                )
            rows.append(row)
            if not report((index + 1) / len(self.life.snapshots), f"snapshot {index + 1} of {len(self.life.snapshots)}"):
                break
        if len(rows) < len(self.life.snapshots):
            return  # stopped: the last of these is not the end of the life
        self.moments = choose_moments([row["return"] for row in rows])
        self.found["moments"] = {name: {"index": index, **brief(rows[index])} for name, index in self.moments.items()}

    def look_closely(self, report: Report) -> None:
        """At three moments: confidence, horizon, saliency, and a trajectory for the page."""
        assert self.life is not None
        inside = self.subject.inside
        close: dict[str, Any] = {}
        self.found["close"], self.found["scenes"] = close, []
        if inside is not None:
            self.found["weights"] = trajectory.weights(inside.network, inside.sizes, inside.constants)
        for place, (name, index) in enumerate(self.moments.items()):
            snapshot, observed = self.life.snapshots[index], self.see(index)
            close[name] = {"confidence": knowledge.confidence_of(observed, self.subject.config.seed)}
            part = (inside.network, inside.sizes) if inside else None
            self.found["scenes"].append(jsonable(trajectory.scene(name, snapshot, observed, part)))
            if inside is not None:
                close[name] |= self.inside_of(snapshot, first(windows(observed.batch, WINDOW), RULE_STREAMS))
            if not report((place + 1) / len(self.moments), name):
                break

    def inside_of(self, snapshot: Any, shown: Any) -> dict[str, Any]:
        """The meta-network at one moment: how far it bootstraps and what it listens to."""
        inside, trainer = self.subject.inside, self.trainer
        assert inside is not None
        seed = self.subject.config.seed
        found = {"saliency": discovered.saliency_of(*inside[:3], snapshot.rule_state, shown, seed)}
        if inside.sizes.predictions:
            arguments = (trainer.recipe.rule, trainer.rule_params, snapshot.rule_state, shown)
            found["horizon"] = {
                f"{letter}{' hidden' if hidden else ''}": discovered.horizon_of(*arguments, head, hidden, seed)
                for letter, head, hidden in (("z", Z, False), ("y", Y, False), ("z", Z, True))
            }
        return found

    def ablate(self, report: Report) -> None:
        """The paper's last analysis: does an agent still learn by a rule that does not see y and z?"""
        config, prepared = self.subject.config, self.subject.prepared
        lives: dict[str, Any] = {}
        self.found["ablations"] = lives
        for place, (name, label) in enumerate(ABLATIONS.items()):
            rule = without_predictions(prepared.recipe.rule, everywhere=name == "all")
            trainer = compiled(make_trainer(prepared.environment, prepared.recipe._replace(rule=rule), prepared.config))

            def go_on(step: int, mean: float | None, place: int = place, label: str = label) -> bool:
                shown = "" if mean is None else f"return {mean:.2f}"
                return report((place + step / config.steps) / len(ABLATIONS), f"{label}: {shown}")

            record = train_with_snapshots(trainer, config.seed, 0, go_on)
            trainer.close()
            lives[name] = {"label": label, "steps": record.steps, "returns": record.returns, "finished": record.finished}
            if not record.finished:
                break

    # -- parts -------------------------------------------------------------------------------------------------------------

    def compare_gradients(self, index: int, observed: Observed) -> dict[str, Any]:
        """Cosines with the policy gradient, one per batch of about the size of an update, with intervals over batches."""
        assert self.life is not None
        snapshot, trainer = self.life.snapshots[index], self.trainer
        streams = observed.batch.experience.action.shape[1] * (observed.batch.experience.action.shape[0] // WINDOW)
        # At least two, because the noise of the policy gradient is measured by halving a batch.
        size = min(streams, max(2, GROUP_STEPS // WINDOW))
        experience = windows(observed.batch, WINDOW, snapshot.params.initial_memory(streams)).experience
        found: dict[str, list[float]] = {}
        for start in range(0, streams - size + 1, size):
            part = streams_of(experience, slice(start, start + size))
            arguments = (trainer.rule_params, snapshot.rule_state, snapshot.params, snapshot.slow, part)
            for name, value in self.align(*arguments).items():
                found.setdefault(name, []).append(float(value))
        return {name: over_groups(np.array(values)) for name, values in found.items()} | {"batch": size * WINDOW}


def compiled(trainer: Trainer) -> CompiledTrainer:
    """The trainer of a jittable environment; set-up has refused others."""
    assert isinstance(trainer, CompiledTrainer)
    return trainer


def streams_of(experience: Any, part: slice) -> Any:
    """Some streams of an experience on the host."""
    # Memory has no time axis, so streams are its first axis and the second one of everything else.
    memory = jax.tree.map(lambda x: np.asarray(x)[part], experience.memory)
    return jax.tree.map(lambda x: x[:, part], experience._replace(memory=()))._replace(memory=memory)


def choose_moments(returns: list[float | None]) -> dict[str, int]:
    """Start, end, and the moment that is nearest to half of what was learned."""
    last = len(returns) - 1
    known = [value for value in returns if value is not None]
    if last < 2:
        return {"untrained": 0, "trained": last} if last else {"untrained": 0}
    middle = last // 2
    if known and max(known) > min(known):
        # Of the best and not of the last return: an agent that forgets again was half trained on its way up.
        half = (known[0] + max(known)) / 2
        gaps = [np.inf if value is None else abs(value - half) for value in returns]
        # Ends are excluded, since they are moments of their own.
        middle = min(range(1, last), key=lambda index: (gaps[index], abs(index - last // 2)))
    return {"untrained": 0, "learning": middle, "trained": last}


def brief(row: dict[str, Any]) -> dict[str, Any]:
    """What a moment is called by."""
    return {"step": row["step"], "return": row["return"]}
