"""A shortened run is the start of a longer one: also its program is the same, so that a compiled one can be used again."""

import dataclasses

import jax
import jax.numpy as jnp

from rulax.envs.registry import make
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.rules.registry import make_rule


def program(steps: int, schedule_steps: int, warmup: int = 0) -> str:
    recipe = make_rule("actor_critic")
    learning = dataclasses.replace(recipe.learning, streams=2, unroll=4, schedule_steps=schedule_steps)
    if warmup:
        learning = dataclasses.replace(learning, replay=0.5, capacity=16, warmup=warmup)
    recipe = recipe._replace(learning=learning, network=dataclasses.replace(recipe.network, hidden=(4,)))
    trainer = CompiledTrainer(make("bandit/bernoulli"), recipe, TrainerConfig(total_steps=steps))
    return jax.jit(trainer._chunk).lower(trainer.rule_params, trainer.skeleton(), jnp.int32(1)).as_text()


def test_the_budget_is_in_the_program_only_where_it_is_longer_than_the_schedule():
    assert program(800, 8000) == program(1600, 8000) == program(8000, 0)
    assert program(800, 8000) != program(16_000, 8000)
    assert program(800, 0) != program(1600, 0)
    assert program(800, 8000, warmup=8) == program(8000, 0, warmup=8)
