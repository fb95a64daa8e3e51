"""Host worlds by the same loop: alignment, seeds side by side, replay, and that no key is used twice in an iteration."""

import jax
import numpy as np
import pytest

from rulax.envs.registry import make
from rulax.learning.life import split_keys
from rulax.learning.train import TrainerConfig, make_trainer

from .test_train import WORLD, finish, recipe

pytest.importorskip("gymnasium")


def test_a_host_run_counts_steps_and_learns_from_replay():
    made = recipe(replay=0.5, batch=8, capacity=16)
    trainer = make_trainer(make("CartPole-v1"), made, TrainerConfig(seeds=2, total_steps=100))
    state, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    assert trainer.steps(state) == 100
    assert metrics["loss"].shape == (5, 2)
    assert np.isfinite(metrics["loss"]).all()
    assert (state.life.replay.filled == 16).all()
    stored = state.life.replay.storage
    # One stream's next trajectory starts where its last one ended: what is shown last is what is acted on first.
    np.testing.assert_array_equal(stored.observation[:, -1, 4:8], stored.observation[:, 0, 8:12])
    assert not np.array_equal(stored.observation[0], stored.observation[1]), "seeds live in different streams"
    trainer.close()


def test_no_key_is_used_twice():
    trainer = make_trainer(WORLD, recipe(), TrainerConfig(total_steps=100))
    life = jax.tree.map(lambda x: x[0], trainer.init(jax.random.key(0)).life)
    seen = []
    for _ in range(3):
        keys = split_keys(life)
        children = [*jax.random.split(keys.act, 5), *jax.random.split(keys.study), keys.act, keys.study, life.key]
        seen += [tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in children]
        life = life._replace(key=keys.life)
    assert len(set(seen)) == len(seen)
