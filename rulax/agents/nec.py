"""The agent of neural episodic control (Pritzel et al. 2017): tables whose keys are the torso's, all of it trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from rulax.agents.base import PerStream
from rulax.agents.episodic import EpisodicAgent, Settings, check_episodic, empty_tables, nothing_waits
from rulax.agents.memory import Average, InverseDistance
from rulax.agents.torsos import make_torso
from rulax.settings import Bounds, Fraction, Network
from rulax.types import Array, Head, PyTree


def make_nec_agent(
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
    epsilon: Fraction = 0.01,
    neighbours: Annotated[int, Bounds(at_least=1)] = 50,
    rows: Annotated[int, Bounds(at_least=1)] = 5000,
    delta: Annotated[float, Bounds(above=0)] = 1e-3,
    rate: Fraction = 0.1,
    tolerance: Annotated[float, Bounds(at_least=0)] = 1e-3,
    horizon: Annotated[int, Bounds(at_least=1)] = 100,
) -> EpisodicAgent:
    """A fresh agent with empty tables; an `AgentMaker`, whose docstring explains the other arguments.

    Args:
        discount: of the value.
        epsilon: share of random actions.
        neighbours: rows whose weighted mean is a value.
        rows: rows per action.
        delta: of the kernel 1 / (squared distance + delta).
        rate: share of the way that a value goes towards a new one where a key is written again.
        tolerance: distance within which two keys are the same.
        horizon: N, rewards that are added up before the table is asked for the rest.
    """
    del heads
    check_episodic("nec", network, rows, neighbours, action_dimensions, real_dimensions)
    settings = Settings(discount, epsilon, neighbours, InverseDistance(delta), Average(rate), tolerance, bootstraps=True)
    size = network.hidden[-1]
    tables, waiting = empty_tables(num_actions, rows, size), nothing_waits(num_streams, horizon, size)
    return EpisodicAgent(make_torso(key, observation, network), tables, PerStream(waiting), settings)
