"""Runs the cases of one folder in one precision and prints their lines."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rulax.rules.pretrained import RuleFile, load_rule
from tests.parity import arrays, learning, parts
from tests.parity.compare import HEADER, Line, noise_floors, tolerance_of
from tests.parity.estimation import value_estimation
from tests.shared import weights_path

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


def run(folder: Path, weights: Path | None, precision: str, cases: list[str] | None = None) -> bool:
    """Print one line per case; whether all passed."""
    weights = weights or weights_path()
    if weights is None:
        print("the weights disco_103.npz are needed: give them with --weights FILE, or run `rulax rules get disco103`")
        return False
    if precision == "float32":
        print(HEADER)
    lines = []
    for line in lines_of(folder, load_rule(weights), precision, cases):
        print(line, flush=True)
        lines.append(line)
    judged = [line for line in lines if not line.skipped]
    failed = [line.name for line in judged if not line.passed]
    skipped = f", {len(lines) - len(judged)} skipped" if len(lines) > len(judged) else ""
    verdict = f"; failed: {', '.join(failed)}" if failed else ""
    print(f"{precision}: {len(judged) - len(failed)} of {len(judged)} pass{skipped}{verdict}")
    return bool(lines) and not failed


def outer_noise(single: arrays.Recorded, double: arrays.Recorded) -> float:
    """The largest relative difference between the float32 and the float64 record of the outer losses."""
    names = [name for name in double if "/meta_log/" in name and name in single]
    return max((abs(float(single[name]) / float(double[name]) - 1) for name in names), default=0.0)


def lines_of(folder: Path, rule: RuleFile, precision: str, cases: list[str] | None = None) -> Iterator[Line]:
    """The lines of all cases whose files are in the folder; a case without its file is a failed line."""
    floors = noise_floors(folder)

    def read(case: str) -> arrays.Recorded:
        return arrays.read(folder / f"{FILES[case]}.npz")

    def part(case: str, name: str) -> Line:
        return Line(f"{case} {name}", precision, tolerance_of(floors, case, precision))

    def case_1() -> list[Line]:
        lines = [part("1", "meta-network"), part("1", "meta-network: gradients")]
        parts.meta_network(read("1"), rule, *lines)
        return lines

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
        if case == "6":
            return learning.learner_steps(read("6"), read("5"), recorded, rule, precision)
        opening = read("7w") if case == "7w" else None
        noise = outer_noise(recorded, arrays.read(record)) if precision == "float32" and record.exists() else 0.0
        return learning.meta_gradient(read("7"), opening, recorded, rule, precision, noise)

    checks: dict[str, Callable[[], list[Line]]] = {
        "1": case_1,
        "2": lambda: single("2", "value estimation", lambda line: value_estimation(read("2"), line)),
        "3": lambda: single("3", "losses", lambda line: parts.agent_losses(read("3"), read("1"), rule, line)),
        "4": lambda: single("4", "optimiser", lambda line: parts.optimiser(read("4"), line)),
        "5": lambda: single("5", "agent network", lambda line: parts.agent_network(read("5"), rule, line)),
        "6": lambda: later("6"),
        "7": lambda: later("7"),
        "7w": lambda: later("7w"),
    }
    for case, check in checks.items():
        if cases and case not in cases:
            continue
        try:
            yield from check()
        except FileNotFoundError as error:
            yield Line(case, precision, 0.0, problem=f"{Path(error.filename).name} is not in the folder")
        except arrays.BadFile as error:
            yield Line(case, precision, 0.0, problem=str(error))
        except Exception as error:  # arrays that do not fit together fail wherever they first meet: the other cases go on
            what = " ".join(str(error).split())[:160]
            yield Line(case, precision, 0.0, problem=f"cannot be computed from these arrays: {type(error).__name__}: {what}")
