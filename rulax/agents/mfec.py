"""The agent of model-free episodic control (Blundell et al. 2016): tables of the best returns, by a fixed random projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import equinox as eqx
import jax
import numpy as np

from rulax.agents.base import Carried, PerStream
from rulax.agents.episodic import EpisodicAgent, Settings, check_episodic, empty_tables, nothing_waits
from rulax.agents.memory import ExactOrMean, Largest
from rulax.agents.torsos import Numbers, read_all
from rulax.settings import Bounds, Fraction, Network
from rulax.types import Array, Head, PyTree


class Projection(eqx.Module):
    """A fixed random projection of observations as flat vectors, which keeps distances roughly as they are."""

    matrix: Carried  # [inputs, K]
    readers: tuple[Numbers, ...]

    def __init__(self, key: Array, observation: PyTree, size: int):
        leaves = jax.tree.leaves(observation)
        self.readers = tuple(Numbers(tuple(leaf.shape)) for leaf in leaves)
        inputs = sum(int(np.prod(leaf.shape)) for leaf in leaves)
        self.matrix = Carried(jax.random.normal(key, (inputs, size)) / np.sqrt(size))

    def __call__(self, observation: PyTree) -> Array:
        """From [..., *shape] to [..., K]."""
        matrix = self.matrix.value
        return read_all(self.readers, observation, matrix.dtype) @ matrix


def make_mfec_agent(
    key: Array,
    observation: PyTree,
    num_actions: int,
    heads: Mapping[str, Head],
    network: Network,
    action_dimensions: int = 0,
    num_streams: int = 1,
    real_dimensions: int = 0,
    *,
    discount: Fraction = 0.99,
    epsilon: Fraction = 0.005,
    neighbours: Annotated[int, Bounds(at_least=1)] = 11,
    rows: Annotated[int, Bounds(at_least=1)] = 5000,
    key_size: Annotated[int, Bounds(at_least=1)] = 64,
    tolerance: Annotated[float, Bounds(at_least=0)] = 1e-3,
    horizon: Annotated[int, Bounds(at_least=1)] = 1000,
) -> EpisodicAgent:
    """A fresh agent with empty tables; an `AgentMaker`, whose docstring explains the other arguments.

    Args:
        discount: of the return.
        epsilon: share of random actions.
        neighbours: rows whose mean stands for a state that is not in the table.
        rows: rows per action.
        key_size: numbers per key, from a random projection.
        tolerance: distance within which two states are the same.
        horizon: steps before the end of an episode that are written.
    """
    del heads
    check_episodic("mfec", network, rows, neighbours, action_dimensions, real_dimensions)
    settings = Settings(discount, epsilon, neighbours, ExactOrMean(tolerance), Largest(), tolerance, bootstraps=False)
    tables, waiting = empty_tables(num_actions, rows, key_size), nothing_waits(num_streams, horizon, key_size)
    return EpisodicAgent(Projection(key, observation, key_size), Carried(tables), PerStream(waiting), settings)
