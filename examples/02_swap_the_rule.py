"""One environment, every hand-designed rule: a rule is one argument."""

import sys

import rulax

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000

for name in ["policy_gradient", "actor_critic", "ppo", "ppo_targets", "q_learning"]:
    run = rulax.train("catch", rule=name, steps=steps, quiet=True)
    print(f"{name:16s} final return {run.summary()['final_return']:+.2f}")
