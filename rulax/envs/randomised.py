"""Domain randomisation of any environment: constants of its task, or attributes of a Gymnasium object, drawn for every episode.

    randomise(make("cartpole"), "cartpole", "force=5:15,length=.25:.75")
    randomise(make("CartPole-v1"), "CartPole-v1", {"force_mag": (5, 15), "masspole": [(0.01, 0.05), (0.5, 1)]})

It is the option `randomise` of `registry.make`, which `--randomise` sets.
"""

from __future__ import annotations

from typing import Any

from rulax.envs.base import Environment, HostEnvironment
from rulax.envs.ranges import ranges_of
from rulax.envs.tasks import EachEpisode, Randomised, each_episode, randomised
from rulax.errors import UserError


def randomise(environment: Environment | HostEnvironment, name: str, ranges: Any, per_task: bool = False) -> Any:
    """An environment of the same kind with constants drawn from ranges; ranges that it has already are replaced.

    Args:
        environment: compiled, or one of Gymnasium's.
        name: what errors call it, and what may stand in front of a constant, as in `cartpole.force`.
        ranges: as `ranges.read_ranges` takes them; none leaves the environment as it is by default.
        per_task: draw once for each task instead of each episode, for what is made of several episodes of one task.
    """
    read = ranges_of(name, "randomise", ranges)
    if isinstance(environment, HostEnvironment):
        return _on_host(environment, name, read)
    while isinstance(environment, EachEpisode | Randomised):
        environment = environment.environment
    if not read:
        return environment
    return randomised(environment, name, **read) if per_task else each_episode(environment, name, **read)


def _on_host(environment: HostEnvironment, name: str, ranges: Any) -> HostEnvironment:
    from rulax.envs.adapters.gymnasium import GymnasiumEnvironment  # here, because most environments are compiled

    if isinstance(environment, GymnasiumEnvironment):
        return environment.randomised(ranges)
    if not ranges:
        return environment
    raise UserError(
        f"'{name}' has nothing to randomise: only Gymnasium's environments, among those on the CPU, have attributes to set"
    )
