"""Gymnasium environments as `HostEnvironment`s: they step on the CPU, outside of JAX, and fill numpy timesteps.

Copies are stepped and reset by our own loop, which loses no step after a termination and takes less time than Gymnasium's vector
environment. That one does it where `autoreset` asks for one of its two ways of resetting; `streams.ResettingStreams` says how.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import Actions, ByTable
from rulax.envs.adapters.attributes import Drawn, check_attributes
from rulax.envs.adapters.parts import flattened, read_observations
from rulax.envs.adapters.probing import check_gymnasium
from rulax.envs.adapters.streams import Autoreset, CopiedStreams, Outcome, ResettingStreams
from rulax.envs.base import HostEnvironment
from rulax.envs.ranges import Ranges
from rulax.errors import UserError
from rulax.types import PyTree

AUTORESET_NAMES = {"next_step": "NextStep", "same_step": "SameStep"}  # ours, and the value of gymnasium's AutoresetMode


def ids() -> list[str]:
    """Every id that Gymnasium registers. `make` refuses many of them, and says why (actions without bounds, a missing package)."""
    return sorted(adapters.load("gymnasium", "gymnasium").registry)


def make(
    id: str,
    *,
    autoreset: Literal["next_step", "same_step"] | None = None,
    flatten: bool = False,
    bins: int | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    **options: Any,
) -> GymnasiumEnvironment:
    """The Gymnasium environment of that id; options go to `gymnasium.make` (`max_episode_steps=...` is its time limit).

    `flatten` turns observations of any kind into one vector. `autoreset` asks for Gymnasium's own vector environment and its way
    of resetting. `bins` is how many evenly spaced numbers there are to choose from in each dimension of a continuous action, 11
    unless given. `wrappers` are put around every copy, in this order.
    """
    gymnasium = adapters.load("gymnasium", "gymnasium")
    if autoreset is not None and autoreset not in AUTORESET_NAMES:
        raise ValueError(f"unknown autoreset {autoreset!r}; known: {', '.join(AUTORESET_NAMES)}")
    flatten = _yes_or_no(id, "flatten", flatten)
    if options.get("max_episode_steps") is not None:
        options["max_episode_steps"] = _time_limit(id, options["max_episode_steps"])
        if options["max_episode_steps"] == _own_limit(id):  # which is the same environment
            del options["max_episode_steps"]

    # Gymnasium's own checker would only raise where `probing.py` says in one sentence what is wrong.
    unchecked = {"disable_env_checker": True, **options}
    environment = _adapt(id, lambda: _make_one(id, unchecked, wrappers), flatten, bins)
    if autoreset is None:
        return environment

    def make_vector(num_streams: int) -> Any:
        return gymnasium.make_vec(
            id,
            num_envs=num_streams,
            vectorization_mode="sync",  # named, for else Gymnasium may pick one of its own, without a choice of autoreset
            vector_kwargs={"autoreset_mode": AUTORESET_NAMES[autoreset]},
            wrappers=[*wrappers, *([gymnasium.wrappers.FlattenObservation] if flatten else [])],
            **options,
        )

    return dataclasses.replace(environment, autoreset=autoreset, make_vector=make_vector)


def from_gymnasium(
    make_one: Callable[[], Any],
    *,
    name: str = "",
    flatten: bool = False,
    bins: int | None = None,
    max_episode_steps: int | None = None,
) -> GymnasiumEnvironment:
    """Streams of the environments that `make_one()` makes, in this process: `rulax.train(from_gymnasium(lambda: MyEnv()))`.

    Each stream steps a copy of its own, so every call must make a new one. Records call it by `name`, unless given by its
    class. `max_episode_steps` puts a time limit around it; the rest is as in `make`.
    """
    gymnasium = adapters.load("gymnasium", "gymnasium")
    if not callable(make_one):
        raise ValueError(
            f"from_gymnasium needs a function that makes an environment, as in from_gymnasium(lambda: MyEnv()), not {make_one!r}"
        )
    flatten = _yes_or_no(name or "from_gymnasium", "flatten", flatten)
    limit = None if max_episode_steps is None else _time_limit(name or "from_gymnasium", max_episode_steps)
    # Remembered to catch a function that returns one shared environment: streams would step each other's episodes.
    last: list[Any] = [None]

    def make_env() -> Any:
        try:
            env = make_one()
        except TypeError as error:
            raise ValueError(f"what from_gymnasium was given cannot make an environment: {error}") from error
        if not isinstance(env, gymnasium.Env):
            raise ValueError(f"what from_gymnasium was given must make a gymnasium.Env, not {env!r}")
        if env.unwrapped is last[0]:
            raise ValueError("what from_gymnasium was given must make a new environment at each call, not hand over the same again")
        last[0] = env.unwrapped
        return env if limit in (None, -1) else gymnasium.wrappers.TimeLimit(env, limit)

    return _adapt(name, make_env, flatten, bins)


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: functions have no useful hash
class GymnasiumEnvironment(ByTable, HostEnvironment):  # type: ignore[override]
    """One Gymnasium environment: how to make it, and what its streams look like."""

    name: str
    make_env: Callable[[], Any]  # a copy with all its wrappers
    actions: Actions  # from the agent's choices to the environment's actions
    observation: PyTree  # an array, or a dictionary of them
    parts: Any  # how each is read
    own_space: Any = None  # the environment's own observations, where they are flattened
    autoreset: Autoreset = "when_needed"
    make_vector: Callable[[int], Any] | None = None  # Gymnasium's, which steps and resets that many
    ranges: Ranges = dataclasses.field(default_factory=dict)  # of attributes that are drawn anew for every episode

    @property
    def one_copy_per_stream(self) -> bool:  # type: ignore[override]
        return self.make_vector is None

    def open(self, num_streams: int) -> ResettingStreams:
        if self.make_vector is None:
            return CopiedStreams(self, num_streams)
        return GymnasiumStreams(self, self.make_vector(num_streams), num_streams)

    def make_one(self) -> GymnasiumCopy:
        env = self.make_env()
        return GymnasiumCopy(env, Drawn(self.name, env.unwrapped, self.ranges) if self.ranges else None)

    def randomised(self, ranges: Ranges) -> GymnasiumEnvironment:
        """The same with attributes drawn from these ranges for every episode of every stream, instead of any others."""
        if self.make_vector is not None:
            raise UserError(f"'{self.name}': autoreset asks for Gymnasium's vector environment, in which nothing is randomised")
        probe = self.make_env()
        check_attributes(self.name, probe.unwrapped, ranges)
        probe.close()
        return dataclasses.replace(self, ranges=ranges)

    def stacked(self, observations: list[Any]) -> PyTree:
        if isinstance(self.parts, dict):
            return self.read({name: np.stack([one[name] for one in observations]) for name in self.parts})
        return self.read(np.stack(observations))

    def read(self, observation: Any) -> PyTree:
        """The streams' observations as agents see them."""
        if isinstance(self.parts, dict):
            return {name: part.read(observation[name]) for name, part in self.parts.items()}
        return self.parts.read(observation)

    def preprocess(self, observation: Any) -> PyTree:
        return self.read(observation if self.own_space is None else flattened(self.own_space, observation))


def _adapt(name: str, make_env: Callable[[], Any], flatten: bool, bins: int | None) -> GymnasiumEnvironment:
    """Read actions and observations off one copy, and check that it keeps to Gymnasium's interface."""
    gymnasium = adapters.load("gymnasium", "gymnasium")
    probe = make_env()
    name, own_space = name or type(probe.unwrapped).__name__, None
    try:
        for kind in ("action_space", "observation_space"):
            if not isinstance(getattr(probe, kind, None), gymnasium.Space):
                raise ValueError(f"Gymnasium environment {name!r} has no {kind} of Gymnasium's: set it in __init__")
        if flatten:
            # Under another name first: the lambda looks its function up when called, and as `make_env` it would find itself.
            make_own, own_space = make_env, probe.observation_space
            flat = gymnasium.wrappers.FlattenObservation
            make_env, probe = lambda: flat(make_own()), flat(probe)
        actions = adapters.read_actions("Gymnasium", name, probe.action_space, bins)
        advice = "" if flatten else "; flatten=True turns all of it into one vector"
        parts = read_observations(name, probe.observation_space, advice)
        observation = jax.tree.map(lambda part: part.shown, parts)
        environment = GymnasiumEnvironment(name, make_env, actions, observation, parts, own_space)
        check_gymnasium(environment, probe)
    finally:
        probe.close()
    return environment


class GymnasiumCopy:
    """One environment as a `streams.Copy`."""

    def __init__(self, env: Any, drawn: Drawn | None = None):
        # The environment's own bound methods: no call of ours in between, at every step of every stream.
        self.env, self.step, self.close, self.drawn = env, env.step, env.close, drawn

    def reset(self, seed: int | None) -> PyTree:
        if self.drawn is not None:
            if seed is not None:
                self.drawn.seed(seed)
            self.drawn.draw()  # before the reset, which may read what was drawn
        return self.env.reset(seed=seed)[0]


class GymnasiumStreams(ResettingStreams):
    """Open streams, which Gymnasium's vector environment steps and resets."""

    def __init__(self, environment: GymnasiumEnvironment, vector: Any, num_streams: int):
        super().__init__(num_streams, environment.num_actions, environment.action_dimensions, environment.real_dimensions)
        self.environment, self.vector, self.autoreset = environment, vector, environment.autoreset

    def reset_all(self, seeds: np.ndarray) -> PyTree:
        # Gymnasium's seeding takes Python integers only.
        observation, _ = self.vector.reset(seed=[int(one) for one in seeds])
        return self.environment.read(observation)

    def step_all(self, action: np.ndarray) -> Outcome:
        observation, reward, terminated, truncated, _ = self.vector.step(self.environment.native_action(action))
        return Outcome(self.environment.read(observation), reward, terminated, truncated)

    def close_all(self) -> None:
        self.vector.close()


def _yes_or_no(name: str, option: str, value: Any) -> bool:
    return adapters.read_options(name, {option: False}, {option: value})[option]


def _time_limit(name: str, value: Any) -> int:
    """A whole number of steps; -1 is Gymnasium's value for no limit."""
    steps = adapters.read_options(name, {"max_episode_steps": 1}, {"max_episode_steps": value})["max_episode_steps"]
    if steps < 1 and steps != -1:
        raise ValueError(f"{name!r}: max_episode_steps must be at least 1, or -1 for no limit, not {value!r}")
    return int(steps)


def _own_limit(id: str) -> int | None:
    """The time limit that an id is registered with."""
    known = adapters.load("gymnasium", "gymnasium").registry.get(id)
    return known and known.max_episode_steps


def _make_one(id: str, options: dict[str, Any], wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    """One copy with its wrappers; errors in making it become one sentence."""
    gymnasium = adapters.load("gymnasium", "gymnasium")
    try:
        env = gymnasium.make(id, **options)
    except gymnasium.error.UnregisteredEnv as error:
        hint = "; an id that another package registers is written 'package:Id-v0'"
        raise adapters.unknown_id("Gymnasium", id, list(gymnasium.registry), hint) from error
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"Gymnasium environment {id!r} cannot be made: {error}") from error
    for wrapper in wrappers:
        env = wrapper(env)
    return env
