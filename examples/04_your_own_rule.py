"""A rule of your own in a few lines: cross-entropy towards actions that did better than usual ("advantage-filtered cloning")."""

import sys

import jax
import jax.numpy as jnp

import rulax
from rulax.rules.base import Recipe, UpdateRule, no_params, no_state
from rulax.settings import Learning, Network
from rulax.types import Head, now
from rulax.values.policies import log_probability
from rulax.values.returns import lambda_returns, over_streams


def filtered_cloning(discount: float = 0.99, trace: float = 0.95) -> UpdateRule:
    def heads(num_actions):
        return {"policy": Head(num_actions), "value": Head(1)}

    def targets(rule_params, rule_state, batch):
        experience, values = batch.experience, batch.online["value"][..., 0]
        arrays = (experience.reward, discount * experience.discount, values, experience.valid)
        returns = over_streams(lambda_returns, *arrays, trace=trace)
        better = (returns > now(values)).astype(returns.dtype)
        return {"better": better, "return": returns}, rule_state, {"better": better.mean()}

    def loss(rule_params, taken, targets, experience):
        cloning = -targets["better"] * log_probability(taken["policy"], experience.action)
        regression = jnp.square(taken["value"][..., 0] - targets["return"])
        return cloning + regression, {}

    return UpdateRule(heads, no_params, no_state, targets, loss)


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
recipe = Recipe(filtered_cloning(), Learning(learning_rate=3e-3), Network())
run = rulax.train("catch", rule=recipe, steps=steps, quiet=True)
print(run)
print("on", jax.default_backend())
