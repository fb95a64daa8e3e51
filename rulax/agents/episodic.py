"""An agent that acts by what followed in similar situations: a table per action, from the key of a state to a return.

Its policy is epsilon-greedy in the values that it reads from its tables. It writes at the one moment at which agents may
(`Agent.written`): steps wait until their return is known, for each stream by itself, across unrolls; all streams share the tables.
MFEC (agents/mfec.py) and NEC (agents/nec.py) differ in how a state becomes a key, how neighbours are weighed, what is written, and
in whether gradients reach any of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.base import BaseAgent, Carried, PerStream
from rulax.agents.memory import Combine, Memory, Neighbours, Weigh, empty_memory, mark_used, nearest, write
from rulax.envs.base import Episode
from rulax.settings import Network
from rulax.types import Array, Experience, Level, Policy, Predictions, PyTree, later, now


class Settings(NamedTuple):
    """What is fixed about an episodic agent."""

    discount: float
    epsilon: float  # share of random actions
    neighbours: int  # k, rows that are read for a state and an action
    weigh: Weigh
    combine: Combine
    tolerance: float  # distance within which two keys are one
    # Whether a step is written as soon as `horizon` steps have followed it, with the value of where they led; otherwise it is
    # written when its episode ends, and a step that is further than the horizon from the end is forgotten.
    bootstraps: bool


class Waiting(NamedTuple):
    """The steps of each stream whose return is not known yet: a ring of H places (the horizon)."""

    keys: Array  # [B, H, K]
    action: Array  # [B, H] int32
    reward: Array  # [B, H]
    oldest: Array  # [B] int32, its place
    number: Array  # [B] int32


class Steps(NamedTuple):
    """An unroll as it is written down, [T, B] each."""

    keys: Array  # [T, B, K]
    action: Array
    reward: Array
    onwards: Array  # value of where the step led; 0 after the end of an episode, and everywhere without bootstrapping
    ended: Array  # whether the episode ended with it, by termination or by a time limit
    valid: Array
    anew: Array  # whether the stream starts here, whatever was going on before


class Looked(NamedTuple):
    """A state's key, and the rows near it in every action's table."""

    key: Array  # [..., K]
    rows: Array  # [..., A, k]
    found: Array  # [..., A, k]


class EpisodicAgent(BaseAgent):
    """Values from tables. `reader` makes keys [..., K] of observations; what of reader and tables is `Carried` is not trained."""

    reader: Any
    stored: Memory | Carried  # a stack of tables, [A, C, ...]
    waiting: PerStream
    settings: Settings = eqx.field(static=True)

    @property
    def tables(self) -> Memory:
        """The tables of all actions, [A, C, ...]."""
        return self.stored.value if isinstance(self.stored, Carried) else self.stored

    def act(self, observation: PyTree, first: Array, memory: PyTree) -> tuple[Policy, PyTree]:
        looked = self.look(observation)
        return self.policy(looked, self.values(looked)), memory

    def embed(self, experience: Experience) -> Looked:
        return self.look(experience.observation)

    def predict(self, embedded: Looked) -> Predictions:
        values = self.values(embedded)
        return {"policy": self.policy(embedded, values), "value": values[..., None]}

    def predict_taken(self, embedded: Looked, action: Array) -> Predictions:
        """The policy, and the value [..., 1] of the action taken: only that action's table is read."""
        at = action[..., None, None]
        rows, found = (jnp.take_along_axis(x, at, -2)[..., 0, :] for x in (embedded.rows, embedded.found))
        # No gradient passes through the policy: it is a choice between values.
        policy = jax.lax.stop_gradient(self.policy(embedded, self.values(embedded)))
        return {"policy": policy, "value": self.read(embedded.key, action, rows, found)[0][..., None]}

    def look(self, observation: PyTree) -> Looked:
        """Keys of observations [..., *shape], and their nearest rows."""
        key = self.reader(observation)
        near = jax.vmap(lambda table: nearest(table, key, self.settings.neighbours), out_axes=key.ndim - 1)(self.tables)
        return Looked(key, near.rows, near.found)

    def read(self, key: Array, action: Array, rows: Array, found: Array) -> tuple[Array, Array]:
        """Values [...] of actions [...] for keys [..., K], and the weights [..., k] of the rows [..., k] that they come from."""
        tables = self.tables
        at = action[..., None], rows
        distances = jnp.sum((key[..., None, :] - tables.keys[at]) ** 2, -1)
        weights = self.settings.weigh(Neighbours(rows, distances, found))
        return jnp.sum(weights * tables.values[at], -1), weights

    def values(self, looked: Looked) -> Array:
        """The values [..., A] of all actions; 0 for one whose table is empty."""
        return self._all(looked)[0]

    def _all(self, looked: Looked) -> tuple[Array, Array]:
        actions = jnp.broadcast_to(jnp.arange(looked.rows.shape[-2]), looked.rows.shape[:-1])
        return self.read(looked.key[..., None, :], actions, looked.rows, looked.found)

    def policy(self, looked: Looked, values: Array) -> Array:
        """Logits [..., A] of the epsilon-greedy policy. An action with an empty table is tried first; equally good ones share."""
        scores = jnp.where(looked.found[..., 0], values, jnp.inf)
        best = scores == jnp.max(scores, -1, keepdims=True)
        epsilon = self.settings.epsilon
        greedy = best / jnp.sum(best, -1, keepdims=True)
        # Never quite zero, so that the logarithm of a policy without exploration is finite.
        return jnp.log(jnp.maximum((1 - epsilon) * greedy + epsilon / values.shape[-1], 1e-8))

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        """Mark the rows that were read to act in this unroll, then write down all steps whose return is known now."""
        looked = self.look(experience.observation)
        values, weights = self._all(looked)
        used, over_actions = now(weights), looked.rows.ndim - 2
        tables = jax.vmap(mark_used, in_axes=(0, over_actions, over_actions))(
            self.tables, Neighbours(now(looked.rows), used, now(looked.found)), used
        )
        best = jnp.max(jnp.where(looked.found[..., 0], values, -jnp.inf), -1)
        # A state of which no action is known is worth nothing yet.
        onwards = experience.discount * later(jnp.where(looked.found[..., 0].any(-1), best, 0))
        steps = Steps(
            now(looked.key),
            experience.action,
            experience.reward,
            onwards if self.settings.bootstraps else jnp.zeros_like(onwards),
            episodes.ended,
            experience.valid,
            now(experience.first) >= Level.LIFE,
        )
        # Agents one after the other: how much an unroll writes differs between them, and mapped loops would all take as long as the
        # longest and copy the tables in every turn.
        record = jax.custom_batching.sequential_vmap(lambda *parts: recorded(self.settings, *parts))
        tables, waiting = record(*jax.lax.stop_gradient((tables, self.waiting.value, steps)))
        stored = Carried(tables) if isinstance(self.stored, Carried) else tables
        return eqx.tree_at(lambda agent: (agent.stored, agent.waiting.value), self, (stored, waiting)), experience


def recorded(settings: Settings, tables: Memory, waiting: Waiting, steps: Steps) -> tuple[Memory, Waiting]:
    """The tables and what still waits after an unroll, step by step in the order of time, stream by stream."""
    time, streams = steps.action.shape
    horizon = waiting.action.shape[1]

    def one(number: Array, carry: tuple[Memory, Waiting]) -> tuple[Memory, Waiting]:
        tables, waiting = carry
        stream = number % streams
        step = jax.tree.map(lambda x: x[number // streams, stream], steps)
        # A dummy step is no step: where it is not the one after an end, an episode was abandoned and will never have a return.
        kept = jnp.where(step.valid & ~step.anew, waiting.number[stream], 0)
        # Only without bootstrapping is the ring ever full here: its oldest step makes room.
        full = kept == horizon
        oldest = (waiting.oldest[stream] + full) % horizon
        kept = kept - full
        place = stream, (oldest + kept) % horizon
        keys = waiting.keys.at[place].set(step.keys)
        action, reward = waiting.action.at[place].set(step.action), waiting.reward.at[place].set(step.reward)
        kept = kept + step.valid

        # Backwards from the last step if the episode ended; or the oldest step alone, if as many have followed as the horizon has.
        ended = step.ended & step.valid
        age = (jnp.arange(horizon) - oldest) % horizon  # of the places: how many steps lie between the oldest and theirs
        between = jnp.sum(jnp.where(age > 0, settings.discount ** (age - 1.0) * reward[stream], 0))
        after = jnp.where(ended, step.onwards, between + settings.discount ** (horizon - 1.0) * step.onwards)
        due = jnp.where(ended, kept, (kept == horizon) & settings.bootstraps)

        def write_one(index: Array, carry: tuple[Memory, Array]) -> tuple[Memory, Array]:
            tables, after = carry
            at = stream, (oldest + due - 1 - index) % horizon
            value = reward[at] + settings.discount * after
            return write(tables, keys[at], value, settings.combine, settings.tolerance, (action[at],)), value

        tables, _ = jax.lax.fori_loop(0, due, write_one, (tables, after))
        oldest = waiting.oldest.at[stream].set((oldest + due) % horizon)
        return tables, Waiting(keys, action, reward, oldest, waiting.number.at[stream].set(kept - due))

    return jax.lax.fori_loop(0, time * streams, one, (tables, waiting))


def empty_tables(num_actions: int, rows: int, key_size: int) -> Memory:
    """A table without content for each action, [A, C, ...]."""
    table = empty_memory(rows, key_size)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_actions, *x.shape)), table)


def nothing_waits(num_streams: int, horizon: int, key_size: int) -> Waiting:
    """What waits before the first step: nothing."""
    shape = (num_streams, horizon)
    none = jnp.zeros(num_streams, jnp.int32)
    return Waiting(jnp.zeros((*shape, key_size)), jnp.zeros(shape, jnp.int32), jnp.zeros(shape), none, none)


def check_episodic(rule: str, network: Network, rows: int, neighbours: int, action_dimensions: int, real_dimensions: int) -> None:
    """Refuse, in a sentence, what a table per action cannot do."""
    if action_dimensions:
        raise ValueError(f"{rule} keeps a table per action, so an action must be one choice, not {action_dimensions} at once")
    if real_dimensions:
        raise ValueError(f"{rule} keeps a table per action, so an action must be one choice, not real: --action-distribution bins")
    if neighbours > rows:
        raise ValueError(f"rule '{rule}': {neighbours} neighbours cannot be found in a table of {rows} rows")
    if network.core != "none":
        raise ValueError(f"{rule} finds states by what is seen now, so it has no use for the core '{network.core}'; leave it out")
