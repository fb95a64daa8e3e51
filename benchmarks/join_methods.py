"""One table and one picture from the records of several `rulax method` runs, which may have been made one after the other.

    python benchmarks/join_methods.py benchmarks/records [--picture docs/images/methods.png]

Reads every `*.json` in the folder, in the order of `rulax method list`, and writes `table.md` beside them.
"""

import argparse
from pathlib import Path

from rulax.commands.method.record import read_experiment
from rulax.commands.method.show import TABLE, markdown, picture
from rulax.files import write_atomically
from rulax.methods.catalogue import METHODS, experiments_of
from rulax.report.plot import save_figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--picture", type=Path, default=None)
    arguments = parser.parse_args()
    names = [f"{method}.{each.name}" for method in METHODS for each in experiments_of(method)]
    records = [record for name in names if (record := read_experiment(arguments.folder / f"{name}.json"))]
    if not records:
        parser.error(f"there is no record in {arguments.folder}; a run of `rulax method` leaves one per experiment in its folder")
    write_atomically(arguments.folder / TABLE, markdown(records))
    if arguments.picture:
        save_figure(arguments.picture, picture(records))
    left = [name for name in names if not (arguments.folder / f"{name}.json").exists()]
    print(f"{len(records)} records in {arguments.folder / TABLE}" + (f"; without {', '.join(left)}" if left else ""))


if __name__ == "__main__":
    main()
