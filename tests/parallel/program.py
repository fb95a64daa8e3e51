"""What the tests of several devices and processes run in processes of their own: some discovery and some training, saved as arrays.

    python -m tests.parallel.program FILE PARTS MESHES [COORDINATOR PROCESS_ID NUM_PROCESSES]

Parts are `training`, `compiled` and `mixed`, the discovery in one family and in two, with commas between them. Meshes are
written as `agents=1/agents=2,streams=2`; training calls the first axis `seeds`.
"""

import dataclasses
import sys
from pathlib import Path

import jax
import numpy as np

from rulax.discovery.discover import Discoverer, Plan
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.parallel import processes
from rulax.parallel.mesh import make_layout
from rulax.settings import Learning
from tests.discovery.families import LEARNING, make_family
from tests.discovery.test_host import host_family

AGENTS, STEPS, ITERATIONS = 4, 4, 6  # lifetimes are 4 and 8 updates, a window 2: agents die in between


def discovered(mesh: dict[str, int], families, plan: Plan | None = None) -> list[np.ndarray]:
    """The rule and all metrics after some meta-steps, the first of which may be planned otherwise."""
    layout = make_layout(mesh, {"agents": AGENTS, "streams": LEARNING.streams}, whole_members=True)
    discoverer = Discoverer(families, STEPS, layout=layout)
    discoverer.plans |= {family.name: plan for family in families if plan}
    state = discoverer.init(jax.random.key(0))
    rows = []
    while not discoverer.done(state):
        state, metrics = discoverer.advance(state)
        rows.append([metrics[family.name]["meta_gradient_norm"] for family in families])
    discoverer.close()
    return [*map(np.asarray, jax.tree.leaves(discoverer.rule(state))), np.array(rows)]


def trained(mesh: dict[str, int]) -> list[np.ndarray]:
    """The agents and their losses after a chunk of training."""
    layout = make_layout(mesh, {"seeds": AGENTS, "streams": LEARNING.streams})
    family = make_family()
    steps = ITERATIONS * LEARNING.streams * LEARNING.unroll
    recipe = family.recipe._replace(learning=dataclasses.replace(LEARNING, warmup=4, normalise_rewards=True))
    trainer = CompiledTrainer(family.environment, recipe, TrainerConfig(AGENTS, steps, layout=layout))
    state, rows = trainer.init(jax.random.key(1)), []
    while not trainer.done(state):
        state, metrics = trainer.advance(state)
        rows.append(metrics["loss"])
    agents = [trainer.agent(state, seed) for seed in range(AGENTS)]
    return [*(np.asarray(leaf, float) for agent in agents for leaf in jax.tree.leaves(agent)), np.concatenate(rows)]


def computed(part: str, mesh: str) -> list[np.ndarray]:
    """One part on one mesh."""
    wanted = {name: int(size) for name, _, size in (each.partition("=") for each in mesh.split(",") if each)}
    if part == "training":
        return trained({"seeds" if name == "agents" else name: size for name, size in wanted.items()})
    if part == "compiled":  # what is quickest to compile
        fresh = Learning(streams=2, unroll=3, learning_rate=0.05)
        return discovered(wanted, [make_family(fresh, agents=AGENTS, estimator="first_order")])
    return discovered(wanted, [make_family(agents=AGENTS), host_family(agents=AGENTS)], Plan("plain", 1))


def main(file: str, parts: str, meshes: str, coordinator: str = "", process_id: str = "0", number: str = "1") -> None:
    """Every part on each mesh; the arrays of the first process are saved."""
    if coordinator:
        processes.join("none", coordinator, int(process_id), int(number))
    found = {f"{mesh}/{part}": computed(part, mesh) for mesh in meshes.split("/") for part in parts.split(",")}
    if processes.first():
        named = {f"{name}/{index}": leaf for name, leaves in found.items() for index, leaf in enumerate(leaves)}
        np.savez(Path(file), **named)
    processes.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
