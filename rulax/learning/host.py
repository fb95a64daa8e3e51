"""Training on worlds that step on the CPU (Gymnasium): the same life as in learning/train.py, with acting done by the host.

All seeds share one set of streams, [K * B], and each decision is one compiled call for all of them.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.distributions import sample_choice
from rulax.envs.base import Episode, Timestep
from rulax.learning.life import Life, born, empty_replay, episode_metrics, split_keys, store
from rulax.learning.rollout import Actor, Step, pack
from rulax.learning.train import CHUNK_SECONDS, MAX_CHUNK, Trainer, TrainState
from rulax.types import Array, Metrics, Policy, PyTree


class HostTrainer(Trainer):
    """Trains K agents on a host world. A resumed run starts new episodes, since a host world cannot be saved."""

    def _make_streams(self) -> Any:
        return self.environment.open(self.recipe.learning.streams * self.config.seeds)

    def _start(self, key: Array) -> Life:
        key_agent, key_life = jax.random.split(key)
        streams, spec = self.recipe.learning.streams, self.environment.observation
        learner = born(self.recipe, self.learner, self.environment, key_agent)
        memory = learner.params.initial_memory(streams)
        observation = jax.tree.map(lambda leaf: jnp.zeros((streams, *leaf.shape), leaf.dtype), spec)
        actor = Actor((), (), observation, jnp.ones(streams, jnp.bool_), memory)
        return Life(learner, actor, empty_replay(self.recipe.learning, self.environment, memory), key_life)

    def init(self, key: Array) -> TrainState:
        """K newborn agents in freshly reset streams."""
        return self.resume(super().init(key))

    def skeleton(self) -> PyTree:
        """Shapes and dtypes of the state."""
        return jax.eval_shape(self._newborn, jax.random.key(0))

    def resume(self, state: TrainState) -> TrainState:
        """Reset the streams, with a seed that depends on the agents' keys and their age."""
        words = np.asarray(jax.random.key_data(state.life.key)).reshape(-1)
        seed = np.random.SeedSequence([*words.tolist(), int(state.iteration)]).generate_state(1)[0]
        self._timestep = self._split(self.streams.start(int(seed)))
        return state._replace(life=state.life._replace(actor=self._look(state.life.actor)))

    def advance(self, state: TrainState, most: int = MAX_CHUNK) -> tuple[TrainState, dict[str, np.ndarray]]:
        """Go on for about a second, by `most` iterations: the next state and metrics [I, K]."""
        began = time.perf_counter()
        rows: list[Metrics] = []
        while not rows or (len(rows) < most and time.perf_counter() - began < CHUNK_SECONDS and not self.done(state)):
            state, metrics = self._host_iteration(state)
            rows.append(jax.tree.map(np.asarray, metrics))
        return state, {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def flops_per_iteration(self, state: TrainState) -> float:
        """Not known: part of the work is outside of the compiler."""
        return float("nan")

    def close(self) -> None:
        """Close the streams."""
        self.streams.close()

    def _host_iteration(self, state: TrainState) -> tuple[TrainState, Metrics]:
        life, memory, steps = state.life, state.life.actor.memory, []
        params, keys = life.learner.params, jax.vmap(split_keys)(life)
        for number in range(self.recipe.learning.unroll):
            actor = life.actor
            action, logits, memory_after = self._decide(params, actor, keys.act, jnp.int32(number))
            timestep = self._split(self.streams.step(np.asarray(action).reshape(-1, *action.shape[2:])))
            consequence = (timestep.reward, timestep.discount, timestep.valid, timestep.episode)
            steps.append(Step(actor.observation, actor.first, action, logits, *consequence))
            self._timestep = timestep
            life = life._replace(actor=self._look(actor._replace(memory=memory_after)))
        stacked = jax.tree.map(lambda *x: np.stack([np.asarray(part) for part in x]), *steps)
        state = TrainState(life._replace(key=keys.life), state.iteration)
        return self._absorb(self.rule_params, state, stacked, memory, keys.study)

    @functools.cached_property
    def _decide(self) -> Any:
        def one(params: PyTree, actor: Actor, key: Array, number: Array) -> tuple[Array, Policy, PyTree]:
            logits, memory = params.act(actor.observation, actor.first, actor.memory)
            return sample_choice(jax.random.fold_in(key, number), logits), logits, memory

        return jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None)))

    @functools.cached_property
    def _absorb(self) -> Any:
        def absorb(rule_params: PyTree, state: TrainState, steps: Step, memory: PyTree, keys: Array) -> tuple[TrainState, Metrics]:
            actor = state.life.actor
            fresh = jax.vmap(pack, in_axes=(1, 0, 0, 0))(steps, actor.observation, actor.first, memory)
            episode = Episode(*(jnp.swapaxes(x, 0, 1) for x in steps.episode))
            acted = jax.vmap(episode_metrics)(fresh, episode)
            state = state._replace(life=jax.vmap(store)(state.life, fresh))
            state, learned = self.learn(rule_params, state, fresh, keys)
            return state, acted | learned

        return jax.jit(absorb, donate_argnums=1)  # or the replay buffer would be copied each time

    def _split(self, timestep: Timestep) -> Timestep:
        """From [K * B] to [K, B]."""
        shape = (self.config.seeds, self.recipe.learning.streams)
        return jax.tree.map(lambda x: np.asarray(x).reshape(*shape, *np.shape(x)[1:]), timestep)

    def _look(self, actor: Actor) -> Actor:
        return actor._replace(observation=self._timestep.observation, first=self._timestep.first)
