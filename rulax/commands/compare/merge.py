"""`rulax compare --merge`: comparisons that were shared out over machines or time become one, in a new folder.

They must have the same settings, but may hold other environments, rules or parts. Cells are copied and what they came from stays as
it was; the results are computed from the cells, as always, so they are those of a comparison that was made in one piece.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rulax.commands import resume as resuming
from rulax.commands.cells import Cell, begun, failure, finished, read_cell
from rulax.commands.compare.cells import plan
from rulax.commands.compare.evaluation import done
from rulax.commands.compare.provenance import cell_command
from rulax.commands.compare.results import results
from rulax.commands.compare.settings import CompareConfig, build_compare, settings_of
from rulax.commands.compare.setup import KIND
from rulax.commands.compare.show import Comparison
from rulax.commands.compare.suite import environments
from rulax.commands.fields import changeable, flag_name
from rulax.commands.settings import read_values
from rulax.errors import UserError
from rulax.files import jsonable, write_json
from rulax.files.reading import blamed
from rulax.records import folder as folders
from rulax.records.provenance import fingerprint, how_made
from rulax.report.compare import write_compare_page
from rulax.text import bytes_text

MAY_DIFFER = ("envs", "rules", "part", "reference", "agents")  # which are united
ALLOWED = ("merge", "out", "quiet")  # beside --merge


class Source(NamedTuple):
    """A comparison that is merged."""

    folder: Path
    config: CompareConfig
    record: dict[str, Any]  # its config.json
    cells: list[Cell]


def merge_from(values: dict[str, Any]) -> Comparison:
    """Put comparisons together; everything that is wrong is found before anything is written."""
    given = read_values(CompareConfig, values)
    others = [name for name in given if name not in ALLOWED]
    if others:
        raise UserError(f"--merge takes all settings from the folders: leave {flag_name(others[0])} out")
    sources = [read_source(Path(name)) for name in unique(given["merge"])]
    if len(sources) < 2:
        raise UserError("--merge needs two folders at least: rulax compare --merge DIR DIR")
    for other in sources[1:]:
        check_same(sources[0], other)
    config = united(sources)
    folders.check_free(given.get("out", ""))
    folder = folders.create_new(given.get("out", ""), KIND, config.suite or config.envs[0], "merged")
    config = dataclasses.replace(config, out=str(folder))
    cells = plan(config, folder)
    warnings = [warning for source in sources for warning in source.record.get("merge_warnings", [])]
    warnings += [warning for cell in cells for warning in bring(cell, sources)] + differing_versions(sources)
    record = make_record(config, sources, warnings)
    # Last of all: without it the folder is no comparison, and a merge that was interrupted can be made again in the same place.
    write_json(folder / folders.CONFIG, record)
    found = results(config, record, cells)
    write_json(folder / folders.COMPARISON, found)
    write_compare_page(folder)
    return Comparison(folder, found)


def unique(names: Iterable[str]) -> list[str]:
    """Each folder once, however it is written."""
    return list({str(Path(name).resolve()): name for name in names}.values())


def read_source(folder: Path) -> Source:
    """One of the folders."""
    record = resuming.read_record(folder, KIND)
    with blamed(folder / folders.CONFIG):
        config = build_compare(read_values(CompareConfig, record["settings"], str(folder / folders.CONFIG)))
        return Source(folder, config, record, plan(config, folder))


# -- whether they belong together ----------------------------------------------------------------------------------------------


def check_same(first: Source, other: Source) -> None:
    """Refuse comparisons of other settings, or of rules whose files differ."""
    ours, theirs = (jsonable(settings_of(source.config)) for source in (first, other))
    free = (*MAY_DIFFER, *changeable(CompareConfig))  # what a resumed comparison may change does not change the result either
    names = [name for name in {**ours, **theirs} if name not in free and ours.get(name) != theirs.get(name)]
    differ = [f"{name} is {shown(ours.get(name))} and {shown(theirs.get(name))}" for name in names]
    differ += [
        f"the agents of {rule or 'all rules'} are others"
        for rule in first.config.agents.keys() & other.config.agents.keys()
        if jsonable(first.config.agents[rule]) != jsonable(other.config.agents[rule])
    ]
    hashes = first.record.get("rule_files", {}), other.record.get("rule_files", {})
    differ += [f"{rule} is another file" for rule in hashes[0].keys() & hashes[1].keys() if hashes[0][rule] != hashes[1][rule]]
    if differ:
        raise UserError(
            f"{first.folder} and {other.folder} were made with different settings, so nothing was merged: {'; '.join(differ)}"
        )
    if first.config.tune and (first.config.envs, first.config.rules) != (other.config.envs, other.config.rules):
        raise UserError(
            f"{first.folder} and {other.folder} were tuned in different comparisons, so what they chose cannot be merged"
        )


def shown(value: Any) -> str:
    """A setting in a sentence."""
    return "not set" if value in (None, "", [], {}) else " ".join(map(str, value)) if isinstance(value, list) else str(value)


def united(sources: list[Source]) -> CompareConfig:
    """The configuration of the whole."""
    first = sources[0].config
    envs = together(source.config.envs for source in sources)
    if first.suite:
        # In the suite's order, whoever trained what.
        order = environments(first.suite, first.budget)
        envs = tuple(sorted(envs, key=lambda env: order.index(env) if env in order else len(order)))
    stated: dict[str, str] = {}
    for source in sources:
        for text in source.config.reference:
            env, _, value = text.rpartition("=")
            if stated.setdefault(env, value) != value:
                raise UserError(f"nothing was merged: the reference of {env} is {stated[env]} in one folder and {value} in another")
    agents = {rule: settings for source in sources for rule, settings in source.config.agents.items()}
    references = tuple(f"{env}={value}" for env, value in stated.items())
    rules = together(source.config.rules for source in sources)
    return dataclasses.replace(first, envs=envs, rules=rules, part="", reference=references, agents=agents)


def together(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """All names, each once, in the order in which they come."""
    return tuple(dict.fromkeys(name for group in groups for name in group))


def differing_versions(sources: list[Source]) -> list[str]:
    """Warnings where the folders are of different versions, which may compute something else."""
    first, *others = ({**source.record.get("versions", {}), "commit": source.record.get("commit")} for source in sources)
    names = sorted({name for other in others for name in other if other[name] != first.get(name)})
    return [f"merged from different versions of {', '.join(names)}: their cells may differ in more than chance"] if names else []


# -- cells ---------------------------------------------------------------------------------------------------------------------


def bring(cell: Cell, sources: list[Source]) -> list[str]:
    """Copy a cell from the source that is furthest with it; warnings, if several trained it and disagree."""
    same = [(source, each) for source in sources for each in source.cells if identity(each) == identity(cell) and exists(each)]
    if not same:
        return []
    source, best = max(same, key=lambda pair: (done(pair[1], pair[0].config), made(pair[1])))
    size, free = sum(path.lstat().st_size for path in best.folder.rglob("*")), shutil.disk_usage(cell.folder.parents[1]).free
    if size > free:
        raise UserError(f"{best.folder} cannot be copied: it has {bytes_text(size)}, and there are only {bytes_text(free)} free")
    try:
        # Links as links: behind one may be a device, which has no end.
        shutil.copytree(best.folder, cell.folder, symlinks=True, dirs_exist_ok=True)
    except OSError as error:
        raise UserError(f"{best.folder} cannot be copied: {error}") from None
    if all(final(each) == final(best) for _, each in same if finished(each)):
        return []
    both = " and ".join(str(each.folder) for each, _ in same)
    return [f"{cell.title} was trained in {both}; that of {source.folder} is kept"]


def identity(cell: Cell) -> tuple[str, int, str]:
    """What is the same for the same cell in any comparison."""
    return cell.purpose, cell.trial, cell_command(cell)


def exists(cell: Cell) -> bool:
    """Whether there is something to copy."""
    return begun(cell) or failure(cell) is not None


def made(cell: Cell) -> int:
    """How far it was trained."""
    run = read_cell(cell)
    return run.steps_made if run else 0


def final(cell: Cell) -> list[float | None]:
    """What it came to."""
    run = read_cell(cell)
    return run.final_returns if run else []


def make_record(config: CompareConfig, sources: list[Source], warnings: list[str]) -> dict[str, Any]:
    """What config.json says of the whole, and of where it comes from."""
    settings = settings_of(config)
    fixed = {name: value for name, value in settings.items() if name not in changeable(CompareConfig)}
    files: Mapping[str, str] = {rule: hashed for source in sources for rule, hashed in source.record.get("rule_files", {}).items()}
    facts = ("command", "versions", "commit", "machine")
    merged = [{"folder": str(source.folder), **{name: source.record.get(name) for name in facts}} for source in sources]
    about = {"rule_files": files, "merged": merged, "merge_warnings": warnings}
    return how_made(KIND, settings, **about, fingerprint=fingerprint(fixed))
