"""Discovery as an object with `init` and `advance` (one meta-step), which `rulax discover` drives.

Everything that changes is in `DiscoveryState`, a tree of arrays, so that a run can be saved and resumed exactly.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.discovery.bound import bound_of
from rulax.discovery.host import HostLives, recorded_problem
from rulax.discovery.memory import STRATEGIES
from rulax.discovery.meta_optimiser import lie as lies_of_optimiser
from rulax.discovery.meta_optimiser import make_meta_optimiser
from rulax.discovery.meta_step import DiscoveryState, Programs, estimate, make_problem, meta_step, optimise
from rulax.discovery.population import Family, Member, init_population, lie, listed, refresh
from rulax.discovery.settings import PERTURBING
from rulax.discovery.shares import ACTING, COMPILING, Shares
from rulax.envs.adapters.restart import MOST_RESTARTS
from rulax.learning.train import COMPILE_FAST
from rulax.metanet.network import as_in_reference
from rulax.parallel.mesh import ONE_DEVICE, Layout
from rulax.parallel.together import together
from rulax.types import Array, PyTree


class Plan(NamedTuple):
    """How one family's meta-gradient is computed."""

    strategy: str
    at_once: int  # agents that a device differentiates at the same time; 0 means all
    pairs_at_once: int = 0  # and pairs of perturbed lives of each of them, where the estimator perturbs; 0 means all


class Discoverer:
    """Discovers one rule in several families of environments. All families share the rule and the number of agents.

    Streams of host environments are opened with the first meta-step, and a state that was saved starts new ones, with replay that
    is filled again to its warm-up: neither is part of the state. `close` releases them.
    """

    def __init__(
        self, families: Sequence[Family], total_steps: int, most_restarts: int = MOST_RESTARTS, layout: Layout = ONE_DEVICE
    ):
        self.families, self.layout = tuple(families), layout
        self.settings = families[0].settings
        self.total_steps, self.most_restarts = total_steps, most_restarts
        self._lives: dict[str, HostLives] = {}
        self._shares = Shares() if any(family.on_host for family in families) else None
        self.optimiser = make_meta_optimiser(self.settings, total_steps)
        self.plans = {family.name: self._first_plan() for family in families}
        self._programs: list[Programs] | None = None
        self.compiled: dict[str, Any] = {}  # estimates by family, for whoever asks what they cost
        self._traced: dict[tuple[str, Plan], Any] = {}
        everywhere, places = layout.everywhere, self.places
        grads = tuple(layout.members for _ in families)
        given, results = (everywhere, places.optimiser_state, grads), (everywhere, places.optimiser_state, everywhere)
        self._optimise = layout.jit(optimise(self.optimiser), given, results, compiler_options=COMPILE_FAST)

    def _first_plan(self) -> Plan:
        known = self.settings.memory if self.settings.memory != "auto" else "remat"
        return Plan(known, self.settings.agents_at_once, self.settings.pairs_at_once)

    # -- state ----------------------------------------------------------------------------------------------------------

    def init(self, key: Array, meta_params: PyTree = None) -> DiscoveryState:
        """A fresh population, and a rule: `meta_params` if they are given, else the recipe's own initial ones."""
        everywhere = self.layout.everywhere
        start = self.layout.jit(self._initial_state, everywhere, self.places, compiler_options=COMPILE_FAST)
        return start(*self.layout.place((key, meta_params), everywhere))

    @property
    def places(self) -> DiscoveryState:
        """Where the state lies."""
        everywhere, members = self.layout.everywhere, tuple(lie(self.layout) for _ in self.families)
        return DiscoveryState(everywhere, lies_of_optimiser(self.settings, self.layout), members, everywhere)

    def resume(self, state: DiscoveryState) -> DiscoveryState:
        """The state to continue from, given one that was saved."""
        return self.layout.place(state, self.places)

    def rule(self, state: DiscoveryState) -> PyTree:
        """The meta-parameters of a state, on one device."""
        return self.layout.local(state.meta_params)

    def _initial_state(self, key: Array, meta_params: PyTree = None) -> DiscoveryState:
        # The rule's key is split off even if a rule is given, so that a seed gives the same population for every rule.
        key_rule, *keys = jax.random.split(key, 1 + len(self.families))
        if meta_params is None:
            meta_params = self.families[0].recipe.rule.init(key_rule)
            if self.settings.rule_init == "reference":
                meta_params = as_in_reference(meta_params)
        members = tuple(init_population(family, k) for family, k in zip(self.families, keys, strict=True))
        # One Adam per agent needs the agents of all families: `optimise` concatenates their gradients in this order.
        agents = self.settings.agents * len(self.families)
        return DiscoveryState(meta_params, self.optimiser.init(meta_params, agents), members, jnp.zeros((), jnp.int32))

    def skeleton(self) -> PyTree:
        """Shapes and dtypes of the state, without making one."""
        return jax.eval_shape(self._initial_state, jax.random.key(0))

    def done(self, state: DiscoveryState) -> bool:
        """Whether all meta-steps have been made."""
        return int(state.steps) >= self.total_steps

    def lives(self, family: Family) -> HostLives:
        """The environments and the replay of agents that act on the host."""
        if family.name not in self._lives:
            own = len(self.layout.rows(self.settings.agents))  # of this process; others act elsewhere
            of_process = dataclasses.replace(family, settings=dataclasses.replace(family.settings, agents=own))
            self._lives[family.name] = HostLives(of_process, self.most_restarts)
        return self._lives[family.name]

    def close(self) -> None:
        """Close host environments, and end the thread beside them; to close twice does no harm."""
        if self._shares is not None:
            self._shares.close()
        for lives in self._lives.values():
            lives.close()

    # -- memory ---------------------------------------------------------------------------------------------------------

    def bound(self, family: Family, plan: Plan) -> int:
        """An upper bound of the bytes that `predict` would return, without compiling."""
        return bound_of(self._trace(family, plan).jaxpr) // self.layout.processes

    def predict(self, family: Family, plan: Plan) -> int:
        """Bytes that the compiler reserves for the temporary arrays of one family's meta-gradient, on all devices of this host."""
        analysis = self._lower(family, plan).compile(compiler_options=COMPILE_FAST).memory_analysis()
        return analysis.temp_size_in_bytes * self.layout.devices // self.layout.processes

    def choose(self, limit: float, predicted: dict[str, dict[str, int]]) -> dict[str, Plan]:
        """Plan each family: the fastest strategy that fits, or if none does, the smallest with fewer agents, then pairs, at once.

        Args:
            limit: bytes.
            predicted: bytes by family and strategy.
        """
        for family in self.families:
            bytes_of, first = predicted[family.name], self._first_plan()
            # `STRATEGIES` are ordered from the fastest, so the first that fits is the choice.
            fitting = [strategy for strategy in STRATEGIES if bytes_of[strategy] <= limit]
            smallest = min(STRATEGIES, key=lambda strategy: bytes_of[strategy])
            plan = first._replace(strategy=fitting[0] if fitting else smallest)
            # Each prediction compiles a program, so smaller groups are tried only where no strategy fits.
            for smaller in () if fitting else self._smaller(plan):
                plan = smaller
                if self.predict(family, plan) <= limit:
                    break
            self.plans[family.name] = plan
        return self.plans

    def _smaller(self, plan: Plan) -> Iterator[Plan]:
        """Half as many agents at once, down to one, then half as many pairs of each."""
        agents, pairs = plan.at_once or self.settings.agents // self.layout.shares, plan.pairs_at_once or self.settings.pairs
        while agents > 1:
            agents = agents // 2
            plan = plan._replace(at_once=agents)
            yield plan
        while pairs > 1 and self.settings.estimator in PERTURBING:
            pairs = pairs // 2
            plan = plan._replace(pairs_at_once=pairs)
            yield plan

    # -- compiled parts ---------------------------------------------------------------------------------------------------

    def _trace(self, family: Family, plan: Plan) -> Any:
        if (family.name, plan) in self._traced:
            return self._traced[family.name, plan]
        family = dataclasses.replace(family, settings=dataclasses.replace(family.settings, pairs_at_once=plan.pairs_at_once))
        state, layout, places = self.skeleton(), self.layout, self.places.members[0]
        if family.on_host:
            function = estimate(family, recorded_problem(family, plan.strategy), plan.at_once, layout.shares)
            form = jax.tree.map(self._of_all, self.lives(family).recorded_form())
            given = (layout.everywhere, layout.members)
            traced = layout.jit(function, given, layout.members).trace(state.meta_params, form)
        else:
            function = estimate(family, make_problem(family, plan.strategy), plan.at_once, layout.shares)
            members = state.members[[each.name for each in self.families].index(family.name)]
            given, results = (layout.everywhere, places), (layout.members, places, layout.members)
            traced = layout.jit(function, given, results, donate_argnums=1).trace(state.meta_params, members)
        self._traced[family.name, plan] = traced  # tracing takes seconds, and what was bounded is compiled next
        return traced

    def _of_all(self, form: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """From the shape of what this process has of its agents to that of what all have."""
        return jax.ShapeDtypeStruct((self.settings.agents, *form.shape[1:]), form.dtype)

    def _lower(self, family: Family, plan: Plan) -> Any:
        return self._trace(family, plan).lower()

    def compile(self, report: Callable[[str, int, int], None] = lambda text, done, of: None) -> list[Programs]:
        """Compile all families' programs, several at a time; `report` is told what, and how many are done of how many."""
        if self._programs is None:
            lowered = [self._lower(family, self.plans[family.name]) for family in self.families]
            text = f"compiling the meta-step in {listed([family.name for family in self.families])}"
            compiling = functools.partial(together, lambda program: program.compile(), lowered, functools.partial(report, text))
            compiled = self._shares.timed(COMPILING, compiling)() if self._shares else compiling()
            self.compiled = {family.name: done for family, done in zip(self.families, compiled, strict=True)}
            self._programs = [self._programs_of(family, done) for family, done in zip(self.families, compiled, strict=True)]
            self._traced.clear()
        return self._programs

    def _programs_of(self, family: Family, compiled: Any) -> Programs:
        # A program of its own: inside the meta-step, every agent would be made afresh in every step and mostly thrown away.
        layout, places, agents = self.layout, self.places.members[0], self.settings.agents
        fresh_ones = layout.jit(functools.partial(refresh, family), (places,), places, compiler_options=COMPILE_FAST)
        renew = functools.partial(refresh_if_due, fresh_ones, layout=layout)
        if self._shares is None or not family.on_host:
            # What is done to members between two programs may have moved a few of their arrays.
            estimated = compiled if layout.mesh is None else lambda rule, members: compiled(rule, layout.place(members, places))
            return Programs(renew, estimated)
        lives = self.lives(family)

        def renewed(members: Member) -> Member:
            fresh = due(members, layout)[layout.rows(agents)]
            return layout.ours(lives.begin_due(layout.mine(renew(members), agents), fresh), agents)

        def live(meta_params: PyTree, members: Member) -> Any:
            return layout.ours(lives.live(layout.local(meta_params), layout.mine(members, agents)), agents)

        return Programs(self._shares.timed(ACTING, renewed), compiled, self._shares.timed(ACTING, live))

    def advance(self, state: DiscoveryState) -> tuple[DiscoveryState, dict[str, Any]]:
        """One meta-step.

        Returns:
            The next state (the buffers of the old one are donated), and metrics: by family, [K] or [] each, and under ""
            those of the optimiser.
        """
        given = self.compile(), self._optimise, self.resume(state), self.settings.handover
        # Several processes must ask for the same programs in the same order, which two threads would not do.
        if self._shares is None or self.layout.several_processes:
            state, metrics = jax.block_until_ready(meta_step(*given))
        else:
            state, metrics = jax.block_until_ready(meta_step(*given, self._shares.submit))
        if self._shares is not None:
            metrics[-1] |= self._shares.take()
        named = dict(zip([*(family.name for family in self.families), ""], metrics, strict=True))
        return state, self.layout.read(named)


def due(members: Member, layout: Layout) -> np.ndarray:
    """Whose lifetime is over, [K]."""
    age, budget = layout.read((members.age, members.budget))
    return age >= budget


def refresh_if_due(renew: Callable[[Member], Member], members: Member, layout: Layout = ONE_DEVICE) -> Member:
    """Refresh the population only if some lifetime is over: that is rare, and the program for it is slow."""
    return renew(members) if bool(np.any(due(members, layout))) else members
