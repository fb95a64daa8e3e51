"""POET, the paired open-ended trailblazer: environments and agents that make each other harder and better (Wang et al. 2019).

A list of pairs, each of a task and of the agent that learns it. Every so often, in this order:

    reproduce   tasks that are nearly solved are mutated; of the mutants that are neither too easy nor too hard for the agents that
                there are, the most novel one joins the list with the best of these agents; the oldest pair makes room for it
    improve     every agent takes some steps of learning on its own task
    transfer    every agent tries every task, as it is and after one step of learning there; where it does better than the agent of
                that pair it takes its place

This file is the control flow, which runs on the host over lists whose length is fixed: `Poet.capacity` places, some of which are
empty. How agents learn and are scored is that of `poet_agents.py`, where all places are one compiled program.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.tasks import mutation_of
from rulax.errors import UserError
from rulax.types import Array, PyTree


class Agents(Protocol):
    """How agents learn and are scored. Members [M] are trees with agents and whatever they learn by."""

    environment: Any

    def agent(self, members: PyTree) -> PyTree:
        """The agents alone, of one member or of several."""

    def fresh(self, key: Array) -> PyTree:
        """One new member."""

    def improve(self, members: PyTree, tasks: PyTree, key: Array, iterations: int) -> PyTree:
        """Members [M] after so many steps of learning, each on its own task [M]."""

    def transplant(self, sources: PyTree, targets: PyTree) -> PyTree:
        """Members with the agents of the one and the optimisers of the other."""

    def score(self, members: PyTree, tasks: PyTree, keys: Array) -> np.ndarray:
        """Mean returns [N] of N members, each on its own task; those with the same key and task meet the same episodes."""


@dataclasses.dataclass(frozen=True)
class Poet:
    """When what happens, and by which scores."""

    capacity: int = 10  # places for pairs
    transfer_every: int = 25  # iterations of learning
    reproduce_every: int = 50  # a multiple of it
    lowest: float = 50.0  # minimal criterion: a new task must not be harder than this for the best agent
    highest: float = 270.0  # nor easier than this
    parents_from: float = 200.0  # the score at which a task may be mutated
    solved: float = 230.0
    children: int = 8  # mutants that are tried each time
    admitted: int = 1  # how many of them may join
    neighbours: int = 5  # by which novelty is measured
    remembered: int = 5  # latest scores of a pair, all of which a newcomer must beat
    at_once: int = 100  # agents that try tasks at the same time; more of them, capacity x capacity, go in groups of so many
    transfers: bool = True  # without: an agent learns only on the task for which it was copied from its parent
    inherits: bool = True  # without, and without transfers: only on the task for which it was made

    def __post_init__(self) -> None:
        for name in (
            "capacity",
            "transfer_every",
            "reproduce_every",
            "children",
            "admitted",
            "neighbours",
            "remembered",
            "at_once",
        ):
            check_whole("POET's", name, getattr(self, name))
        for name in ("lowest", "highest", "parents_from", "solved"):
            if not isinstance(getattr(self, name), numbers.Real):
                raise UserError(f"POET's {name} is a return, a number, not {getattr(self, name)!r}")
        if self.transfers and not self.inherits:
            raise UserError(
                "POET without inheritance needs to be without transfers too: on admission the best agent of all is taken"
            )
        if self.reproduce_every % self.transfer_every:
            message = f"reproduce_every must be a multiple of transfer_every, {self.transfer_every}, not {self.reproduce_every}"
            raise UserError(message)
        if self.lowest >= self.highest:
            raise UserError(f"the minimal criterion needs lowest < highest, not {self.lowest:g} and {self.highest:g}")


def check_whole(whose: str, name: str, value: Any) -> None:
    """Refuse what is no whole number from 1 on."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise UserError(f"{whose} {name} must be a whole number, not {value!r}")
    if value < 1:
        raise UserError(f"{whose} {name} must be at least 1, not {value}")


@dataclasses.dataclass
class World:
    """A task that has been active: where it came from, and what came of it."""

    number: int
    parent: int  # -1 for the first
    task: PyTree
    born: int  # the iteration
    place: int
    fresh: bool = True  # whether it was neither too easy nor too hard for every agent that there had been
    retired: int | None = None  # the iteration
    best: float = -np.inf  # score, of all agents that were its own
    recent: list[float] = dataclasses.field(default_factory=list)  # the latest scores of the agent that it has now
    agent: PyTree = None  # who reached it, as a member
    origin: int = 0  # the world whose agent it has now: its own, until another one's takes its place
    solver: int = 0  # the same, when the best score was reached
    solved: int | None = None  # the iteration in which the best score first was high enough


class Transfer(NamedTuple):
    """One target in one round of transfers."""

    iteration: int
    target: int  # numbers of worlds
    source: int  # of the best candidate
    tuned: bool  # whether it had learned for a step on the target first
    before: float  # the best of the target's latest scores
    after: float
    accepted: bool  # whether the candidate took the target's place


class Candidate(NamedTuple):
    """The best of those who want a place."""

    source: int  # whose agent; -1 if there is nobody
    tuned: bool
    score: float


class Trailblazer:
    """One run of POET: `advance` until there is enough."""

    def __init__(self, agents: Agents, poet: Poet, key: Array):
        self.agents, self.poet, self.key, self.iteration = agents, poet, key, 0
        self.mutate = jax.jit(jax.vmap(mutation_of(agents.environment)))
        first = jax.tree.map(np.asarray, agents.environment.default_task())
        self.tasks = stacked([first] * poet.capacity)
        self.members = jax.jit(jax.vmap(agents.fresh))(jax.random.split(self._key("members"), poet.capacity))
        self.fresh = rows(self.members, 0)  # whose optimiser is new
        self.worlds = [World(0, -1, first, 0, 0)]
        self.places: list[World | None] = [self.worlds[0], *[None] * (poet.capacity - 1)]
        self.scores = np.full(poet.capacity, -np.inf)  # of each agent on its own task
        self.transfers: list[Transfer] = []
        self.learned = 0  # steps of learning, of all pairs together
        self.episodes = 0  # by which agents were scored

    @property
    def active(self) -> np.ndarray:
        """The places that hold a pair."""
        return np.array([place for place, world in enumerate(self.places) if world is not None])

    @property
    def annecs(self) -> int:
        """New tasks that were solved in the end (Enhanced POET's measure: accumulated number of novel environments, solved)."""
        return sum(world.fresh and world.solved is not None for world in self.worlds)

    def advance(self) -> None:
        """One turn: new tasks if it is time, `transfer_every` iterations of learning, transfers."""
        if self.iteration and self.iteration % self.poet.reproduce_every == 0:
            self.reproduce()
        self.members = self.agents.improve(self.members, self.tasks, self._key("improve"), self.poet.transfer_every)
        self.learned += len(self.active) * self.poet.transfer_every
        self.iteration += self.poet.transfer_every
        if self.poet.transfers:
            self.transfer()
        else:
            own = np.arange(self.poet.capacity)
            self.scores = self._score(self.members, own, self.tasks, own, self._keys("score", len(own)))
        self._remember()

    # -- transfer --------------------------------------------------------------------------------------------------------------

    def transfer(self) -> None:
        """Every active agent tries every active task, as it is and after one step of learning there."""
        number = self.poet.capacity
        sources, targets = np.divmod(np.arange(number**2), number)
        keys = self._keys("score", number)
        direct = self._score(self.members, sources, self.tasks, targets, keys).reshape(number, number)
        tuned = self._tuned(sources, self.tasks, targets, self.members)
        after = self._score(tuned, np.arange(number**2), self.tasks, targets, keys).reshape(number, number)
        self.scores, members = direct.diagonal().copy(), self.members
        best = best_candidates(direct, after, self.active)
        for target, found in best.items():
            world, source = self._world(target), self._world(found.source).number
            bar = max([*world.recent, float(self.scores[target])])
            # As it is and after learning, as in Enhanced POET: the best of many candidates owes one of its scores to luck.
            accepted = bool(min(direct[found.source, target], after[found.source, target]) > bar)
            self.transfers.append(Transfer(self.iteration, world.number, source, found.tuned, bar, found.score, accepted))
            if accepted:
                # From those before the round: who was replaced in it is still the one that was scored.
                self._put(target, rows(tuned, found.source * number + target) if found.tuned else rows(members, found.source))
                self.scores[target] = found.score
                world.origin, world.recent = source, []

    # -- reproduction ----------------------------------------------------------------------------------------------------------

    def reproduce(self) -> None:
        """Mutate tasks that are nearly solved, and admit the most novel of the mutants that meet the criterion."""
        generator = np.random.default_rng(np.asarray(jax.random.key_data(self._key("parents"))))
        able = [place for place in self.active if self.scores[place] >= self.poet.parents_from]
        if not able:
            return
        parents = generator.choice(able, self.poet.children)
        children = self.mutate(rows(self.tasks, parents), self._keys("mutate", self.poet.children))
        keys = self._keys("children", self.poet.children)
        each = np.arange(self.poet.children)
        by_parent = self._score(self.members, parents, children, each, keys)
        points, archive = vectors(children), vectors(stacked([world.task for world in self.worlds]))
        known = {tuple(vector) for vector in vectors(rows(self.tasks, self.active))}
        kept = [child for child in each if self._meets(by_parent[child]) and tuple(points[child]) not in known]
        order = sorted(kept, key=lambda child: -novelty(points[child], archive, self.poet.neighbours))
        admitted = 0
        for child in map(int, order):
            if admitted == self.poet.admitted:
                break
            if tuple(points[child]) in known:  # the same as one that has just joined
                continue
            member, score, source = self._best_for(child, int(parents[child]), children, keys, float(by_parent[child]))
            if self._meets(score):
                self._admit(rows(children, child), self._world(parents[child]).number, member, source, keys[child])
                known.add(tuple(points[child]))
                admitted += 1

    def _best_for(self, child: int, parent: int, children: PyTree, keys: Array, by_parent: float) -> tuple[PyTree, float, int]:
        """The agent with which a child begins, a score, and the world it comes from: the best of all, if there are transfers."""
        if not self.poet.transfers:
            made = rows(self.members, parent) if self.poet.inherits else self.agents.fresh(self._key("children"))
            return made, by_parent, self._world(parent).number if self.poet.inherits else len(self.worlds)
        number = self.poet.capacity
        sources, here = np.arange(number), np.full(number, child)
        direct = self._score(self.members, sources, children, here, keys)
        tuned = self._tuned(sources, children, here, stacked([self.fresh] * number))
        after = self._score(tuned, sources, children, here, keys)
        source, is_tuned, score = best_of(direct, after, self.active)
        return rows(tuned if is_tuned else self.members, source), score, self._world(source).number

    def _admit(self, task: PyTree, parent: int, member: PyTree, source: int, key: Array) -> None:
        """A new pair, in an empty place or in that of the oldest."""
        place = next((place for place, world in enumerate(self.places) if world is None), None)
        if place is None:
            oldest = min((world for world in self.places if world is not None), key=lambda world: (world.born, world.number))
            oldest.retired, place = self.iteration, oldest.place
        task = jax.tree.map(np.asarray, task)
        fresh = self._is_fresh(task, key)
        world = World(len(self.worlds), parent, task, self.iteration, place, fresh, origin=source, solver=source)
        self.worlds.append(world)
        self.places[place] = world
        self.tasks = jax.tree.map(lambda every, one: every.at[place].set(one), self.tasks, task)
        self._put(place, member)

    def _is_fresh(self, task: PyTree, key: Array) -> bool:
        """Whether no agent of the past solves it already; those of the present have been asked."""
        past = [world.agent for world in self.worlds if world.retired is not None and world.agent is not None]
        number, best = self.poet.capacity, -np.inf
        for begin in range(0, len(past), number):
            group = past[begin : begin + number]
            group += group[:1] * (number - len(group))  # always as many, so that nothing is compiled again
            same = np.zeros(number, int)
            best = max(best, self._score(stacked(group), np.arange(number), stacked([task]), same, key[None]).max())
        return bool(best <= self.poet.highest)

    # -- parts -----------------------------------------------------------------------------------------------------------------

    def _key(self, purpose: str) -> Array:
        """Randomness of one purpose at this iteration."""
        return jax.random.fold_in(jax.random.fold_in(self.key, PURPOSES.index(purpose)), self.iteration)

    def _keys(self, purpose: str, number: int) -> Array:
        return jax.random.split(self._key(purpose), number)

    def _score(self, members: PyTree, which: np.ndarray, tasks: PyTree, on: np.ndarray, keys: Array) -> np.ndarray:
        """Scores [N] of the members `which` [N] on the tasks `on` [N]; one key for each task."""
        scores = self._grouped(
            lambda part: self.agents.score(rows(members, which[part]), rows(tasks, on[part]), keys[on[part]]), len(on)
        )
        scores = np.asarray(scores, np.float64)
        return np.where(np.isnan(scores), -np.inf, scores)

    def _tuned(self, sources: np.ndarray, tasks: PyTree, on: np.ndarray, optimisers: PyTree) -> PyTree:
        """The agents of `sources` [N] after one step of learning on the tasks `on` [N], with the optimisers of those there."""
        kept = optimisers if len(sources) == self.poet.capacity else rows(optimisers, on)
        key = self._key("tune")

        def tune(part: np.ndarray) -> PyTree:
            started = self.agents.transplant(rows(self.members, sources[part]), rows(kept, part))
            return self.agents.improve(started, rows(tasks, on[part]), jax.random.fold_in(key, part[0]) if part[0] else key, 1)

        return self._grouped(tune, len(on))

    def _grouped(self, function: Callable[[np.ndarray], PyTree], number: int) -> PyTree:
        """What a function of some indices says of all [number]: at once if they are few, else group by group."""
        most = self.poet.at_once
        if number <= most:
            return function(np.arange(number))
        # Groups of one size, so that one program does; the last index fills the last of them.
        parts = [function(np.minimum(np.arange(begin, begin + most), number - 1)) for begin in range(0, number, most)]
        return jax.tree.map(lambda *leaves: jnp.concatenate([jnp.asarray(leaf) for leaf in leaves])[:number], *parts)

    def _meets(self, score: float) -> bool:
        return self.poet.lowest <= score <= self.poet.highest

    def _world(self, place: int) -> World:
        world = self.places[place]
        assert world is not None
        return world

    def _put(self, place: int, member: PyTree) -> None:
        """An agent takes a place, with a new optimiser."""
        member = self.agents.transplant(member, self.fresh)
        self.members = jax.tree.map(lambda every, one: every.at[place].set(one), self.members, member)

    def _remember(self) -> None:
        """Keep the best agent of every active task, and when it was solved."""
        for place in self.active:
            world = self._world(place)
            world.recent = [*world.recent, float(self.scores[place])][-self.poet.remembered :]
            if self.scores[place] > world.best:
                world.best, world.agent = float(self.scores[place]), jax.device_get(rows(self.members, place))
                world.solver = world.origin
            if world.solved is None and world.best >= self.poet.solved:
                world.solved = self.iteration


PURPOSES = ("members", "improve", "score", "tune", "parents", "mutate", "children")


def best_of(direct: np.ndarray, tuned: np.ndarray, sources: np.ndarray) -> Candidate:
    """The best of some sources, by their scores [S] as they are and after learning; the first of equals, and rather as it is."""
    best = Candidate(-1, False, -np.inf)
    for source in sources:
        for is_tuned, scores in ((False, direct), (True, tuned)):
            if scores[source] > best.score:
                best = Candidate(int(source), is_tuned, float(scores[source]))
    return best


def best_candidates(direct: np.ndarray, tuned: np.ndarray, active: np.ndarray) -> dict[int, Candidate]:
    """For every active target the best of all other active agents, by scores [source, target]; none if it is alone."""
    found = {int(target): best_of(direct[:, target], tuned[:, target], active[active != target]) for target in active}
    return {target: candidate for target, candidate in found.items() if candidate.source >= 0}


def novelty(point: np.ndarray, archive: np.ndarray, neighbours: int) -> float:
    """The mean distance from a point [D] to so many of the nearest in an archive [N, D], or to all if there are fewer."""
    distances = np.sqrt(((archive - point) ** 2).sum(-1))
    return float(np.sort(distances)[:neighbours].mean())


def vectors(tasks: PyTree) -> np.ndarray:
    """Tasks [N, ...] as vectors [N, D], in which the distance is that of novelty."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tasks)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], -1)


def rows(tree: PyTree, which: np.ndarray | int) -> PyTree:
    """Some rows of every leaf, or one."""
    return jax.tree.map(lambda leaf: leaf[which], tree)


def stacked(trees: list[PyTree]) -> PyTree:
    """Trees of one structure as one with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)
