"""The picture of docs/methods/unsupervised.md: what tasks pay for, and how fast agents that learned over them adapt to goals.

    python benchmarks/unsupervised_picture.py benchmarks/records/unsupervised.maml.json docs/images/unsupervised.png

Trains DIAYN again as the record's first seed did (half a minute), draws the rewards of four of its tasks and of four of the random
discriminator's over the box, and beside them the returns of the record, mean over its seeds.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from rulax.envs.point import Box
from rulax.methods.experiments.unsupervised import DIAYN, RANDOM, SCRATCH, TRUE, MAMLStages
from rulax.methods.unsupervised import with_discriminator
from rulax.report.plot import INK, MUTED, save_figure

WORDS = {
    TRUE: "MAML over true goals",
    DIAYN: "over tasks of DIAYN's discriminator",
    RANDOM: "over tasks of a random one",
    SCRATCH: "untrained",
}
COLOURS = dict(zip(WORDS, ("#444444", "#1f77b4", "#ff7f0e", "#bbbbbb"), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    record = json.loads(arguments.record.read_text())
    stages = MAMLStages("full", record["seeds"][0])
    while not stages.trainer.done(stages.state):
        stages.state, _ = stages.trainer.advance(stages.state)

    figure = Figure(figsize=(10.6, 4.4), dpi=140, layout="constrained")
    maps = figure.subplot_mosaic([[f"{row}{column}" for column in range(4)] + ["curves"] * 4 for row in (DIAYN, RANDOM)])
    line = jnp.linspace(-Box.span, Box.span, 41)
    states = jnp.stack(jnp.meshgrid(line, line), -1).reshape(-1, 2)
    for name in (DIAYN, RANDOM):
        made = with_discriminator(Box(), stages.discriminator(name))
        # Spread over all tasks, so that none of the four is picked for its looks.
        for column, task in enumerate(np.linspace(0, made.number - 1, 4).astype(int)):
            paid = jax.vmap(lambda state, task=task: made.reward(jnp.int32(task), state))(states).reshape(41, 41)  # noqa: B023
            axes = maps[f"{name}{column}"]
            axes.imshow(paid, origin="lower", cmap="viridis", vmin=-14, vmax=0, extent=(-0.5, 0.5, -0.5, 0.5))
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(f"z = {task}", color=MUTED, fontsize=8)
        maps[f"{name}0"].set_ylabel("DIAYN" if name == DIAYN else "random", color=INK)
    curves = maps["curves"]
    for name, words in WORDS.items():
        seeds = np.array([[seed["details"][f"{name}_{n}"] for n in range(4)] for seed in record["per_seed"]])
        curves.plot(range(4), seeds.T, color=COLOURS[name], linewidth=0.6, alpha=0.5)
        curves.plot(range(4), seeds.mean(0), "o-", color=COLOURS[name], label=words)
    curves.axhline(record["details"]["sees the goal"], color=MUTED, linestyle=":", linewidth=1, label="sees the goal")
    curves.set_xticks(range(4))
    curves.set_xlabel("updates on an unseen goal", color=INK)
    curves.set_ylabel("return", color=INK)
    curves.spines[["top", "right"]].set_visible(False)
    curves.legend(frameon=False, labelcolor=MUTED, fontsize=8)
    figure.suptitle("What self-made tasks pay for, log D(z | s), and how fast agents then find goals", x=0.01, ha="left", color=INK)
    save_figure(arguments.picture, figure)


if __name__ == "__main__":
    main()
