"""`rulax evaluate`: agents play whole episodes and learn nothing; a table says what they earned."""

from __future__ import annotations

import sys
from typing import Any

from rulax.commands.build import allow
from rulax.commands.evaluate.settings import EvaluateConfig, build_evaluate
from rulax.commands.evaluate.setup import find_agents
from rulax.commands.evaluate.show import show
from rulax.commands.train.agent import EPISODES, evaluate_agents
from rulax.envs.base import EnvironmentFailed
from rulax.errors import TrainingStopped
from rulax.evaluation.scores import Evaluation
from rulax.text import plural


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    config = build_evaluate(values)
    show(evaluate_from(config), config.json)
    return 0


def evaluate_from(config: EvaluateConfig) -> Evaluation:
    """Evaluate as the settings say."""
    allow(config.step_limit)
    agents = find_agents(config.what, config.env, config.env_options, config.platform)
    if not config.json:
        print(f"{plural(config.episodes, 'episode')} of {plural(len(agents), 'agent')}…", file=sys.stderr, flush=True)
    greedy = None if config.greedy == config.sampled else config.greedy
    return guarded(agents, config.episodes, config.seed, greedy)


def evaluate(
    what: Any, episodes: int = EPISODES, seed: int = 0, greedy: bool | None = None, env: Any = None, randomise: Any = None
) -> Evaluation:
    """Let trained agents play whole episodes: `print(rulax.evaluate("runs/catch-ppo-001", episodes=200))`.

    Args:
        what: the folder of a run, an agent file, a `Run`, or an agent.
        episodes: of each agent.
        seed: of all random numbers; never those of training.
        greedy: True for the most likely actions, False for actions drawn as in training, None for both.
        env: another environment with the same observations and actions, by name or as an object.
        randomise: constants to draw anew for every episode, instead of the ranges of training: `{"force": [(1, 5), (15, 20)]}`.
    """
    options = {"randomise": randomise} if randomise else None
    return guarded(find_agents(what, env, options), episodes, seed, greedy)


def guarded(agents: list[Any], episodes: int, seed: int, greedy: bool | None) -> Evaluation:
    """An environment that fails ends the command with a sentence."""
    try:
        return evaluate_agents(agents, episodes, seed, greedy)
    except EnvironmentFailed as error:
        raise TrainingStopped(f"the evaluation stopped: {error}") from error
