"""The picture of docs/methods/poet.md: the trees of a run of `rulax method poet --experiment hurdles`, with and without transfers.

python benchmarks/poet_picture.py runs/method-poet-001/poet-hurdles-seed0.json docs/images/poet_tree.png
"""

import argparse
from pathlib import Path

from rulax.files import load_json
from rulax.methods.poet_story import from_record
from rulax.report.plot import save_figure
from rulax.report.poet import tree_figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("story", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    save_figure(arguments.picture, tree_figure(from_record(load_json(arguments.story, ""))))


if __name__ == "__main__":
    main()
