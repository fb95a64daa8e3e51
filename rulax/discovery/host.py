"""Discovery in environments that step on the CPU: windows are lived there, recorded, and differentiated from their records.

A family of compiled environments lives and differentiates in one program. Here the agents act and learn first, as in training
(learning/host.py), and what happened becomes arrays:

    members, recorded, metrics = lives.live(meta_params, members)       on the host, in compiled steps
    gradients = estimate(family, recorded_problem(family, ...))         compiled: the same updates again, from the record

so that estimators, objectives and the critic do not know which it was. Every update is made twice; only the second time something
is stored for the backward pass.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.discovery.estimators import Problem
from rulax.discovery.memory import Updates, make_updates
from rulax.discovery.objectives import by_policy_gradient
from rulax.discovery.outer_loss import make_penalise
from rulax.discovery.population import Family, Member, init_population
from rulax.discovery.window import Record, Window, describe, judge_validation, learn, mean_penalties, policy_of, relive
from rulax.envs.adapters.restart import MOST_RESTARTS, RestartingStreams
from rulax.envs.base import HostEnvironment, HostStreams, Timestep
from rulax.learning import host_replay
from rulax.learning.frames import unfold_observation
from rulax.learning.host_acting import HostActing, Unrolled, in_time
from rulax.learning.host_replay import HostReplay
from rulax.learning.life import after_burn_in, batch_size, warm_iterations
from rulax.learning.update import LearnerState
from rulax.text import bytes_text
from rulax.types import Array, Experience, Metrics, PyTree


class Recorded(NamedTuple):
    """A window that one agent has lived: all that a meta-gradient needs of it."""

    record: Record  # its batches as replay keeps them: trajectories [N, n, T, ...], stacks of frames folded
    validation: Experience  # [B, T', ...] in that form, too
    advantage: Array  # [T', B] of validation, by the critic
    budget: Array  # [] the member's, which a gradient that is not finite ends


class AgentStreams(HostStreams):
    """The streams of K agents as one, [K * B]: each agent's can be started anew, and stepped while the others wait."""

    def __init__(self, environment: HostEnvironment, agents: int, streams: int, most_restarts: int):
        self.each = [RestartingStreams(environment, streams, most_restarts) for _ in range(agents)]
        self.acting = np.ones(agents, bool)  # [K] whose streams a step moves on; the others show the same again
        self._shown: list[Timestep] = [None] * agents  # type: ignore[list-item]  # filled by `begin`

    def start(self, seed: int) -> Timestep:
        for agent, own in enumerate(np.random.SeedSequence(seed).generate_state(len(self.each))):
            self.begin(agent, int(own))
        return self.show()

    def begin(self, agent: int, seed: int) -> None:
        """Start the streams of one agent, which then begins a life."""
        self._shown[agent] = self.each[agent].start(seed)

    def step(self, action: np.ndarray) -> Timestep:
        for agent, own in enumerate(np.split(action, len(self.each))):
            if self.acting[agent]:
                self._shown[agent] = self.each[agent].step(own)
        return self.show()

    def show(self) -> Timestep:
        """What all of them show now."""
        return jax.tree.map(lambda *parts: np.concatenate(parts), *self._shown)

    @property
    def restarts(self) -> np.ndarray:
        """How often environments of each agent had to be replaced, [K]."""
        return np.array([streams.restarts.sum() for streams in self.each])

    def close(self) -> None:
        for streams in self.each:
            streams.close()


class HostLives:
    """The agents of one family in their environments, with their replay buffers: what is no part of their state."""

    def __init__(self, family: Family, most_restarts: int = MOST_RESTARTS):
        assert isinstance(family.environment, HostEnvironment)
        self.family, self.environment, self.learning = family, family.environment, family.recipe.learning
        agents, streams = family.settings.agents, self.learning.streams
        self.streams = AgentStreams(self.environment, agents, streams, most_restarts)
        self.skeleton = jax.eval_shape(lambda key: init_population(family, key), jax.random.key(0))
        self.acting = HostActing(self.streams, self.skeleton.life)
        self.replays: list[HostReplay] = []
        self.started = np.zeros(agents, bool)
        self._counted = np.zeros(agents, int)

    # -- lives begin ------------------------------------------------------------------------------------------------------------

    def begin_due(self, members: Member, fresh: np.ndarray) -> Member:
        """Begin the lives of those [K] who are fresh, or whose streams were never started, as at the beginning of a resumed run."""
        due = fresh | ~self.started
        return self.begin(members, due) if due.any() else members

    def begin(self, members: Member, which: np.ndarray) -> Member:
        """Start the streams of some agents [K], fresh ones or those of a resumed run, and fill their replay until it is warm.

        Args:
            members: leaves [K, ...].
            which: [K] bool; the others stay where they are.
        """
        self.started |= which
        self.replays = self.replays or [None] * len(which)  # type: ignore[list-item]
        words = np.asarray(jax.random.key_data(members.life.key)).reshape(len(which), -1)
        for agent in np.flatnonzero(which):
            # The age as well: a resumed run, whose keys moved on, starts other episodes than the run that was stopped.
            seed = np.random.SeedSequence([*words[agent].tolist(), int(members.age[agent])]).generate_state(1)[0]
            self.streams.begin(int(agent), int(seed))
            if self.learning.replay:
                sizes = 1, self.learning.streams, self.learning.capacity
                self.replays[agent] = HostReplay(self.stored_form(self.learning.unroll), *sizes)
        timestep = self.streams.show()
        members = put_actor(members, self.acting.look(members.life.actor, timestep.observation, timestep.first))
        self.streams.acting = which
        for _ in range(warm_iterations(self.learning)):
            acted = self._act(members, self.learning.unroll)
            state, fresh, _ = self.acting.written(members.life.learner_state, acted)
            self._store(self._folded(fresh), which)
            life = members.life._replace(learner_state=state, actor=acted.actor, key=acted.keys.life)
            members = self._chosen(which, members._replace(life=life), members)
        self.streams.acting = np.ones_like(which)
        return members

    @functools.cached_property
    def _chosen(self) -> Any:
        """(which [K], members, others) -> of each agent the one or the other."""

        def choose(which: Array, ours: Member, others: Member) -> Member:
            return jax.vmap(lambda w, a, b: jax.tree.map(lambda x, y: jnp.where(w, x, y), a, b))(which, ours, others)

        return jax.jit(choose)

    # -- a window ---------------------------------------------------------------------------------------------------------------

    def live(self, meta_params: PyTree, members: Member) -> tuple[Member, Recorded, Metrics]:
        """N updates of every agent and its validation, as `window.live`: the members after it, what they recorded, and metrics."""
        settings = self.family.settings
        ahead = validation = None
        if settings.collection == "before_window":
            ahead = []
            for _ in range(settings.window):
                members, rollout = self._collect(members)
                ahead.append(rollout)
            acted = self._act(members, settings.validation_unroll)
            members, validation = advanced(members, acted), acted
        before = members.life.learner_state
        batches, update_keys, written, rows = [], [], [], []
        for number in range(settings.window):
            if ahead is None:
                members, rollout = self._collect(members)
            else:
                rollout = ahead[number]
            keys_mix, keys_update = self._two_keys(rollout.acted.keys.learn)
            self._store(rollout.learned_from, self.started)
            batch = self._draw(rollout.learned_from, keys_mix)
            members, learned = self._learn(meta_params, members, batch, rollout.acted.fresh, keys_update)
            batches.append(batch)
            update_keys.append(keys_update)
            written.append(() if ahead else rollout.written)
            rows.append(learned | rollout.acted.metrics)
        agent = members.life.learner_state.params  # judged is this agent, before it writes anything about its validation
        if validation is None:
            validation = self._act(members, settings.validation_unroll)
            members = advanced(members, validation)
        state, _, _ = self.acting.written(members.life.learner_state, validation)
        members = members._replace(life=members.life._replace(learner_state=state))
        judged = self._folded(validation.fresh)
        critic, advantage, measured = self._judge(members.critic, agent, judged)
        stacked = jax.tree.map(lambda *each: np.stack(each, 1), *batches)
        record = Record(before, stacked, jnp.stack(update_keys, 1), jax.tree.map(lambda *each: jnp.stack(each, 1), *written))
        metrics = self._describe(jax.tree.map(lambda *each: np.stack(each, 1), *rows), judged, validation.metrics)
        metrics |= measured | {"restarts": self._new_restarts()}
        return members._replace(critic=critic), Recorded(record, judged, advantage, members.budget), metrics

    def _collect(self, members: Member) -> tuple[Member, HostRollout]:
        acted = self._act(members, self.learning.unroll)
        state, learned_from, written = self.acting.written(members.life.learner_state, acted)
        members = advanced(members, acted)
        members = members._replace(life=members.life._replace(learner_state=state))
        folded = self._folded(acted.fresh)
        changed = learned_from is not acted.fresh
        return members, HostRollout(acted._replace(fresh=folded), self._folded(learned_from) if changed else folded, written)

    def _act(self, members: Member, unroll: int) -> Unrolled:
        life = members.life
        return self.acting.act(life.learner_state.params, life.actor, life.key, unroll)

    def _folded(self, fresh: Experience) -> Experience:
        return host_replay.to_store(fresh, self.environment.observation, self.environment.frames)

    def _store(self, fresh: Experience, which: np.ndarray) -> None:
        if self.learning.replay:
            for agent in np.flatnonzero(which):
                self.replays[agent].add(jax.tree.map(lambda x, agent=agent: x[agent : agent + 1], fresh))

    def _draw(self, fresh: Experience, keys: Array) -> Experience:
        """The batches [K, n, T, ...] of the next update."""
        learning = self.learning
        batch = batch_size(learning)
        if not learning.replay and batch == learning.streams:
            return fresh
        drawn = []
        for agent in range(len(self.started)):
            own = jax.tree.map(lambda x, agent=agent: x[agent : agent + 1], fresh)
            replay = self.replays[agent] if learning.replay else None
            drawn.append(host_replay.mix(replay, own, batch, learning.replay, keys[agent : agent + 1]))
        return jax.tree.map(lambda *each: np.concatenate(each), *drawn)

    def _new_restarts(self) -> np.ndarray:
        """Restarts [K] since this was last asked."""
        now = self.streams.restarts
        new, self._counted = now - self._counted, now
        return new

    # -- compiled parts ---------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _two_keys(self) -> Any:
        # The same two keys per agent as in `window.live`, [K] each.
        return jax.jit(lambda keys: tuple(jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)))

    @functools.cached_property
    def _learn(self) -> Any:
        """(meta_params, members, batches, fresh, keys), leaves [K, ...] -> members after one update, and its metrics."""
        updates = recorded_updates(self.family, "plain")

        def one(meta_params: PyTree, member: Member, batch: PyTree, fresh: PyTree, key: Array) -> tuple[Member, Metrics]:
            member, metrics, _ = learn(self.family, updates, meta_params, member, batch, as_experience(fresh), key)
            return member, metrics

        return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0, 0)))

    @functools.cached_property
    def _judge(self) -> Any:
        """(critics, agents, validation) -> critics, normalised advantages and metrics, [K, ...]."""

        def one(critic: Any, agent: Any, validation: PyTree) -> tuple[Any, Array, Metrics]:
            experience = as_experience(validation)
            on_policy = self.family.settings.collection == "on_policy"
            policy = experience.behaviour if on_policy else policy_of(agent, experience)
            critic, judgement, metrics = judge_validation(self.family, critic, experience, policy)
            return critic, judgement.normalised_advantage, metrics

        return jax.jit(jax.vmap(one))

    @functools.cached_property
    def _describe(self) -> Any:
        return jax.jit(jax.vmap(lambda rows, validation, acted: describe(rows, as_experience(validation), acted)))

    # -- shapes and bytes ---------------------------------------------------------------------------------------------------------

    def stored_form(self, unroll: int) -> Experience:
        """One trajectory as it is kept, as shapes [T, ...]."""
        return host_replay.stored_form(self.acting.form(unroll), self.environment.observation, self.environment.frames)

    def recorded_form(self) -> Recorded:
        """A window of all agents as shapes, [K, ...]."""
        settings, learning, skeleton = self.family.settings, self.learning, self.skeleton
        agents, updates = settings.agents, settings.window

        def lead(form: PyTree, *sizes: int) -> PyTree:
            return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*sizes, *leaf.shape), leaf.dtype), form)

        batches = lead(self.stored_form(learning.unroll), agents, updates, batch_size(learning))
        validation = lead(self.stored_form(settings.validation_unroll), agents, learning.streams)
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (agents, updates)))
        written: PyTree = ()
        if self.acting.writes and settings.collection == "on_policy":
            written = lead_second(self.acting.wrote(learning.unroll), updates)
        _, advantage, _ = jax.eval_shape(self._judge, skeleton.critic, skeleton.life.learner_state.params, validation)
        record = Record(skeleton.life.learner_state, batches, keys, written)
        return Recorded(record, validation, advantage, skeleton.budget)

    def reserve(self, limit: int = 0) -> str:
        """What records and replay take of the host's memory, in a sentence; a ValueError if that is too much."""
        learning, agents = self.learning, self.family.settings.agents
        form = self.recorded_form()
        records = sum(host_replay.size_of(part) for part in (form.record.experience, form.validation))
        said = f"{self.family.name}: records of a window {bytes_text(records)}"
        if not learning.replay:
            return said
        trajectory = self.stored_form(learning.unroll)
        return f"{said}, {host_replay.reserve(trajectory, agents, learning.streams, learning.capacity, limit)}"

    def close(self) -> None:
        """Close the environments."""
        self.streams.close()


class HostRollout(NamedTuple):
    """`window.Rollout` of K agents, as the host keeps it."""

    acted: Unrolled  # its experience folded: what the environment paid
    learned_from: Experience  # [K, B, T, ...] as the agents want to learn from it, folded
    written: PyTree


def advanced(members: Member, acted: Unrolled) -> Member:
    """Members where they are after they acted."""
    return members._replace(life=members.life._replace(actor=acted.actor, key=acted.keys.life))


def put_actor(members: Member, actor: Any) -> Member:
    """Members that are elsewhere."""
    return members._replace(life=members.life._replace(actor=actor))


def lead_second(form: PyTree, size: int) -> PyTree:
    """Shapes [K, ...] with an axis after the first one, [K, size, ...]."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0], size, *leaf.shape[1:]), leaf.dtype), form)


# -- a record as a problem ---------------------------------------------------------------------------------------------------------


def as_experience(trajectories: Experience) -> Experience:
    """Experience [T, B, ...] from trajectories [B, T, ...] as replay keeps them."""
    experience = in_time(trajectories)
    return experience._replace(observation=unfold_observation(experience.observation))


def recorded_updates(family: Family, strategy: str) -> Updates:
    """Updates from batches in the form in which the host keeps them; what is stored of them is that form."""

    def read_batch(state: LearnerState, batch: Experience) -> Experience:
        return after_burn_in(state.params, as_experience(batch), family.recipe.learning.burn_in)

    return make_updates(family.learner, strategy, make_penalise(family.settings, family.recipe.rule), read_batch)


def recorded_problem(family: Family, strategy: str) -> Problem[Recorded, Window]:
    """The discovery of a rule from windows that have been lived already: a member is a `Recorded` one."""

    def relived(updates: Updates, rule_params: PyTree, recorded: Recorded) -> tuple[Recorded, Window, Metrics]:
        after = relive(updates, rule_params, recorded.record)
        validation = as_experience(recorded.validation)
        window = Window(after.state.params, mean_penalties(after.penalties), validation, recorded.advantage, recorded.record)
        # Of the member only its budget is wanted afterwards: arrays that are returned would be copied.
        return Recorded((), (), (), recorded.budget), window, {}  # type: ignore[arg-type]

    return Problem(
        enter=lambda meta_params, recorded: (meta_params, recorded),
        live=relived,
        updates=recorded_updates(family, strategy),
        judge=by_policy_gradient(family),
    )
