"""A Gymnasium environment: its id is all that is needed. Any setting of the rule can be overridden."""

import sys

import rulax

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000

run = rulax.train("CartPole-v1", rule="ppo", steps=steps, streams=16, quiet=True)
print(run)
