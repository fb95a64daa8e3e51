"""Finds the agents that a user names: those of a run folder, or the one in a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rulax.commands import build
from rulax.commands.resume import KINDS
from rulax.commands.train.agent import AgentHandle, load_agent, without
from rulax.commands.train.result import Run, load
from rulax.commands.train.setup import KIND
from rulax.envs.own import environment_name, environment_of
from rulax.envs.ranges import ranges_of, write_ranges
from rulax.envs.registry import lasting_options
from rulax.errors import UserError, suggestion
from rulax.records import folder as folders
from rulax.records.agent_file import check_environment
from rulax.text import merge_options, split_options

RULE_FILE = ".npz"


def find_agents(
    what: Any, env: Any = None, env_options: Mapping[str, Any] | None = None, platform: str = "auto"
) -> list[AgentHandle]:
    """The agents of a run (one per seed) or of a file.

    Args:
        what: a folder, a file, a `Run`, or an agent itself.
        env: another environment for them, by name or as an object; None or "" for the one that they were trained in.
        env_options: options that differ from training.
        platform: where to compute.
    """
    if isinstance(env, str) and env:
        env, inside = split_options(env)
        env_options = merge_options(env, inside, env_options or {}, "env_options")
    if isinstance(what, AgentHandle):
        agents = [what]
    elif isinstance(what, Run):
        agents = what.agents
    elif not isinstance(what, str | Path):
        raise UserError(f"an agent is named by a folder or a file, or is a Run or an agent of one, not {what!r}")
    else:
        build.start_jax(platform)
        path = Path(what)
        if path.is_file():
            return [agent_in(path, env, env_options)]
        agents = run_in(path, env).agents
    return [elsewhere(agent, env, env_options, str(what)) for agent in agents] if env or env_options else agents


def agent_in(path: Path, env: Any, env_options: Mapping[str, Any] | None) -> AgentHandle:
    """The agent in a file."""
    if path.suffix == RULE_FILE:
        raise UserError(f"{path} is a rule file, not an agent; train one with it: rulax train catch --rule {path}")
    return load_agent(path, env or None, env_options=dict(env_options) if env_options else None)


def run_in(path: Path, env: Any) -> Run:
    """The run in a folder; another command's folder, or none at all, is refused with what was probably meant."""
    if not path.is_dir():
        raise UserError(f"there is no run and no agent file '{path}'{probably(str(path))}")
    kind = folders.read_config(path)["kind"]
    if kind != KIND:
        raise UserError(
            f"{path} holds {KINDS.get(kind, 'something else')}, which has no agents of its own; give the folder of a training run "
            "(`rulax runs` lists them) or an agent file"
        )
    return load(path, env=env if env and not isinstance(env, str) else None)


def probably(name: str) -> str:
    """The end of a sentence about a name that is neither: what it is, or which run it looks like."""
    from rulax.envs.registry import list_environments
    from rulax.rules.registry import list_rules

    if name in list_rules():
        return f"; '{name}' is a rule: rulax train catch --rule {name} trains an agent with it"
    if name in [entry.name for entry in list_environments()]:
        return f"; '{name}' is an environment: rulax train {name} trains an agent in it"
    known = [str(path) for path in Path("runs").iterdir() if path.is_dir()] if Path("runs").is_dir() else []
    return suggestion(name, known, "`rulax runs` lists the runs here", most=3)


def elsewhere(agent: AgentHandle, env: Any, env_options: Mapping[str, Any] | None, source: str) -> AgentHandle:
    """The same agent in another environment."""
    about = agent.description
    if env_options and env_options.get("randomise"):
        # As text, which is what a note about the evaluation quotes.
        name = env if isinstance(env, str) and env else about.env
        env_options = {**env_options, "randomise": write_ranges(ranges_of(name, "randomise", env_options["randomise"]))}
    if not env and "env" in about.custom and set(env_options or {}) == {"randomise"}:
        environment = build.with_other_ranges(about.env, {}, (env_options or {})["randomise"], agent.environment)
        about = dataclasses.replace(about, env_options={**about.env_options, **(env_options or {})})
    elif env and not isinstance(env, str):
        with build.user_errors():
            environment = environment_of(env, environment_name(env), dict(env_options or {}))
        about = dataclasses.replace(about, custom=[*without(about.custom, "env"), "env"])
    else:
        name = env or about.env
        kept = about.env_options if name == about.env else lasting_options(about.env_options)
        options = {**kept, **(env_options or {})}
        environment = build.make_environment(name, options)
        about = dataclasses.replace(about, env=name, env_options=options, custom=without(about.custom, "env"))
    check_environment(agent.description, environment, source)
    # A task that was drawn at random belongs to the environment that it was drawn in.
    return AgentHandle(agent.params, environment, None, lambda: about)
