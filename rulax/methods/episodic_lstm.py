"""Episodic LSTM: a meta-learner that is reminded of what it found out when it was in the same situation before.

    c_t = i * c_in + f * c_{t-1} + r * c_ep

An LSTM learns within an episode by remembering, as in RL², and forgets all of it at the end. But its last cell is written into a
table, under the context of the episode; where the context comes back, a further gate r lets that cell c_ep back in (Ritter et al.
2018). The core is `EpisodicLSTM` of agents/cores.py; contexts that recur are `recurring` of envs/tasks.py. The rest is RL²'s: PPO
on whole epochs of contexts, and the trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from rulax.agents import Agent
from rulax.envs.base import Environment
from rulax.envs.tasks import Recurring
from rulax.methods.rl2 import RL2, play
from rulax.rules.base import Recipe


@dataclasses.dataclass(frozen=True)
class EpisodicLSTM(RL2):
    """The contexts that an agent is trained on, and the settings of the recurrent PPO that trains it.

    An unroll of `steps` may be a part of an epoch of contexts: memories, tables among them, go on in the next one.
    """

    environment: Callable[[], Environment]  # a `Recurring` one
    plain: bool = False  # whether the core is an LSTM without a table, for comparison

    def trials(self) -> Any:
        """The environment to learn in: it is made of episodes, and shows all that the agent needs."""
        return self.environment()

    def recipe(self) -> Recipe:
        """RL²'s recurrent PPO on another core."""
        made, contexts = super().recipe(), self.trials().contexts
        core: Literal["lstm", "episodic_lstm"] = "lstm" if self.plain else "episodic_lstm"
        network = dataclasses.replace(made.network, core=core, core_rows=contexts, memory_level="episode")
        return made._replace(network=network)


def play_exposures(environment: Recurring, agent: Agent, pulls: int, number: int, seed: int) -> np.ndarray:
    """Play `number` epochs of contexts with an agent whose weights stay fixed.

    Args:
        environment: contexts whose episodes all have `pulls` steps.
        agent: the recurrent agent.
        pulls: the length of an episode.
        number: how many epochs are drawn.
        seed: of the contexts and of the actions.

    Returns:
        The mean expected reward of an episode [number, repeats] where its context is met for the first time, the second, ...
    """
    episodes = environment.contexts * environment.repeats
    played, _ = play(environment, episodes * pulls, agent, number, seed)
    earned = np.asarray(played.reward).reshape(episodes, pulls, number).sum(1).T
    barcodes = np.asarray(played.observation["context"])[: episodes * pulls : pulls]
    numbers = (barcodes @ 2 ** np.arange(environment.bits)).T  # [number, episodes], one number for each barcode
    # Sorted by context, and within a context by time: [number, contexts * repeats].
    by_context = np.take_along_axis(earned, np.argsort(numbers, 1, kind="stable"), 1)
    return by_context.reshape(number, environment.contexts, environment.repeats).mean(1)


def without_reinstatement(agent: Any) -> Any:
    """The same agent with its reinstatement gate closed: an ablation that leaves it nothing of earlier episodes."""
    gate = agent.core.gate
    closed = eqx.tree_at(lambda layer: layer.bias, gate, jnp.full_like(gate.bias, -1e9))
    return eqx.tree_at(lambda agent: agent.core.gate, agent, closed)
