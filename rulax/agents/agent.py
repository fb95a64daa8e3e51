"""The ordinary agent: torso, core and heads in one equinox module of arrays, so that it *is* its parameters.

Learning reads it in three calls (learning/update.py): `embed` once, for all that does not depend on an action, then `predict` for
every action and `predict_taken` for the actions that were taken. Acting reads only the policy and the memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax

from rulax.agents.base import BaseAgent
from rulax.agents.cores import Core, NoCore, make_core
from rulax.agents.heads import Heads
from rulax.agents.torsos import ContextTorso, Torso, context_size, make_torso
from rulax.agents.value_heads import ValueHeads
from rulax.settings import Network
from rulax.types import Array, Experience, Head, Level, Policy, Predictions, PyTree, now


class CategoricalAgent(BaseAgent):
    """An agent (`agents/base.py`) whose policy is categorical, one categorical policy per dimension of an action, or real."""

    torso: Torso
    core: Core
    heads: Heads | ValueHeads

    def initial_memory(self, num_streams: int) -> PyTree:
        return self.core.initial((num_streams,))

    def act(self, observation: PyTree, first: Array, memory: PyTree) -> tuple[Policy, PyTree]:
        """Logits [B, A] (or `Factored`, [B, D, A], or a `RealPolicy`, [B, D]) and the memory."""
        memory, embedding = self.core.step(memory, self.torso(observation), first)
        return self.heads.policy(embedding), memory

    def remember(self, experience: Experience) -> PyTree:
        embedded = self.torso(jax.tree.map(now, experience.observation))
        return self.core.remember(experience.memory, embedded, now(experience.first))

    def embed(self, experience: Experience) -> PyTree:
        """What the heads begin with (`Embedded`, or values), for each of the T + 1 observations."""
        mlp = self.torso.mlp
        # Where the torso's last layer and the heads' first ones are both linear, they are one matrix. Multiplying the two costs as
        # much as one row per output; every further row saves the torso's last layer, forwards and backwards (Disco103 on Catch:
        # 2.4 of 20 GFLOP).
        outputs = sum(layer.bias.size for layer in self.heads.first_layers())
        if isinstance(self.core, NoCore) and not mlp.activate_last and experience.first.size > outputs:
            return self.heads.after(mlp.layers[-1]).begin(mlp.before_last(self.torso.flat(experience.observation)))
        embedded = self.core.unroll(experience.memory, self.torso(experience.observation), experience.first)
        return self.heads.begin(embedded)

    def predict(self, embedded: PyTree) -> Predictions:
        return self.heads.every(embedded)

    def predict_taken(self, embedded: PyTree, action: Array) -> Predictions:
        return self.heads.taken(embedded, action)


def make_agent(
    key: Array,
    observation: PyTree,
    num_actions: int,
    heads: Mapping[str, Head],
    network: Network,
    action_dimensions: int = 0,
    num_streams: int = 1,
    real_dimensions: int = 0,
) -> CategoricalAgent:
    """A fresh agent for one rule and one environment; an `AgentMaker`, whose docstring explains the arguments."""
    del num_streams  # it keeps nothing for each stream beside its memory
    key_torso, key_core, key_heads = jax.random.split(key, 3)
    torso, core, width = make_reader(key_torso, key_core, observation, network)
    made = Heads(key_heads, width, num_actions, dict(heads), network, action_dimensions, real_dimensions)
    return CategoricalAgent(torso, core, made)


def make_reader(key_torso: Array, key_core: Array, observation: PyTree, network: Network) -> tuple[Torso, Core, int]:
    """What an agent reads observations by, and the width of the embeddings that its heads get."""
    torso = make_torso(key_torso, observation, network)
    level, features = Level[network.memory_level.upper()], network.hidden[-1]
    if network.core == "episodic_lstm":
        torso, size = ContextTorso(torso.readers, torso.mlp), context_size(observation)
        core, width = make_core(key_core, network.core, features, network.core_size, level, size, network.core_rows)
    else:
        core, width = make_core(key_core, network.core, features, network.core_size, level, rows=network.core_rows)
    return torso, core, width
