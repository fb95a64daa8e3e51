"""The episodic LSTM's experiments: the barcode bandit, and the same without a table."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from rulax.agents import Agent
from rulax.envs.barcode import barcode_bandit
from rulax.envs.tasks import Recurring
from rulax.evaluation.references import one_good_arm
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.episodic_lstm import EpisodicLSTM, play_exposures, without_reinstatement
from rulax.methods.loop import advance_trainer
from rulax.methods.rl2 import make_trainer

TEST_EPOCHS = {"quick": 200, "full": 1_000}
TEST_SEED = 2018  # never a seed of training
SECOND, THIRD = 7.0, 8.3  # of 10, what the full suite asks of the second exposure, and of those from the third on
FORGETFUL = 4.6  # of 10, the most that it allows with the gate closed
EXPOSURE, CLOSED = "exposure", "gate closed"  # what details of the record are called; benchmarks/exposures.py reads them


class Sizes(NamedTuple):
    """A barcode bandit."""

    arms: int = 10
    pulls: int = 10
    barcodes: int = 10
    repeats: int = 10
    bits: int = 10

    def make(self) -> Recurring:
        """The environment."""
        return barcode_bandit(*self)


class Barcodes(NamedTuple):
    """What to train, and on which bandit."""

    method: EpisodicLSTM
    sizes: Sizes


class EpisodicRun(SeedRun):
    """One seed: a recurrent agent and the bandits it is trained on."""

    kept = ("state",)

    def __init__(self, suites: dict[Suite, Barcodes], suite: Suite, seed: int):
        (self.method, self.sizes), self.suite = suites[suite], suite
        self.trainer = make_trainer(self.method)
        self.state = self.trainer.init(jax.random.key(seed))

    def advance(self) -> Progress:
        self.state, progress = advance_trainer(self.trainer, self.state)
        return progress

    def done(self) -> bool:
        return self.trainer.done(self.state)

    def test(self) -> Tested:
        agent, sizes = self.trainer.agent(self.state), self.sizes

        def played(agent: Agent) -> np.ndarray:  # [epochs, repeats]
            return play_exposures(sizes.make(), agent, sizes.pulls, TEST_EPOCHS[self.suite], TEST_SEED)

        earned = played(agent)
        details = by_exposure(EXPOSURE, earned)
        if not self.method.plain:
            without = played(without_reinstatement(agent))
            details |= {CLOSED: float(without[:, 2:].mean())} | by_exposure(f"{CLOSED}, {EXPOSURE}", without)
            if self.suite == "full":
                details[WORST_MARGIN] = min(details[f"{EXPOSURE} 2"] - SECOND, FORGETFUL - details[CLOSED])
        perfect = one_good_arm.greedy_by_exposure(sizes.arms, sizes.pulls, sizes.repeats)
        unseen = one_good_arm.greedy_by_exposure(sizes.arms, sizes.pulls, sizes.repeats, unseen=1)
        baselines = {
            "no memory of earlier episodes": one_good_arm.optimum(sizes.arms, sizes.pulls),
            "memory of all pulls but each episode's last": float(unseen[2:].mean()),
            "knows the good arm": 0.9 * sizes.pulls,
        }
        random = sizes.pulls * (0.9 + (sizes.arms - 1) * 0.1) / sizes.arms
        reference = Reference("memory of all pulls", float(perfect[2:].mean()), "exact")
        return Tested(earned[:, 2:].mean(1), random, reference, baselines, details)


def by_exposure(name: str, earned: np.ndarray) -> dict[str, float]:
    """The means over epochs of what was earned [epochs, repeats], by exposure."""
    return {f"{name} {number + 1}": float(mean) for number, mean in enumerate(earned.mean(0))}


def barcodes(sizes: Sizes, updates: int, **others: int | bool) -> Barcodes:
    """A barcode bandit to train on. An unroll is two episodes unless `steps` says otherwise: longer ones would not teach more,
    because no gradient passes from one episode to the next.

    Streams are staggered, so that every batch has contexts that are met for the first time: otherwise most have none, and there is
    nothing in them to learn exploring from.

    What a pull is worth shows at once and in the few that follow: with a discount of 1 and a trace of 0.95 a scratch run of the
    quick size was at 3.6 of 4.5 after 234 updates, with these (and more entropy) at 4.4 after 203.
    """
    settings: dict[str, Any] = {
        "steps": 2 * sizes.pulls,
        "discount": 0.9,
        "trace": 0.3,
        "entropy_cost": 0.02,
    } | others
    environment = functools.partial(dataclasses.replace, sizes.make(), staggered=True)
    return Barcodes(EpisodicLSTM(environment=environment, updates=updates, **settings), sizes)


def plain(barcodes: Barcodes) -> Barcodes:
    """The same with an LSTM that has no table."""
    return barcodes._replace(method=dataclasses.replace(barcodes.method, plain=True))


FULL = barcodes(Sizes(), updates=1_600, streams=320, memory=48, minibatches=4)
QUICK = barcodes(Sizes(4, 5, 4, 4, 4), updates=160, streams=512, memory=32, minibatches=4)

EXPERIMENTS = (
    Experiment(
        method="episodic_lstm",
        name="barcode",
        about="10 bandits of 10 arms, each met 10 times under a barcode, 10 pulls each time (quick: 4, 4, 4, 5)",
        metric="expected reward of an episode from the third exposure on",
        goal=THIRD,
        quick_goal=3.5,
        start=functools.partial(EpisodicRun, {"full": FULL, "quick": QUICK}),
        minutes=4,
    ),
    Experiment(
        method="episodic_lstm",
        name="barcode-lstm",
        about="the same with an LSTM that has no table: its goal is to stay below",
        metric="expected reward of an episode from the third exposure on",
        goal=FORGETFUL,
        quick_goal=None,
        start=functools.partial(EpisodicRun, {"full": plain(FULL), "quick": plain(QUICK)}),
        higher_is_better=False,
        minutes=3,
    ),
)
