"""The `rulax` command: looks up a subcommand, parses its flags, and turns every error into one sentence and an exit code.

A new subcommand is one row of `COMMANDS`: what it configures, where its function is, and how it is called. Functions are
imported only when they are called, so that `--help` never waits for JAX.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NamedTuple

import rulax
from rulax.commands.bench.settings import BenchDiscoverConfig, BenchTrainConfig
from rulax.commands.compare.settings import CompareConfig
from rulax.commands.discover.settings import DiscoverConfig
from rulax.commands.evaluate.settings import EvaluateConfig
from rulax.commands.explain.settings import ExplainConfig
from rulax.commands.flags import make_parser, parse
from rulax.commands.listing.settings import BoardConfig, EnvsConfig, GetRuleConfig, RulesConfig, RunsConfig
from rulax.commands.method.settings import MethodConfig
from rulax.commands.play.settings import PlayConfig
from rulax.commands.preset_files import SUITES, load_preset, preset_names
from rulax.commands.settings import known_keys
from rulax.commands.study.settings import StudyConfig
from rulax.commands.train.settings import TrainConfig
from rulax.commands.tune.settings import TuneConfig
from rulax.commands.watch.settings import WatchConfig
from rulax.envs.suites import SUITES as COMPARED
from rulax.errors import FolderFailed, Interrupted, TrainingStopped, UserError, suggestion
from rulax.own import consent
from rulax.parallel.allocation import keep_freed_memory

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130


class Command(NamedTuple):
    """One subcommand. `function` takes the values that the user gave and returns an exit code."""

    function: str  # "module:function"
    config: type
    usage: str
    examples: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """One line of help: what its configuration says of itself."""
        return self.config.__doc__ or ""


COMMANDS = {
    "train": Command(
        "rulax.commands.tune.dispatch:command",
        TrainConfig,
        "train ENV [options]",
        (
            "rulax train catch",
            "rulax train catch --rule ppo --seeds 5 --steps 1e6 --learning-rate 1e-3",
            "rulax train --resume runs/catch-ppo-001 --steps 2e6",
            "rulax train catch --rule ppo --tune learning_rate=1e-4:1e-2:log unroll=8,16,32 --trials 20",
        ),
    ),
    "discover": Command(
        "rulax.commands.discover.run:command",
        DiscoverConfig,
        "discover SUITE [options]",
        (
            "rulax discover grids",
            "rulax discover catch:rows=5,columns=5 --validation catch --steps 500",
            "rulax discover paper --scale 0.001",
            "rulax discover grids --init disco103 --meta-learning-rate 1e-3",
            "rulax discover --resume runs/discover-grids-001",
        ),
    ),
    "compare": Command(
        "rulax.commands.compare.run:command",
        CompareConfig,
        "compare ENV... --rules A B C",
        (
            "rulax compare catch gymnax/CartPole-v1 --rules disco103 ppo actor_critic",
            "rulax compare classic --rules ppo actor_critic --steps 200k --tune lr=1e-4,3e-4,1e-3",
            "rulax compare catch --rules disco103 disco103:no_yz disco103:no_bootstrap",
            "rulax compare --suite minatar --rules disco103 ppo",
            "rulax compare --merge runs/compare-minatar-001 runs/compare-minatar-002 --out whole",
            "rulax compare --resume runs/compare-catch-001",
        ),
    ),
    "tune": Command(
        "rulax.commands.tune.run:command",
        TuneConfig,
        "tune ENV --tune KEY=LOW:HIGH",
        (
            "rulax tune catch --rule ppo --tune learning_rate=1e-4:1e-2:log unroll=8,16,32 --trials 20",
            "rulax tune gymnax/CartPole-v1 --rule ppo --tune rule.discount=0.9:0.999 hidden=64x64,128x128",
            "rulax tune --resume runs/tune-catch-ppo-001 --trials 40",
        ),
    ),
    "evaluate": Command(
        "rulax.commands.evaluate.run:command",
        EvaluateConfig,
        "evaluate RUN|AGENT [options]",
        (
            "rulax evaluate runs/catch-ppo-001",
            "rulax evaluate agent.safetensors --episodes 500 --greedy",
        ),
    ),
    "play": Command(
        "rulax.commands.play.run:command",
        PlayConfig,
        "play RUN|AGENT [options]",
        (
            "rulax play runs/catch-ppo-001",
            "rulax play agent.safetensors --episodes 2 --gif agent.gif",
        ),
    ),
    "method": Command(
        "rulax.commands.method.run:command",
        MethodConfig,
        "method NAME|list|all [options]",
        (
            "rulax method list",
            "rulax method rl2 --experiment bandit-10x5 --seeds 3",
            "rulax method all --suite quick --seeds 1",
        ),
    ),
    "study": Command(
        "rulax.commands.study.run:command",
        StudyConfig,
        "study NAME|FILE|list",
        (
            "rulax study list",
            "rulax study ablations --points no_yz no_bootstrap --seeds 1",
            "rulax study --resume runs/study-scaling-001 --seeds 5",
        ),
    ),
    "explain": Command(
        "rulax.commands.explain.run:command",
        ExplainConfig,
        "explain RULE [options]",
        (
            "rulax explain disco103",
            "rulax explain runs/discover-grids-001/rule.safetensors --env grid/random-small",
            "rulax explain ppo_targets --steps 100k",
        ),
    ),
    "watch": Command(
        "rulax.commands.watch.run:command",
        WatchConfig,
        "watch [RUN] [options]",
        ("rulax watch", "rulax watch runs/catch-ppo-001", "rulax watch runs/compare-catch-001 --port 8080 --no-open"),
    ),
    "runs": Command(
        "rulax.commands.listing.run:runs_command",
        RunsConfig,
        "runs [DIR] [options]",
        ("rulax runs", "rulax runs --filter rule=ppo finished=yes --sort final_return --reverse", "rulax runs --csv runs.csv"),
    ),
    "board": Command("rulax.commands.listing.run:board_command", BoardConfig, "board [DIR]"),
    "envs": Command("rulax.commands.listing.run:envs_command", EnvsConfig, "envs [FILTER]"),
    "rules": Command("rulax.commands.listing.run:rules_command", RulesConfig, "rules [FILTER]"),
    "rules get": Command(
        "rulax.commands.listing.run:get_rule_command",
        GetRuleConfig,
        "rules get NAME [--from FILE]",
        ("rulax rules get disco103", "rulax rules get disco103 --from disco_103.npz"),
    ),
    "bench train": Command(
        "rulax.commands.bench.run:train_command",
        BenchTrainConfig,
        "bench train [options]",
        ("rulax bench train --rule ppo --json",),
    ),
    "bench discover": Command(
        "rulax.commands.bench.run:discover_command",
        BenchDiscoverConfig,
        "bench discover [options]",
        ("rulax bench discover --agents 2 --inner 20 --memory both --json",),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    # First of all: it only helps if no other thread has allocated yet, and what a command imports may start some.
    keep_freed_memory()
    # XLA's alarm about slow compilation is printed as an error; what fails is an exception anyway. Read when JAX is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as with `python -m rulax`: module:ID and dm_env/module:function name the user's own modules
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without block characters still gets its table
    try:
        return dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        # The one sentence hides where it was raised, which whoever debugs the package or an environment of their own needs.
        if os.environ.get("RULAX_DEBUG"):
            raise
        return complain(error, BAD_INPUT)
    except (TrainingStopped, FolderFailed) as error:
        return complain(error, BAD_INPUT)  # the run cannot go on, and the sentence says why
    # Before KeyboardInterrupt, of which it is a kind: this one knows what was saved and how to go on.
    except Interrupted as error:
        print(error, file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # `rulax envs | head` closes the pipe early; without this, Python would complain again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    # Of what is written outside of run folders, which say it themselves: an agent's file, a picture, standard output.
    except OSError as error:
        if os.environ.get("RULAX_DEBUG"):
            raise
        return complain(error, BAD_INPUT)


def complain(error: Exception, code: int) -> int:
    """One line on stderr."""
    # Messages of other libraries that were turned into a UserError may span lines; scripts and logs rely on one line per error.
    print("error: " + " ".join(str(error).split()), file=sys.stderr)
    return code


def dispatch(arguments: list[str]) -> int:
    """Find the subcommand and call it."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return DONE
    if len(arguments) == 2 and arguments[1] in ("-h", "--help") and arguments[0] not in COMMANDS:
        family = [name for name in COMMANDS if name.split()[0] == arguments[0]]
        if family:  # `rulax bench --help`
            print("\n\n".join(map(command_help, family)))
            return DONE
    if arguments[0] in ("-V", "--version"):
        print(f"rulax {rulax.__version__}")
        return DONE
    name, rest = find_command(arguments)
    command = COMMANDS[name]
    parser = make_parser(f"rulax {name}", command.config, command.summary)
    # Not left to argparse, whose help action would print neither presets nor examples.
    if "-h" in rest or "--help" in rest:
        print(command_help(name))
        return DONE
    consent.begin(rest, consent.FLAG in rest)
    values = parse(parser, command.config, rest)
    return load_function(command.function)(values)


def find_command(arguments: list[str]) -> tuple[str, list[str]]:
    """The longest subcommand that the arguments start with, and what follows it."""
    # The longer name first, or `rules get` would be `rules` with the filter "get".
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in COMMANDS and len(arguments) >= words:
            return name, arguments[words:]
    first = arguments[0]
    family = [name for name in COMMANDS if name.split()[0] == first]
    if family:  # `rulax bench` alone, or `rulax bench trian`
        raise UserError(f"rulax {first} needs a subcommand; for example: rulax {family[0]}")
    if first.startswith("-"):
        # Flags belong behind a command, so only the two that can stand alone are worth suggesting.
        hint = suggestion(first, ["help", "version"], "`rulax --help` shows the commands", shown="--{}".format)
        raise UserError(f"unknown flag {first}{hint}")
    hint = suggestion(first, COMMANDS, "`rulax --help` lists them", shown="`rulax {}`".format)
    raise UserError(f"unknown command '{first}'{hint}")


def load_function(reference: str) -> Any:
    """`module:function` -> the function."""
    module, _, function = reference.partition(":")
    return getattr(importlib.import_module(module), function)


def overview() -> str:
    """What `rulax --help` prints."""
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = ["usage: rulax COMMAND [options]", "", "Train agents with reinforcement-learning update rules.", "", "commands:"]
    lines += [f"  {command.usage:<{width}}   {command.summary}" for command in COMMANDS.values()]
    lines += ["", "start here:"]
    lines += ["  rulax train catch            watch an agent learn, in a few seconds"]
    lines += ["  rulax COMMAND --help         every option of a command"]
    lines += ["  rulax --version              which version this is"]
    return "\n".join(lines)


def command_help(name: str) -> str:
    """What `rulax NAME --help` prints."""
    command = COMMANDS[name]
    text = make_parser(f"rulax {name}", command.config, command.summary).format_help().rstrip()
    if "preset" in known_keys(command.config):
        suites = "suite" in known_keys(command.config)
        presets = preset_names(suites)
        if suites:
            presets = {name: f"{load_preset(f'{SUITES}/{name}')['steps']:,} meta-steps. {each}" for name, each in presets.items()}
        width = max(map(len, presets))
        text += f"\n\n{'suites' if suites else 'presets'}:\n" + "\n".join(
            f"  {preset:<{width}}  {summary}" for preset, summary in presets.items()
        )
    if command.config is CompareConfig:
        width = max(map(len, COMPARED))
        lines = [f"  {name:<{width}}  {suite.summary} ({' and '.join(suite.budgets)})" for name, suite in COMPARED.items()]
        text += "\n\nsuites (and their budgets):\n" + "\n".join(lines)
    if command.examples:
        text += "\n\nexamples:\n" + "\n".join(f"  {example}" for example in command.examples)
    return text
