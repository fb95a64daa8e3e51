"""What the skills of an agent are worth: can one tell from where it goes which skill it follows?

Whole episodes are played with drawn actions, as in training, and judged by the agent's own discriminator q(z | s). Only the second
half of each episode counts: all skills start alike, so nobody could tell them apart at the start.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.base import Agent
from rulax.agents.diayn import arrivals, skilled
from rulax.envs.adapters.restart import RestartingStreams
from rulax.envs.base import Environment, HostEnvironment
from rulax.envs.wrappers import streams as make_streams
from rulax.files import jsonable
from rulax.learning.rollout import Actor, Step, act, begin, decide, pack
from rulax.types import Array, Experience, PyTree

EPISODES, HOST_EPISODES = 256, 32  # one for each stream; skills are drawn, so each gets a share of them
PIECE, MOST_STEPS = 50, 1000  # steps of one call; an episode that lasts longer than the latter is judged by its beginning


class Paths(NamedTuple):
    """Where the episodes went."""

    places: np.ndarray  # [T, N, 2], states in two dimensions; NaN after the end of an episode
    skill: np.ndarray  # [N] int, which one each episode followed
    axes: tuple[str, str]  # what the two dimensions are


@dataclasses.dataclass(frozen=True)
class Skills:
    """The skills of one agent: `skills.information`, `skills.effective`, `skills.accuracy`."""

    rewards: np.ndarray  # [Z] mean of log q(z | s) - log p(z) in nats, for each skill; NaN for one that was never drawn
    accuracy: np.ndarray  # [Z] how often the discriminator takes each skill for the likeliest, 0 to 1; NaN likewise
    paths: Paths

    @property
    def number(self) -> int:
        """How many skills there are."""
        return len(self.rewards)

    @property
    def information(self) -> float:
        """A lower bound of I(S; Z) in nats, at most log(number)."""
        return float(np.nanmean(self.rewards))

    @property
    def effective(self) -> float:
        """As many skills as could be told apart perfectly would give the same information."""
        return math.exp(self.information)

    def row(self, agent: str) -> list[str]:
        """One line below `SKILL_COLUMNS`."""
        worst = float(np.nanmin(self.accuracy))
        information = f"{self.information:.3f} of {math.log(self.number):.3f} nats"
        return [agent, str(self.number), information, f"{self.effective:.2f}", f"{np.nanmean(self.accuracy):.1%}", f"{worst:.1%}"]

    def as_dict(self) -> dict[str, Any]:
        """The numbers, as JSON has them."""
        summary = {"number": self.number, "information": self.information, "effective": self.effective}
        return jsonable(summary | {"rewards": self.rewards, "accuracy": self.accuracy})


def judge_skills(
    agent: Agent, environment: Environment | HostEnvironment, key: Array, episodes: int = 0, task: PyTree = None
) -> Skills | None:
    """Play episodes with skills drawn at random, and see whether they can be told apart.

    Args:
        agent: it stays as it is.
        environment: one that shows a skill, compiled or on the host.
        key: all randomness.
        episodes: how many; 0 means `EPISODES`, or `HOST_EPISODES` on the host.
        task: of a compiled environment; None means its default one.

    Returns:
        None for an agent without skills.
    """
    knows = skilled(agent)
    if knows is None:
        return None
    if isinstance(environment, HostEnvironment):
        experience, ended = _played_on_host(agent, environment, episodes or HOST_EPISODES, key)
    else:
        experience, ended = _played(agent, environment, episodes or EPISODES, key, task)
    arrived = arrivals(experience)
    log_q = np.asarray(knows.discriminator(arrived.states))
    steps = np.arange(len(ended))[:, None]
    length = np.where(ended.any(0), ended.argmax(0) + 1, len(ended))
    # [T, N], the second half of each stream's first episode, or its only step.
    late = (steps < length) & ((2 * steps >= length) | (length == 1))
    skill = np.asarray(arrived.skill[0]).argmax(-1)
    numbers = log_q.shape[-1]
    followed = np.take_along_axis(log_q, np.broadcast_to(skill[:, None], (*log_q.shape[:2], 1)), -1)[..., 0]
    hits = log_q.argmax(-1) == skill
    of = [late & (skill == each) for each in range(numbers)]
    rewards = np.array([followed[mask].mean() + math.log(numbers) if mask.any() else np.nan for mask in of])
    accuracy = np.array([hits[mask].mean() if mask.any() else np.nan for mask in of])
    flat = [np.asarray(part, np.float64).reshape(*ended.shape, -1) for part in jax.tree.leaves(arrived.states)]
    return Skills(rewards, accuracy, Paths(*_in_plane(np.concatenate(flat, -1), steps < length, skill)))


def _in_plane(states: np.ndarray, inside: np.ndarray, skill: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    """States [T, N, F] in two dimensions: as they are, against time, or by the two directions in which they vary most."""
    if states.shape[-1] == 1:
        time = np.broadcast_to(np.arange(len(states))[:, None, None], states.shape)
        places, axes = np.concatenate([time, states], -1).astype(np.float64), ("step", "state")
    elif states.shape[-1] == 2:
        places, axes = states.copy(), ("first number of the state", "second number of the state")
    else:
        known = states[inside]
        # Of the covariance and not of all states: an image has thousands of numbers, and episodes thousands of states.
        centred = known - known.mean(0)
        directions = np.linalg.svd(centred[: 4 * states.shape[-1] + 2000], full_matrices=False)[2][:2]
        places, axes = (states - known.mean(0)) @ directions.T, ("first principal component", "second principal component")
    places[~inside] = np.nan
    return places, skill, axes


def _played(agent: Agent, environment: Environment, episodes: int, key: Array, task: PyTree) -> tuple[Experience, np.ndarray]:
    """The beginning of every stream, until its first episode is over: experience [T, N], and where an episode ended."""
    streams = make_streams(environment, episodes)
    go_on = jax.jit(functools.partial(act, streams, unroll=PIECE))
    key_start, key_steps = jax.random.split(key)
    started = environment.default_task() if task is None else task
    actor = jax.jit(functools.partial(begin, streams))(started, agent.initial_memory(episodes), key_start)
    pieces: list[tuple[Experience, np.ndarray]] = []
    while len(pieces) * PIECE < MOST_STEPS and not _all_ended([ended for _, ended in pieces]):
        actor, experience, episode = go_on(agent, actor, key=jax.random.fold_in(key_steps, len(pieces)))
        pieces.append((experience._replace(memory=()), np.asarray(episode.ended)))
    return _joined([experience for experience, _ in pieces]), np.concatenate([ended for _, ended in pieces])


def _all_ended(pieces: Sequence[np.ndarray]) -> bool:
    return bool(pieces) and bool(np.concatenate(pieces).any(0).all())


def _joined(pieces: Sequence[Experience]) -> Experience:
    """Consecutive pieces as one: the last observation of each is the first of the next."""

    def together(*parts: Array) -> Array:
        return jnp.concatenate(parts)

    def overlapping(*parts: Array) -> Array:
        return jnp.concatenate([*(part[:-1] for part in parts[:-1]), parts[-1]])

    seen = jax.tree.map(overlapping, *(piece.observation for piece in pieces))
    rest = jax.tree.map(together, *(piece._replace(observation=()) for piece in pieces))
    return rest._replace(observation=seen, first=overlapping(*(piece.first for piece in pieces)))


def _played_on_host(agent: Agent, environment: HostEnvironment, episodes: int, key: Array) -> tuple[Experience, np.ndarray]:
    """The same in streams of its own that step on the CPU, closed afterwards."""
    seed = np.random.SeedSequence(np.asarray(jax.random.key_data(key)).reshape(-1).tolist()).generate_state(1)[0]

    @jax.jit
    def choose(agent: Agent, actor: Actor, key: Array) -> tuple[Array, Any, PyTree]:
        policy, memory = agent.act(actor.observation, actor.first, actor.memory)
        return agent.sample(key, policy), policy, memory

    streams, steps = RestartingStreams(environment, episodes), list[Step]()
    try:
        timestep, memory = streams.start(int(seed)), agent.initial_memory(episodes)
        over = np.zeros(episodes, bool)
        while len(steps) < MOST_STEPS and not over.all():
            actor = Actor((), (), timestep.observation, timestep.first, memory)
            action, policy, memory = choose(agent, actor, jax.random.fold_in(key, len(steps)))
            timestep = streams.step(np.asarray(action))
            steps.append(decide(actor, action, policy, timestep))
            over |= np.asarray(timestep.episode.ended)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)
        last = jax.tree.map(jnp.asarray, timestep.observation)
        return pack(stacked, last, jnp.asarray(timestep.first), ()), np.asarray(stacked.episode.ended)
    finally:
        streams.close()
