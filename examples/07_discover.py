"""Discover a rule from random weights in one tiny grid, then train with it in a grid it has never seen.

A first look, in minutes. `rulax discover grids` and `rulax discover small` are discoveries that are worth their name.
"""

import sys

import rulax

meta_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100

run = rulax.discover(
    ["grid/tiny-sparse"],
    steps=meta_steps,
    agents=4,
    window=5,
    lifetimes=(50, 100),
    streams=16,
    unroll=8,
    batch=0,
    replay=0.0,
    warmup=0,
    learning_rate=1e-2,
    memory="plain",
    hidden=(32,),
    action_model=16,
    action_hidden=(16,),
    critic_hidden=(32,),
    rule_options={"prediction_size": 8, "bins": 31, "largest_value": 15, "hidden": 16, "lifetime_hidden": 8},
    evaluate_every=meta_steps,
    evaluation_seeds=2,
    evaluation_updates=min(100, 10 * meta_steps),
    quiet=True,
)
print(run)
print("scores between untrained agents (0) and actor-critic (1):", run.scores)

trained = rulax.train("grid/step-cost", rule=str(run.rule_path), steps=1_000 * meta_steps, quiet=True)
print(trained)
