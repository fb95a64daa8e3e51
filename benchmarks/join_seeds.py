"""One record from several of the same experiment, whose seeds were run one by one, for example on different cores.

    python benchmarks/join_seeds.py benchmarks/records runs/seed-0 runs/seed-1 runs/seed-2

Reads every record in the folders that follow the first, joins those of the same experiment, and writes them into the first.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

from rulax.commands.method.record import Seed, experiment_record, read_experiment, seeds_of
from rulax.commands.method.settings import MethodConfig
from rulax.files import write_atomically
from rulax.methods.catalogue import METHODS, experiments_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    arguments = parser.parse_args()
    experiments = {f"{method}.{each.name}": each for method in METHODS for each in experiments_of(method)}
    found: dict[tuple[str, str], dict[int, Seed]] = defaultdict(dict)
    commits: dict[str, str | None] = {}
    for path in (path for folder in arguments.folders for path in sorted(folder.glob("*.*.json"))):
        record = read_experiment(path)
        if record is None or record.get("id") not in experiments:
            continue
        commits[record["id"]] = record["commit"]  # what ran, and not what joins
        for seed in seeds_of(record):
            if seed.seed in found[record["id"], record["suite"]]:
                parser.error(f"seed {seed.seed} of {record['id']} is in two of the folders; which one counts?")
            found[record["id"], record["suite"]][seed.seed] = seed
    if not found:
        parser.error("there is no record of an experiment in these folders")
    for (name, suite), seeds in found.items():
        config = MethodConfig(suite=suite, seeds=len(seeds), seed=min(seeds))  # type: ignore[arg-type]  # read from a record
        joined = experiment_record(experiments[name], config, [seeds[number] for number in sorted(seeds)])
        write_atomically(arguments.into / f"{name}.json", json.dumps(joined | {"commit": commits[name]}, indent=1))
        print(f"{name}: seeds {', '.join(map(str, sorted(seeds)))}")


if __name__ == "__main__":
    main()
