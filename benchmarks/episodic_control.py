"""The races of `rulax method episodic_control`, life by life: every curve is kept, so that work can be stopped and shared out.

    python benchmarks/episodic_control.py live --learners MFEC DQN --seeds 0 1 2    # the lives that are missing
    python benchmarks/episodic_control.py report                                    # records, tables and the picture
    python benchmarks/episodic_control.py vary --rule mfec --environment cartpole --options neighbours=1 discount=0.95

Curves are in benchmarks/records/episodic_control.curves.json; several processes need a file each (`--curves`, then `report --curves
a.json b.json`). The records are those that `rulax method episodic_control` writes, but for the clock: theirs is in CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from rulax.commands.method.record import Seed, experiment_record
from rulax.commands.method.settings import MethodConfig
from rulax.evaluation.statistics import student_factor
from rulax.files import write_json
from rulax.methods.base import Progress
from rulax.methods.episodic_control import PARTS, Arena, Learner, area, uniform_return
from rulax.methods.experiments.episodic_control import CURVES, EXPERIMENTS, Race, RaceRun
from rulax.parallel.setup import set_up
from rulax.text import to_options

CURVES_FILE = "episodic_control.curves.json"
RECORDS = Path(__file__).parent / "records"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "episodic_control.png"
COLOURS = {"MFEC": "#2a7f62", "NEC": "#2563eb", "DQN": "#c4573a", "prioritised DQN": "#d97706"}


def races() -> dict[str, Race]:
    """The full suite's, by experiment."""
    return {experiment.name: experiment.start.args[0]["full"] for experiment in EXPERIMENTS}  # type: ignore[attr-defined]


def name_of(arena: Arena, learner: Learner, seed: int) -> str:
    return f"{arena.environment} | {learner.name} | {seed}"


def load(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Lives that were lived, by name."""
    return {name: life for path in paths if path.exists() for name, life in json.loads(path.read_text()).items()}


def live(experiments: list[str], learners: list[str], seeds: list[int], path: Path) -> None:
    """Live those lives that are missing in the file, and write each down when it is over."""
    lives = load([path])
    for seed in seeds:
        for experiment in experiments:
            race = races()[experiment]
            for arena, learner in ((arena, learner) for arena in race.arenas for learner in race.learners):
                name = name_of(arena, learner, seed)
                if name in lives or (learners and learner.name not in learners):
                    continue
                one, began = Race((arena,), (learner,), race.steps), time.process_time()
                run = RaceRun({"quick": one, "full": one}, "full", seed)
                while not run.done():
                    run.advance()
                means = CURVES[arena, learner, race.steps, seed]
                lives[name] = {"curve": means.tolist(), "env_steps": run.steps, "updates": run.updates}
                lives[name] |= {"cpu_s": round(time.process_time() - began, 1)}
                path.write_text(json.dumps(lives, indent=1))
                print(name, round(area(means, uniform_return(arena.environment), arena.best), 3), lives[name]["cpu_s"], flush=True)


def vary(environment: str, rule: str, options: list[str], seeds: list[int]) -> None:
    """Areas with one option of a rule changed at a time, for a guess at why it stops where it does; nothing is written down."""
    [(arena, steps)] = {
        (arena, race.steps) for race in races().values() for arena in race.arenas if arena.environment == environment
    }
    for option in ["", *options]:
        learner = Learner(option or "as recommended", rule, tuple(to_options("options", [option] if option else []).items()))
        race, areas, last = Race((arena,), (learner,), steps), [], []
        for seed in seeds:
            run = RaceRun({"quick": race, "full": race}, "full", seed)
            while not run.done():
                run.advance()
            means = CURVES[arena, learner, steps, seed]
            areas.append(area(means, uniform_return(environment), arena.best))
            last.append(float(means[-PARTS // 5 :].mean()))
        print(f"{learner.name:20} area {interval(areas)}   return in the last fifth {interval(last)}", flush=True)


def report(lives: dict[str, dict[str, Any]]) -> None:
    """Records of all experiments whose lives are there, tables with intervals over seeds, and the picture."""
    for experiment in EXPERIMENTS:
        race = races()[experiment.name]
        cells = [(arena, learner) for arena in race.arenas for learner in race.learners]
        seeds = [seed for seed in range(1000) if all(name_of(*cell, seed) in lives for cell in cells)]
        finished = []
        for seed in seeds:
            found = [lives[name_of(*cell, seed)] for cell in cells]
            CURVES.update({(*cell, race.steps, seed): np.array(life["curve"]) for cell, life in zip(cells, found, strict=True)})
            tested = RaceRun({"quick": race, "full": race}, "full", seed).test()
            latest = Progress(1.0, sum(life["updates"] for life in found), sum(life["env_steps"] for life in found), float("nan"))
            finished.append(Seed.of(seed, tested, latest, [], sum(life["cpu_s"] for life in found), True))
        if not finished:
            continue
        record = experiment_record(experiment, MethodConfig(method=experiment.method, seeds=len(seeds)), finished)
        write_json(RECORDS / f"{record['id']}.json", record)
        print(f"\n{record['id']}: {record['value']:.3f} ± {record['ci95']:.3f}, goal {record['goal']}, {len(seeds)} seeds")
        for name in record["details"]:
            print(f"  {name:50} {interval([seed.details[name] for seed in finished])}")
    draw(lives)


def interval(values: list[Any]) -> str:
    """Mean and 95 % interval over seeds, by Student's t."""
    mean, number = np.mean(values), len(values)
    spread = student_factor(number - 1) * np.std(values, ddof=1) / np.sqrt(number) if number > 1 else float("nan")
    return f"{mean:.3f} ± {spread:.3f}   ({', '.join(f'{value:.2f}' for value in values)})"


def draw(lives: dict[str, dict[str, Any]]) -> None:
    """All learning curves: one panel for each arena that was lived in, mean and range over seeds."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    arenas = {arena.environment: (arena, race.steps) for race in races().values() for arena in race.arenas}
    arenas = {name: found for name, found in arenas.items() if any(life.startswith(f"{name} | ") for life in lives)}
    figure = Figure(figsize=(12, 6.4), dpi=110, layout="constrained")
    panels = figure.subplots(2, 3).flat
    for unused in panels[len(arenas) :]:
        unused.set_visible(False)
    for axes, (environment, (arena, steps)) in zip(panels[: len(arenas)], arenas.items(), strict=True):
        places = (np.arange(PARTS) + 0.5) * steps / PARTS / 1000
        for learner, colour in COLOURS.items():
            found = [life["curve"] for name, life in lives.items() if name.startswith(f"{environment} | {learner} | ")]
            if found:
                curves = np.array(found)
                axes.plot(places, curves.mean(0), color=colour)
                axes.fill_between(places, curves.min(0), curves.max(0), color=colour, alpha=0.15, linewidth=0)
        axes.axhline(uniform_return(environment), color="#777777", linewidth=0.8, linestyle=":")
        axes.axhline(arena.best, color="#777777", linewidth=0.8, linestyle="--")
        seeds = {name.split(" | ")[2] for name in lives if name.startswith(f"{environment} | ")}
        axes.set_title(f"{environment}, {len(seeds)} seeds", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    handles = [Line2D([], [], color=colour, label=learner) for learner, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    figure.supxlabel("environment steps, in thousands (dotted: random actions, dashed: what counts as 1)", fontsize=9)
    figure.supylabel("return of training episodes, exploration included", fontsize=9)
    figure.savefig(PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["live", "report", "vary"])
    parser.add_argument("--experiments", nargs="+", default=list(races()), choices=list(races()))
    parser.add_argument("--learners", nargs="+", default=[], help="only these, by the names in the tables")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--curves", type=Path, nargs="+", default=[RECORDS / CURVES_FILE])
    parser.add_argument("--environment", default="cartpole", help="of `vary`")
    parser.add_argument("--rule", default="mfec", help="of `vary`")
    parser.add_argument("--options", nargs="+", default=[], metavar="KEY=VALUE", help="of `vary`: of the rule, one at a time")
    options = parser.parse_args()
    set_up("cpu")
    if options.what == "live":
        live(options.experiments, options.learners, options.seeds, options.curves[0])
    elif options.what == "vary":
        vary(options.environment, options.rule, options.options, options.seeds)
    else:
        lives = load(options.curves)
        (RECORDS / CURVES_FILE).write_text(json.dumps(lives, indent=1) + "\n")
        report(lives)


if __name__ == "__main__":
    main()
