"""`rulax play`: shows a trained agent in the terminal, or saves a film of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rulax.commands.build import allow
from rulax.commands.evaluate.setup import find_agents
from rulax.commands.play.settings import PlayConfig, build_play
from rulax.commands.play.show import tell, watch
from rulax.commands.train.agent import AgentHandle
from rulax.envs.base import EnvironmentFailed
from rulax.errors import TrainingStopped, UserError

if TYPE_CHECKING:
    from rulax.report.film import Film


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    config = build_play(values)
    files = [file for file in (config.gif, config.mp4) if file]
    if config.mp4:
        from rulax.report.film import check_mp4

        check_mp4()  # before anything is played
    agent = chosen(find_agents(config.what, config.env, config.env_options, config.platform), config.agent)
    allow(config.step_limit)
    # Said because it changes what is seen: the return of training episodes is that of drawn actions.
    how = "the most likely actions; --no-greedy draws them as in training" if config.greedy else "actions drawn as in training"
    print(f"playing {how}", file=sys.stderr)
    try:
        if files:
            film = agent.film(config.episodes, config.seed, config.greedy, config.fps, config.most)
            for file in files:
                print(film.save(file))
            print(film.said(), file=sys.stderr)
        else:
            at_terminal(agent, config)
    except EnvironmentFailed as error:
        raise TrainingStopped(f"the agent cannot be played: {error}") from error
    return 0


def at_terminal(agent: AgentHandle, config: PlayConfig) -> None:
    """Moving pictures on a terminal, and a line per episode elsewhere."""
    moments = agent.play(config.episodes, config.seed, config.greedy)
    if sys.stdout.isatty():
        watch(moments, config.fps)
    else:
        tell(moments)


def chosen(agents: list[AgentHandle], number: int) -> AgentHandle:
    """One of a run's agents."""
    if number >= len(agents):
        known = f"0 to {len(agents) - 1}" if len(agents) > 1 else "only 0"
        raise UserError(f"there is no agent {number}; there is {known}")
    return agents[number]


def play(
    what: Any,
    path: str | Path | None = None,
    episodes: int = 1,
    seed: int = 0,
    greedy: bool = True,
    agent: int = 0,
    fps: float = 15,
    env: Any = None,
    most: int = 2000,
) -> Film:
    """A film of a trained agent: `rulax.play("runs/catch-ppo-001", "agent.gif")`; in a notebook it shows itself.

    Args:
        what: the folder of a run, an agent file, a `Run`, or an agent.
        path: where to save it, as .gif or .mp4; None saves nothing.
        episodes: how many.
        seed: of all random numbers.
        greedy: the most likely actions, or drawn ones.
        agent: which of a run's agents.
        fps: steps per second.
        env: another environment with the same observations and actions, by name or as an object.
        most: pictures, after which the film ends.
    """
    from rulax.report.film import check_path

    if path is not None:
        check_path(path)
    film = chosen(find_agents(what, env), agent).film(episodes, seed, greedy, fps, most)
    if path is not None:
        film.save(path)
    return film
