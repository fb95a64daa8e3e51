"""Training: seeds are independent, chunks and resumption change nothing, updates wait for the buffer, host and device agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.learning import train as train_module
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.rules.base import Recipe
from rulax.rules.registry import make_rule

from .environments import Counter

ENVIRONMENT = Counter(length=4)


def recipe(**learning) -> Recipe:
    made = make_rule("actor_critic")
    import dataclasses

    settings = {"streams": 4, "unroll": 5} | learning
    small = dataclasses.replace(made.network, hidden=(8,))
    return Recipe(made.rule, dataclasses.replace(made.learning, **settings), small)


def finish(trainer, state):
    rows = []
    while not trainer.done(state):
        state, metrics = trainer.advance(state)
        rows.append(metrics)
    return state, {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def same(a, b):
    def check(x, y):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(x, y)

    jax.tree.map(check, a, b)


def test_a_run_counts_its_steps_and_episodes():
    trainer = make_trainer(ENVIRONMENT, recipe(), TrainerConfig(seeds=2, total_steps=190))
    state, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    assert trainer.steps(state) == 200, "the budget is rounded up to whole iterations"
    assert metrics["loss"].shape == (10, 2)
    assert (metrics["episodes"].sum(0) == 4 * (50 // 4)).all()
    assert (metrics["episode_length"].sum(0) == 4 * 48).all()
    assert (state.life.learner_state.updates == 10).all()
    assert metrics["bad_rewards"].sum() == 0


def test_chunks_of_any_length_give_the_same_run(monkeypatch):
    config = TrainerConfig(seeds=1, total_steps=200)
    one, _ = finish(*(lambda t: (t, t.init(jax.random.key(3))))(make_trainer(ENVIRONMENT, recipe(), config)))
    monkeypatch.setattr(train_module, "CHUNK_SECONDS", 0.0)
    two, metrics = finish(*(lambda t: (t, t.init(jax.random.key(3))))(make_trainer(ENVIRONMENT, recipe(), config)))
    assert metrics["loss"].shape == (10, 1)
    same(one, two)


def test_seeds_differ_and_are_reproducible():
    trainer = make_trainer(ENVIRONMENT, recipe(), TrainerConfig(seeds=3, total_steps=60, task="random"))
    one, _ = finish(trainer, trainer.init(jax.random.key(0)))
    two, _ = finish(trainer, trainer.init(jax.random.key(0)))
    same(one, two)
    weights = np.asarray(one.life.learner_state.params.torso.mlp.layers[0].weight)
    assert not np.allclose(weights[0], weights[1])
    assert len(set(np.asarray(one.life.actor.task).tolist())) == 3, "each agent has its own task"


def test_updates_wait_until_the_buffer_holds_enough():
    settings = {"replay": 0.75, "batch": 16, "capacity": 32, "warmup": 12}
    trainer = make_trainer(ENVIRONMENT, recipe(**settings), TrainerConfig(seeds=2, total_steps=120))
    state, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    assert np.isnan(metrics["loss"][:2]).all()
    assert np.isfinite(metrics["loss"][2:]).all()
    assert metrics["bad_gradients"].sum() == 0
    assert (state.life.learner_state.updates == 4).all()
    assert (state.life.replay.filled == 24).all()


@pytest.mark.parametrize("core", ["none", "gru"])
def test_a_state_of_the_right_shape_goes_on_exactly(core):
    import dataclasses

    made = recipe(replay=0.5, batch=8, capacity=16)
    made = made._replace(network=dataclasses.replace(made.network, core=core, core_size=4))
    trainer = make_trainer(ENVIRONMENT, made, TrainerConfig(total_steps=200))
    state, _ = trainer.advance(trainer.init(jax.random.key(1)))
    saved = jax.tree.map(jnp.copy, state)
    jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype) or pytest.fail(str(a)), saved, trainer.skeleton())
    one, _ = finish(trainer, state)
    again = make_trainer(ENVIRONMENT, made, TrainerConfig(total_steps=200))
    two, _ = finish(again, again.resume(saved))
    same(one, two)
