"""Runs the cases of one folder in one precision and prints their lines."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rulax.rules.pretrained import RuleFile, load_rule
from tests.parity import arrays, learning, parts
from tests.parity.compare import HEADER, Line, noise_floors, tolerance_of
from tests.parity.estimation import value_estimation

FILES = {
    "1": "1_meta_net",
    "2": "2_value_utils",
    "3": "3_agent_loss",
    "4": "4_optimizer",
    "5": "5_agent_net",
    "6": "6_learner_step",
    "7": "7_meta_gradient",
    "7w": "7w_meta_gradient_warm_adam",
}


NO_WEIGHTS = "needs the weights disco_103.npz: --weights FILE, or `rulax rules get disco103`"


def run(folder: Path, weights: Path | None, precision: str, cases: list[str] | None = None) -> bool:
    """Print one line per case.

    Args:
        folder: recorded arrays.
        weights: `disco_103.npz`; without it, cases that need it are skipped.
        precision: what JAX was started with.
        cases: only these; all if there are none.

    Returns:
        Whether something was judged and nothing failed.
    """
    if precision == "float32":
        print(HEADER)
    lines = []
    for line in lines_of(folder, load_rule(weights) if weights else None, precision, cases):
        print(line, flush=True)
        lines.append(line)
    judged = [line for line in lines if not line.skipped]
    failed = [line.name for line in judged if not line.passed]
    skipped = f", {len(lines) - len(judged)} skipped" if len(lines) > len(judged) else ""
    verdict = f"; failed: {', '.join(failed)}" if failed else ""
    print(f"{precision}: {len(judged) - len(failed)} of {len(judged)} pass{skipped}{verdict}")
    return bool(judged) and not failed


class WeightsMissing(Exception):
    """A case cannot be computed without the published weights."""


def outer_noise(single: arrays.Recorded, double: arrays.Recorded) -> float:
    """The largest relative difference between the float32 and the float64 record of the outer losses."""
    names = [name for name in double if "/meta_log/" in name and name in single]
    return max((abs(float(single[name]) / float(double[name]) - 1) for name in names), default=0.0)


def lines_of(folder: Path, rule: RuleFile | None, precision: str, cases: list[str] | None = None) -> Iterator[Line]:
    """The lines of all cases whose files are in the folder; a case without its file is a failed line."""
    floors = noise_floors(folder)
    absent = (folder / arrays.LEFT_OUT).read_text().split() if (folder / arrays.LEFT_OUT).exists() else []

    def read(case: str) -> arrays.Recorded:
        return arrays.read(folder / f"{FILES[case]}.npz")

    def needed() -> RuleFile:
        if rule is None:
            raise WeightsMissing
        return rule

    def part(case: str, name: str) -> Line:
        return Line(f"{case} {name}", precision, tolerance_of(floors, case, precision))

    def case_1() -> list[Line]:
        lines = [part("1", "meta-network"), part("1", "meta-network: gradients")]
        parts.meta_network(read("1"), needed(), *lines)
        return lines

    def case_3() -> list[Line]:
        line, data = part("3", "losses"), read("3")
        if any(name.startswith("in/targets/") for name in data):
            parts.losses_of_recorded_targets(data, line)
        else:
            parts.agent_losses(data, read("1"), needed(), line)
        return [line]

    def single(case: str, name: str, check: Callable[[Line], None]) -> list[Line]:
        line = part(case, name)
        check(line)
        return [line]

    def later(case: str) -> list[Line]:
        record = folder / f"{FILES[case]}_f64.npz"
        if precision == "float64" and not record.exists():
            return [
                Line(case, precision, 0.0, skipped=f"{record.name} is not in the folder, so there is nothing exact to compare with")
            ]
        recorded = arrays.read(record) if precision == "float64" else read(case)
        if case == "6" and rule is None:
            line = learning.first_estimates(read("6"), read("5"), recorded, precision)
            return [line, Line("6 learner steps", precision, 0.0, skipped=f"all else {NO_WEIGHTS}")]
        if case == "6":
            return learning.learner_steps(read("6"), read("5"), recorded, needed(), precision)
        opening = read("7w") if case == "7w" else None
        noise = outer_noise(recorded, arrays.read(record)) if precision == "float32" and record.exists() else 0.0
        return learning.meta_gradient(read("7"), opening, recorded, needed(), precision, noise)

    checks: dict[str, Callable[[], list[Line]]] = {
        "1": case_1,
        "2": lambda: single("2", "value estimation", lambda line: value_estimation(read("2"), line)),
        "3": case_3,
        "4": lambda: single("4", "optimiser", lambda line: parts.optimiser(read("4"), line)),
        "5": lambda: single("5", "agent network", lambda line: parts.agent_network(read("5"), line)),
        "6": lambda: later("6"),
        "7": lambda: later("7"),
        "7w": lambda: later("7w"),
    }
    for case, check in checks.items():
        if cases and case not in cases:
            continue
        if case in absent:
            yield Line(case, precision, 0.0, skipped="left out of this folder on purpose: it would be too large")
            continue
        try:
            yield from check()
        except WeightsMissing:
            yield Line(case, precision, 0.0, skipped=NO_WEIGHTS)
        except FileNotFoundError as error:
            yield Line(case, precision, 0.0, problem=f"{Path(error.filename).name} is not in the folder")
        except arrays.BadFile as error:
            yield Line(case, precision, 0.0, problem=str(error))
        except Exception as error:  # arrays that do not fit together fail wherever they first meet: the other cases go on
            what = " ".join(str(error).split())[:160]
            yield Line(case, precision, 0.0, problem=f"cannot be computed from these arrays: {type(error).__name__}: {what}")
