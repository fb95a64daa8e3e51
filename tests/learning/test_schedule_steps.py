"""A shortened run is the start of a longer one, and numbers are no part of a program: a compiled one can be used again."""

import dataclasses

import jax
import jax.numpy as jnp

from rulax.envs.registry import make
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.rules.registry import make_rule


def made(steps: int, **settings) -> CompiledTrainer:
    recipe = make_rule("actor_critic")
    learning = dataclasses.replace(recipe.learning, streams=2, unroll=4, **settings)
    recipe = recipe._replace(learning=learning, network=dataclasses.replace(recipe.network, hidden=(4,)))
    return CompiledTrainer(make("bandit/bernoulli"), recipe, TrainerConfig(total_steps=steps))


def program(steps: int, **settings) -> str:
    trainer = made(steps, **settings)
    return jax.jit(trainer._chunk).lower(trainer.rule_params, trainer.numbers, trainer.skeleton(), jnp.int32(1)).as_text()


def test_a_budget_within_the_schedule_changes_nothing():
    assert made(800, schedule_steps=8000).numbers == made(1600, schedule_steps=8000).numbers == made(8000, schedule_steps=0).numbers
    assert made(800, schedule_steps=8000).numbers != made(16_000, schedule_steps=8000).numbers
    replay = {"replay": 0.5, "capacity": 16, "warmup": 8}
    assert made(800, schedule_steps=8000, **replay).numbers == made(8000, schedule_steps=0, **replay).numbers


def test_a_program_serves_every_budget_and_every_learning_rate():
    wanted = program(800, schedule_steps=8000, clip_gradient=1.0)
    assert program(16_000, schedule_steps=0, clip_gradient=0.5, learning_rate=0.1, adam_eps=1e-3) == wanted
    assert program(800, schedule_steps=8000, clip_gradient=0.0) != wanted, "no limit is another program"


def test_numbers_are_no_part_of_what_a_checkpoint_holds():
    assert made(800, clip_gradient=1.0).skeleton().life.learner_state.hyperparameters == {}
