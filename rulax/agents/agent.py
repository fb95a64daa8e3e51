"""The agent: torso, core and heads in one equinox module of arrays, so that an agent *is* its parameters.

Learning reads it in three calls (learning/update.py): `embed` once, then `predict` for every action and `predict_taken` for the
actions that were taken. Acting reads only the policy and the memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax

from rulax.agents.cores import NoCore, RecurrentCore, make_core
from rulax.agents.heads import Heads
from rulax.agents.torsos import ConvTorso, MLPTorso, make_torso
from rulax.settings import Network
from rulax.types import Array, Experience, Head, Predictions, PyTree


class Agent(eqx.Module):
    """One agent's parameters, and what can be asked of them."""

    torso: MLPTorso | ConvTorso
    core: NoCore | RecurrentCore
    heads: Heads

    def initial_memory(self, num_streams: int) -> PyTree:
        """Memory before anything was seen, [B, ...]; () if there is none."""
        return self.core.initial((num_streams,))

    def act(self, observation: Array, first: Array, memory: PyTree) -> tuple[Array, PyTree]:
        """Policy logits [B, A] for one observation per stream, and the memory after it."""
        memory, embedding = self.core.step(memory, self.torso(observation), first)
        return self.heads.state["policy"](embedding), memory

    def embed(self, experience: Experience) -> Array:
        """What the agent makes of each of the T + 1 observations, [T+1, B, D]."""
        return self.core.unroll(experience.memory, self.torso(experience.observation), experience.first)

    def predict(self, embedding: Array) -> Predictions:
        """All predictions for all actions: per state [..., size], per action [..., A, size]."""
        return self.heads.every(embedding)

    def predict_taken(self, embedding: Array, action: Array) -> Predictions:
        """All predictions, those per action only at the action given: [..., size] each."""
        return self.heads.taken(embedding, action)


def make_agent(
    key: Array, observation: jax.ShapeDtypeStruct, num_actions: int, heads: Mapping[str, Head], network: Network
) -> Agent:
    """A fresh agent for one environment and one rule."""
    key_torso, key_core, key_heads = jax.random.split(key, 3)
    torso = make_torso(key_torso, tuple(observation.shape), network)
    core, width = make_core(key_core, network.core, network.hidden[-1], network.core_size)
    return Agent(torso, core, Heads(key_heads, width, num_actions, dict(heads), network))
