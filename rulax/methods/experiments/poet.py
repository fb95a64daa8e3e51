"""POET on hurdles, beside POET without transfers, and beside evolution strategies on the same environments from scratch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.registry import make
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Published, Reference, SeedRun, Suite, Tested
from rulax.methods.experiments.poet_own import OWN
from rulax.methods.experiments.poet_walker import WALKER
from rulax.methods.poet import PURPOSES, Poet, Trailblazer, World, stacked
from rulax.methods.poet_agents import EvolvedAgents, Evolving
from rulax.methods.poet_story import PoetStory, story_of, vectors_of
from rulax.types import Array, PyTree

SHARE = 0.2  # of what counts as solved: who stays below it has not even begun (published: 6 to 17 %)
WANTED = 3  # environments
ABLATION = "without transfers"
PUBLISHED = 5  # environments of figure 4, all of which direct ES leaves at 13.6 to 39.6 of 230


@dataclasses.dataclass(frozen=True)
class PoetSetup:
    """How long, and what is tested."""

    poet: Poet = dataclasses.field(default_factory=Poet)
    evolving: Evolving = dataclasses.field(default_factory=Evolving)
    env: str = "hurdles"
    iterations: int = 1000
    ablation: bool = True
    tested: int = 4  # environments, the hardest that are solved: those farthest from flat ground
    test_episodes: int = 100
    direct_every: int = 100  # iterations between two scores of direct evolution, of which the best counts
    direct_factor: int = 2  # how many times the iterations of the whole run it gets on each environment
    compile_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class PoetRun(SeedRun):
    """One seed: POET, its ablation, then evolution from scratch on what they solved."""

    def __init__(self, suites: dict[Suite, PoetSetup], suite: Suite, seed: int):
        self.setup, self.key = suites[suite], jax.random.key(seed)
        environment: Any = make(self.setup.env)
        self.agents = EvolvedAgents(environment, self.setup.evolving, dict(self.setup.compile_options) or None)
        ways = {"POET": self.setup.poet}
        if self.setup.ablation:
            ways |= {
                ABLATION: dataclasses.replace(self.setup.poet, transfers=False),
                "without inheritance": dataclasses.replace(self.setup.poet, transfers=False, inherits=False),
            }
        # The same key: both begin with the same agents and the same first episodes.
        self.runs = {name: Trailblazer(self.agents, poet, self.key) for name, poet in ways.items()}
        self.direct: Direct | None = None

    def advance(self) -> Progress:
        running = [run for run in self.runs.values() if run.iteration < self.setup.iterations]
        if running:
            running[0].advance()
            value = float(sum(world.solved is not None for world in running[0].worlds))
        else:
            self.direct = self.direct or self._chosen()
            self.direct.advance()
            value = float(np.sum(self.direct.peaks < SHARE * self.setup.poet.solved))
        made = sum(run.iteration for run in self.runs.values())
        total = len(self.runs) * self.setup.iterations + self.setup.direct_factor * self.setup.iterations
        direct = self.direct.iteration if self.direct else 0
        return Progress((made + direct) / total, made + direct, self._steps(), value)

    def done(self) -> bool:
        return self.direct is not None and self.direct.done()

    def _steps(self) -> int:
        """Environment steps of learning, of everything so far; those by which agents are scored come on top."""
        learned = sum(run.learned for run in self.runs.values()) + (self.direct.learned if self.direct else 0)
        return learned * 2 * self.setup.evolving.pairs * self.agents.horizon

    def _chosen(self) -> Direct:
        """The hardest worlds of each way that its remembered agents really solve, in episodes that nobody has seen."""
        found: dict[str, list[tuple[World, float]]] = {}
        for name, run in self.runs.items():
            candidates = [world for world in run.worlds if world.solved is not None]
            returns = self._tested([world.agent for world in candidates], [world.task for world in candidates])
            solved = [(world, float(score)) for world, score in zip(candidates, returns, strict=True)]
            found[name] = [(world, score) for world, score in solved if score >= self.setup.poet.solved]
        return Direct(self, found)

    def _tested(self, members: list[Any], tasks: list[Any]) -> np.ndarray:
        """Returns [N] of members on tasks, one each, in test episodes; groups of equal size, so that one program does."""
        number, found = self.setup.poet.capacity, [np.zeros(0)]
        for begin in range(0, len(members), number):
            group = [min(begin + index, len(members) - 1) for index in range(number)]
            key = jax.random.fold_in(jax.random.key(TEST_SEED), begin)
            scores = self.tested(stacked([members[each] for each in group]), stacked([tasks[each] for each in group]), key)
            found.append(scores[: len(members) - begin])
        return np.concatenate(found)

    def tested(self, members: PyTree, tasks: PyTree, key: Array) -> np.ndarray:
        """Returns [N] of members on tasks, in more episodes than decide about transfers: numbers that are reported."""
        number, times = len(jax.tree.leaves(tasks)[0]), -(-self.setup.test_episodes // self.setup.evolving.rollouts)
        return np.mean([self.agents.score(members, tasks, keys) for keys in jax.random.split(key, (times, number))], 0)

    def test(self) -> Tested:
        direct = self.direct or self._chosen()
        level, again = SHARE * self.setup.poet.solved, direct.again()
        counts: dict[str, float] = {}
        details: dict[str, float] = {}
        for name, run in self.runs.items():
            own = [index for index, (way, _, _) in enumerate(direct.worlds) if way == name]
            # Before direct evolution has had all of its steps, nothing is known to be out of its reach.
            below = [index for index in own if direct.done() and again[index] < level]
            counts[name] = float(len(below))
            details |= {f"{name}: {what}": float(number) for what, number in facts(run, len(direct.solved[name])).items()}
            details[f"{name}: environments tested with direct ES"] = float(len(own))
            if own:
                details[f"{name}: its mean return there"] = float(np.mean([direct.worlds[index][2] for index in own]))
                details[f"{name}: peak of direct ES there, mean"] = float(np.mean(direct.peaks[own]))
                details[f"{name}: the same, tested again"] = float(np.mean(again[own]))
        details[WORST_MARGIN] = float(min(counts["POET"] - WANTED, -counts.get(ABLATION, 0.0)))
        baselines = {name: count for name, count in counts.items() if name != "POET"}
        reference = Reference("all environments that were tested", float(self.setup.tested), "baseline")
        return Tested(np.array([counts["POET"]]), 0.0, reference, baselines, details, tasks=self.setup.tested)

    def story(self) -> PoetStory:
        """What the page shows."""
        peaks = {}
        if self.direct is not None:
            named = zip(self.direct.worlds, self.direct.again(), strict=True)
            peaks = {(way, world.number): float(peak) for (way, world, _), peak in named}
        return story_of(self.agents.environment, self.setup.poet, self.runs, peaks, SHARE)


class Direct:
    """Evolution strategies from scratch on environments that POET's runs solved, all of them side by side."""

    def __init__(self, run: PoetRun, solved: dict[str, list[tuple[World, float]]]):
        self.run, self.solved, setup = run, solved, run.setup
        first = run.agents.environment.default_task()
        far = lambda each: float(np.linalg.norm(vectors_of(each[0].task) - vectors_of(first)))  # noqa: E731
        hardest = {name: sorted(found, key=far, reverse=True)[: setup.tested] for name, found in solved.items()}
        self.worlds = [(name, *each) for name, found in hardest.items() for each in found]
        self.total, self.iteration, self.learned = setup.direct_factor * setup.iterations, 0, 0
        # Always as many places, so that a seed with fewer environments compiles nothing else.
        self.number = setup.tested * len(solved)
        self.peaks = np.full(len(self.worlds), -np.inf)
        if self.worlds:
            tasks = [world.task for _, world, _ in self.worlds]
            self.tasks = stacked(tasks + tasks[:1] * (self.number - len(tasks)))
            keys = jax.random.split(jax.random.fold_in(run.key, len(PURPOSES)), self.number)
            self.members = self.best = jax.jit(jax.vmap(run.agents.fresh))(keys)

    def again(self) -> np.ndarray:
        """Returns of the best agents in episodes that have not chosen them: the highest of many scores is partly luck."""
        key = jax.random.fold_in(jax.random.key(TEST_SEED), len(PURPOSES))
        return self.run.tested(self.best, self.tasks, key)[: len(self.worlds)] if self.worlds else np.zeros(0)

    def done(self) -> bool:
        return not self.worlds or self.iteration >= self.total

    def advance(self) -> None:
        """Some iterations, and scores in fresh episodes."""
        if self.done():
            return
        setup, key = self.run.setup, jax.random.fold_in(jax.random.fold_in(self.run.key, 1 + len(PURPOSES)), self.iteration)
        self.members = self.run.agents.improve(self.members, self.tasks, key, setup.direct_every)
        self.iteration += setup.direct_every
        self.learned += len(self.worlds) * setup.direct_every
        scores = self.run.tested(self.members, self.tasks, jax.random.fold_in(key, 1))
        better = scores > np.pad(self.peaks, (0, self.number - len(self.worlds)))
        self.best = jax.tree.map(
            lambda new, old: jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old), self.members, self.best
        )
        self.peaks = np.maximum(self.peaks, scores[: len(self.worlds)])


def facts(run: Trailblazer, solved: int) -> dict[str, float]:
    """A run in numbers."""
    numbers: dict[str, float] = {"environments": len(run.worlds), "solved, tested again": solved, "ANNECS": run.annecs}
    if run.transfers:
        numbers["share of transfers accepted"] = float(np.mean([each.accepted for each in run.transfers]))
    return numbers


class CurriculumRun(PoetRun):
    """One seed of POET alone: how far it comes from flat ground."""

    def test(self) -> Tested:
        found = (self.direct or self._chosen()).solved["POET"]
        run = self.runs["POET"]
        details = facts(run, len(found))
        if len(found) > 1:
            details["mean return in the environments solved, flat ground left out"] = float(
                np.mean([score for _, score in found[1:]])
            )
        # What the agents could do before they learned anything.
        worlds = [world for world, _ in found]
        untrained = self._tested([run.fresh] * len(worlds), [world.task for world in worlds])
        reference = Reference("all environments that there were", float(len(run.worlds)), "baseline")
        random = float(np.sum(untrained >= self.setup.poet.solved))
        return Tested(np.array([float(len(found))]), random, reference, {}, details, tasks=len(run.worlds))


TEST_SEED = 2019  # never a seed of training
SETUPS: dict[Suite, PoetSetup] = {
    "quick": PoetSetup(Poet(capacity=6, children=6), iterations=400, ablation=False, tested=6, test_episodes=32),
    "full": PoetSetup(Poet(reproduce_every=25), iterations=3000, tested=12),
}
# Its own sizes, because a minute is enough for easy environments only, and these ES solves as well.
QUICK = PoetSetup(
    Poet(capacity=6, children=6, reproduce_every=50),
    iterations=500,
    ablation=False,
    tested=0,
    test_episodes=64,
    direct_factor=0,
    compile_options={"xla_backend_optimization_level": 1},  # in half of the time, for programs that are a quarter slower
)
CURRICULUM: dict[Suite, PoetSetup] = {"quick": QUICK, "full": dataclasses.replace(QUICK, iterations=1000)}
EXPERIMENTS = (
    Experiment(
        method="poet",
        name="hurdles",
        about="POET with evolved agents on hurdles, without transfers, and ES from scratch on what they solved",
        metric="environments that it solves and direct ES, with twice the steps, does not begin to",
        goal=WANTED,
        quick_goal=None,
        start=functools.partial(PoetRun, SETUPS),
        published=Published(PUBLISHED, "Wang et al. 2019, figure 4: five environments, direct ES at 13.6 to 39.6 of 230", "V"),
        minutes=6,
    ),
    Experiment(
        method="poet",
        name="first-steps",
        about="POET alone, from flat ground to stumps and gaps; six pairs",
        metric="environments that it solves",
        goal=6,
        quick_goal=3,
        start=functools.partial(CurriculumRun, CURRICULUM),
        minutes=1,
    ),
    OWN,
    WALKER,
)
