"""One line per case: the largest error over many arrays, against a tolerance, and which recorded arrays were looked at."""

import dataclasses
import re
from pathlib import Path

import numpy as np

# Used where a folder has no README with its own table: what the public set measured.
NOISE_FLOORS = {"1": "3.73e-05", "2": "9.01e-05", "3": "1.98e-04", "4": "1.29e-05", "5": "3.13e-07"}
# How far our float32 is from our float64 in the worst array of each case, measured with the public set.
OWN_NOISE = {"1": 3.5e-06, "2": 7.7e-06, "3": 1.9e-05, "4": 1.3e-05, "5": 3.2e-07}
AT_LEAST = 1e-5


def noise_floors(folder: Path) -> dict[str, float]:
    """The float32 noise floor of every case, relative to each array's largest magnitude, as the folder's README states it.

    A figure printed as 3.73e-05 stands for anything up to 3.735e-05, so that is the floor.
    """
    readme = folder / "README.md"
    text = readme.read_text() if readme.exists() else ""
    rows = re.findall(r"^\|\s*(\w+)\s*\|\s*[\d.e+-]+\s*\|\s*[\d.e+-]+\s*\|\s*([\d.e+-]+)\s*\|", text, re.MULTILINE)
    return {case: largest_printed_as(value) for case, value in [*NOISE_FLOORS.items(), *rows]}


def largest_printed_as(figure: str) -> float:
    """The largest number that rounds to this figure: half a unit of its last digit above it."""
    mantissa, _, exponent = figure.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(figure) + 0.5 * 10.0 ** (int(exponent or 0) - decimals)


def tolerance_of(floors: dict[str, float], case: str, precision: str) -> float:
    """What a part (cases 1 to 5) may differ by from the recorded float32 results, at least 1e-5.

    The floor is how far the reference's float32 is from exact. Our float64 is exact in comparison, so it may differ by the floor
    and no more. Our float32 is not exact: its own distance from exact comes on top, and it may lie on the other side.
    """
    return max(floors[case] + (OWN_NOISE[case] if precision == "float32" else 0.0), AT_LEAST)


@dataclasses.dataclass
class Line:
    """One printed line: a group of arrays that share a tolerance."""

    name: str
    precision: str
    tolerance: float
    quantile: float = 1.0  # 1 judges the largest error of each array; less, that quantile
    absolute: float = 0.0
    relative: float = 0.0
    worst: str = ""
    arrays: int = 0
    problem: str = ""
    skipped: str = ""  # why there is nothing to judge

    def look(self, name: str, ours, recorded) -> None:
        """Compare one array; errors are relative to the recorded array's largest magnitude (absolute if that is 0)."""
        ours, recorded = np.asarray(ours, np.float64), np.asarray(recorded, np.float64)
        self.arrays += 1
        if ours.shape != recorded.shape:
            self.problem = f"{name}: shape {ours.shape} instead of {recorded.shape}"
            return
        error = np.abs(ours - recorded)
        largest = float(np.quantile(error, self.quantile)) if error.size else 0.0
        if not np.isfinite(error).all():
            self.problem = f"{name}: not finite"
            return
        relative = largest / (np.abs(recorded).max(initial=0.0) or 1.0)
        self.absolute = max(self.absolute, largest)
        if relative >= self.relative:
            self.relative, self.worst = relative, name

    @property
    def passed(self) -> bool:
        return self.arrays > 0 and not self.problem and self.relative <= self.tolerance

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.name:<42} {self.precision:<8} skip  {self.skipped}"
        verdict = "pass" if self.passed else "FAIL"
        what = self.problem or (f"worst {self.worst}" if self.arrays else "no arrays compared")
        numbers = f"{self.absolute:9.2e} {self.relative:9.2e} {self.tolerance:9.2e}"
        return f"{self.name:<42} {self.precision:<8} {self.arrays:>4} {numbers}  {verdict}  {what}"


HEADER = f"{'case':<42} {'':<8} {'n':>4} {'absolute':>9} {'relative':>9} {'tolerance':>9}"


class Recorded(dict):
    """One file's arrays; remembers which results were compared, so that a case cannot pass by overlooking some.

    A `cut` file (see cut.py) holds only some of the results: those that are missing are not compared, those that are there must be.
    """

    def __init__(self, arrays: dict[str, np.ndarray], cut: bool = False):
        super().__init__(arrays)
        self.seen: set[str] = set()
        self.cut = cut

    def __missing__(self, name: str) -> np.ndarray:
        raise KeyError(f"{name} is not in the file")

    def compare(self, line: Line, results: dict, prefix: str = "out/") -> None:
        """Compare `results`, by the recorded names after `prefix`."""
        for name, ours in results.items():
            if prefix + name not in self:
                if self.cut:
                    continue
                line.problem = f"{prefix}{name} is not in the file"
                return
            self.seen.add(prefix + name)
            line.look(name if prefix == "out/" else prefix.removeprefix("out/") + name, ours, self[prefix + name])

    def compare_present(self, line: Line, results: dict, prefix: str = "out/") -> None:
        """As `compare`, but only what the file holds: float64 files leave some results out."""
        self.compare(line, {name: ours for name, ours in results.items() if prefix + name in self}, prefix)

    def ignore(self, pattern: str) -> None:
        """Results that mean nothing, such as dummies."""
        self.seen |= {name for name in self if re.search(pattern, name)}

    def overlooked(self, line: Line) -> None:
        """A case that left results uncompared has failed."""
        left = sorted(name for name in self if not name.startswith("in/") and name not in self.seen)
        if left and not line.problem:
            line.problem = f"{len(left)} results were not compared, such as {left[0]}"
