"""The page of a run of POET: the tree of environments, who solved what, and agents at play."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from rulax.evaluation.playing import Moment, play
from rulax.methods.poet_story import Branch, PoetStory, Story
from rulax.report.blocks import Block, CellValue, Curves, Fact, Facts, Line, Picture, Table
from rulax.report.film import Film
from rulax.report.html import number
from rulax.report.page import Page
from rulax.report.plot import INK, LINE, MUTED, tidy

MOST_FILMS, FILM_BYTES, FILM_SEED = 4, 600_000, 5
MOST_MOMENTS = 250  # of a film: the walker's episodes last up to 1600 steps
GREEN, AMBER, GREY = "#2a7f62", "#d97706", "#a3adb8"


def poet_page(story: PoetStory) -> Page:
    """The page of one seed."""
    main = story.runs[0]
    blocks: list[Block] = [Facts([fact for run in story.runs for fact in facts(story, run)])]
    words = (
        "Every dot is an environment, where it joined and how far it is from flat ground; a line leads to it from its parent. "
        "Green: solved. Amber: solved, and evolution from scratch, with twice the steps, does not begin to. Grey: not solved."
    )
    blocks.append(Picture("The tree of environments", data_url(tree_figure(story)), words, words))
    blocks += films(story)
    lines = [Line(run.name, *solved_over_time(run)) for run in story.runs]
    blocks.append(Curves("Environments that were solved", "iterations of learning", "environments", lines))
    blocks += [table(story, run) for run in story.runs]
    done = sum(branch.solved is not None for branch in main.branches)
    return Page(f"POET · {len(main.branches)} environments", f"{done} solved in {main.iterations:,} iterations", blocks)


def facts(story: PoetStory, run: Story) -> list[Fact]:
    """The numbers of one run."""
    solved = sum(branch.solved is not None for branch in run.branches)
    tried = [branch for branch in run.branches if branch.direct is not None]
    beyond = sum(is_beyond(story, branch) for branch in run.branches)
    found = [
        Fact(f"{run.name}: solved", str(solved), f"of {len(run.branches)} environments; {run.annecs} of them new when they came"),
        Fact(f"{run.name}: out of reach of direct ES", str(beyond), f"of {len(tried)} that it was tried on"),
    ]
    if run.transfers:
        share = float(np.mean([accepted for *_, accepted in run.transfers]))
        found.append(Fact("transfers accepted", f"{share:.0%}", f"of {len(run.transfers):,}"))
    return found


def is_beyond(story: PoetStory, branch: Branch) -> bool:
    """Whether direct evolution was tried on an environment and did not begin to solve it."""
    return branch.direct is not None and branch.direct < story.begun


def solved_over_time(run: Story) -> tuple[list[int], list[int]]:
    """Iterations, and how many environments had been solved by then."""
    times = sorted(branch.solved for branch in run.branches if branch.solved is not None)
    return [0, *times, run.iterations], [0, *range(1, len(times) + 1), len(times)]


def films(story: PoetStory) -> list[Block]:
    """Episodes of the first run's best agents, in the hardest environments that were solved; in any where none was."""
    tried = [branch for branch in story.runs[0].branches if branch.agent is not None]
    solved = [branch for branch in tried if branch.solved is not None]
    ranked = sorted(solved or tried, key=lambda branch: (is_beyond(story, branch), branch.difficulty), reverse=True)
    found: list[Block] = []
    for branch in ranked[:MOST_FILMS]:
        agent = jax.tree.map(jax.numpy.asarray, branch.agent)
        film = Film(played(story.environment, agent, branch.given), fps=20, most=MOST_MOMENTS)
        source = f"data:image/gif;base64,{base64.b64encode(film.gif(FILM_BYTES)).decode()}"
        direct = f" Direct ES reaches {branch.direct:.0f} here." if branch.direct is not None else ""
        words = f"Its best agent, which came from environment {branch.solver}. {film.said()}{direct}"
        found.append(Picture(f"Environment {branch.number} at play", source, words, words))
    return found


def played(environment: Any, agent: Any, task: Any) -> Iterator[Moment]:
    """An episode on one task; an environment on the host is made for it."""
    key = jax.random.key(FILM_SEED)
    if hasattr(environment, "shown"):
        return play(agent, environment.shown(task), key)
    return play(agent, environment, key, task=task)


def table(story: PoetStory, run: Story) -> Table:
    """All environments of a run."""
    columns = [
        "environment",
        "parent",
        "joined at",
        "left at",
        "difficulty",
        "best score",
        "solved at",
        "its agent came from",
        "direct ES",
    ]
    rows: list[list[CellValue]] = []
    for each in run.branches:
        parent = each.parent if each.parent >= 0 else None
        known = each.best if np.isfinite(each.best) else None
        rows.append([each.number, parent, each.born, each.retired, each.difficulty, known, each.solved, each.solver, each.direct])
    strong = [index for index, each in enumerate(run.branches) if is_beyond(story, each)]
    note = (
        f"{story.solved:g} counts as solved. Difficulty is the distance of the task from that of flat ground; direct ES is the "
        f"peak of evolution from scratch with twice the iterations, where it was tried; bold: below {number(story.begun)}."
    )
    return Table(f"Environments: {run.name}", columns, rows, note, strong)


def tree_figure(story: PoetStory) -> Any:
    """The trees of all runs of a story, side by side on one scale."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display needed

    figure = Figure(figsize=(5.4 * len(story.runs) + 0.6, 4.6), dpi=140, layout="constrained")
    places = np.ravel(figure.subplots(1, len(story.runs), sharey=True))
    for axes, run in zip(places, story.runs, strict=True):
        draw_tree(axes, story, run)
        axes.set_xlabel("iteration at which it joined", color=INK)
    places[0].set_ylabel("difficulty: distance from flat ground", color=INK)
    highest = max((branch.difficulty for run in story.runs for branch in run.branches), default=0.0)
    places[0].set_ylim(-0.2, 1.4 * max(highest, 1.0))  # the upper part is for the legends
    return figure


def draw_tree(axes: Any, story: PoetStory, run: Story) -> None:
    """One tree: lines from parents to children, dashed ones from where the best agent came, if that is not the parent."""
    by_number = {branch.number: branch for branch in run.branches}
    for each in run.branches:
        if each.parent >= 0:
            parent = by_number[each.parent]
            axes.plot([parent.born, each.born], [parent.difficulty, each.difficulty], color=GREY, linewidth=0.9, zorder=1)
        if each.solved is not None and each.solver not in (each.number, each.parent):
            giver = by_number[each.solver]
            axes.plot(
                [giver.born, each.born], [giver.difficulty, each.difficulty], ":", color=LINE, linewidth=0.9, alpha=0.6, zorder=1
            )
    kinds = {
        "not solved": (GREY, 5, [each for each in run.branches if each.solved is None]),
        "solved": (GREEN, 6, [each for each in run.branches if each.solved is not None and not is_beyond(story, each)]),
        "solved, and out of reach of direct ES": (AMBER, 9, [each for each in run.branches if is_beyond(story, each)]),
    }
    for name, (colour, size, those) in kinds.items():
        x, y = [each.born for each in those], [each.difficulty for each in those]
        axes.plot(x, y, "o", color=colour, markersize=size, label=f"{name}: {len(those)}", zorder=2)
    for each in run.branches:
        axes.annotate(str(each.number), (each.born, each.difficulty), (3, 4), textcoords="offset points", fontsize=6, color=MUTED)
    axes.plot([], [], ":", color=LINE, label="came with another one's agent")
    axes.legend(loc="upper left", frameon=False, fontsize=8, labelcolor=INK)
    tidy(axes, run.name, 11)


def data_url(figure: Any) -> str:
    """A figure as part of a page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
