"""Host environments by the same loop: alignment, seeds side by side, replay, acting while learning, and no key used twice."""

import dataclasses
import threading
import time

import jax
import numpy as np
import pytest

from rulax.envs.registry import make
from rulax.learning.life import split_keys
from rulax.learning.train import TrainerConfig, make_trainer

from .environments import Flicker
from .test_train import ENVIRONMENT, finish, recipe, same

CONFIG = TrainerConfig(seeds=2, total_steps=200)
RECIPE = recipe(replay=0.5, batch=8, capacity=16, warmup=12)


def lead(trainer):
    """From the start to the end."""
    return finish(trainer, trainer.init(jax.random.key(0)))


@pytest.fixture(scope="module")
def overlapped():
    """One run that acts while it learns, and the trainer that made it."""
    trainer = make_trainer(Flicker(), RECIPE, CONFIG)
    yield trainer, *lead(trainer)
    trainer.close()


def test_a_host_run_counts_steps_and_learns_from_replay():
    pytest.importorskip("gymnasium")
    made = recipe(replay=0.5, batch=8, capacity=16)
    trainer = make_trainer(make("CartPole-v1"), made, TrainerConfig(seeds=2, total_steps=100))
    state, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    assert trainer.steps(state) == 100
    assert metrics["loss"].shape == (5, 2)
    assert np.isfinite(metrics["loss"]).all()
    assert trainer.replay.filled == 16
    stored = trainer.replay.storage
    # One stream's next trajectory starts where its last one ended: what is shown last is what is acted on first.
    np.testing.assert_array_equal(stored.observation[:, 4:8, -1], stored.observation[:, 8:12, 0])
    assert not np.array_equal(stored.observation[0], stored.observation[1]), "seeds live in different streams"
    trainer.close()


def test_a_warm_up_larger_than_the_buffer_ends_as_on_the_device():
    made = recipe(replay=0.5, batch=8, capacity=8, warmup=12)
    trainer = make_trainer(Flicker(), made, TrainerConfig(total_steps=100))
    losses = lead(trainer)[1]["loss"][:, 0]
    trainer.close()
    assert trainer.replay.capacity == trainer.replay.filled == 8
    assert np.isnan(losses).tolist() == [True, True, False, False, False]
    assert trainer.warm_iterations == 2, "as the compiled trainer counts"


def test_a_closed_trainer_has_no_thread_and_still_reads_its_state():
    before = set(threading.enumerate())
    trainer = make_trainer(Flicker(), RECIPE, CONFIG)
    state, _ = trainer.advance(trainer.init(jax.random.key(0)), 1)
    assert set(threading.enumerate()) > before, "learning has a thread of its own"
    trainer.close()
    trainer.close()
    assert set(threading.enumerate()) == before
    same(trainer.agent(state, 1), jax.tree.map(lambda x: x[1], state.life.learner_state.params))
    assert (trainer.steps(state), trainer.done(state)) == (20, False)
    assert jax.tree.structure(trainer.skeleton()) == jax.tree.structure(state)
    with pytest.raises(ValueError, match="these streams are closed; open new ones"):
        trainer.init(jax.random.key(0))


def test_no_key_is_used_twice():
    trainer = make_trainer(ENVIRONMENT, recipe(), TrainerConfig(total_steps=100))
    life = jax.tree.map(lambda x: x[0], trainer.init(jax.random.key(0)).life)
    seen = []
    for _ in range(3):
        keys = split_keys(life)
        children = [*jax.random.split(keys.act, 5), *jax.random.split(keys.learn), keys.act, keys.learn, life.key]
        seen += [tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in children]
        life = life._replace(key=keys.life)
    assert len(set(seen)) == len(seen)


def test_stored_frames_make_no_difference_but_in_size(overlapped):
    folded, state, metrics = overlapped
    whole = make_trainer(Flicker(frames=1), RECIPE, CONFIG)
    state_whole, metrics_whole = lead(whole)
    same(state.life.learner_state, state_whole.life.learner_state)
    jax.tree.map(np.testing.assert_array_equal, metrics, metrics_whole)
    assert np.isnan(metrics["loss"]).all(1).tolist() == [True, True] + [False] * 8, "it waits for the warm-up"
    images = [sum(x.nbytes for x in jax.tree.leaves(each.replay.storage.observation)) for each in (whole, folded)]
    assert images[0] == 2 * 16 * 6 * 4 * 4 * 4
    assert images[1] == 2 * 16 * (9 * 4 * 4 + 6 * 4), "T + 1 + 3 frames, and which of them is where"


def test_overlap_acts_with_parameters_that_are_one_update_old(overlapped):
    trainer, state, metrics = overlapped
    assert trainer.overlap
    by_hand = make_trainer(Flicker(), RECIPE, dataclasses.replace(CONFIG, overlap="off"))
    begun = by_hand.init(jax.random.key(0)).life
    learners, actor, key, losses = [begun.learner_state], begun.actor, begun.key, []
    for iteration in range(10):
        acted = by_hand._act(learners[max(0, iteration - 1)].params, actor, key)
        learner, learned = by_hand._learn(learners[-1], acted)
        learners.append(learner)
        actor, key = acted.actor, acted.keys.life
        losses.append(learned["loss"])
    np.testing.assert_array_equal(metrics["loss"], losses)
    same(state.life.learner_state, learners[-1])
    in_turns = lead(by_hand)[1]["loss"]
    np.testing.assert_array_equal(in_turns[2], losses[2])
    assert not np.array_equal(in_turns[5:], losses[5:]), "it is not the same as taking turns"


def test_timing_and_chunks_change_nothing(overlapped, monkeypatch):
    trainer, state, metrics = overlapped
    monkeypatch.setattr("rulax.learning.host.CHUNK_SECONDS", 0.0)  # every chunk is one iteration
    monkeypatch.setattr(trainer.environment, "pause", 0.002)
    slow, metrics_slow = lead(trainer)
    same(state.life.learner_state, slow.life.learner_state)
    jax.tree.map(np.testing.assert_array_equal, metrics, metrics_slow)


def test_learning_and_acting_really_happen_at_once(overlapped, monkeypatch):
    """Learning waits for a step of the environment that comes after it began: only if both run at once does that step come."""
    trainer = overlapped[0]
    stepped, over, met = threading.Event(), threading.Event(), []
    learn, step = trainer._learn, trainer.streams.step

    def patient_learn(*arguments):
        stepped.clear()
        met.append(over.is_set() or stepped.wait(10))
        return learn(*arguments)

    def noted_step(action):
        stepped.set()
        time.sleep(0.01)  # until the learner has looked
        return step(action)

    monkeypatch.setattr(trainer, "_learn", patient_learn)
    monkeypatch.setattr(trainer.streams, "step", noted_step)
    state = trainer.init(jax.random.key(0))
    state, _ = trainer.advance(state, most=1)
    over.set()  # after the next one nobody acts any more
    state, _ = trainer.advance(state, most=1)
    assert met[0]
    trainer._finish()


def test_a_resumed_run_fills_its_buffer_again_before_it_learns(overlapped, monkeypatch):
    trainer, state, _ = overlapped
    assert jax.tree.structure(trainer.skeleton()) == jax.tree.structure(state)
    monkeypatch.setattr(trainer, "total_iterations", 14)
    last, metrics = finish(trainer, trainer.resume(state))
    assert np.isnan(metrics["loss"]).all(1).tolist() == [True, True, False, False]
    assert trainer.steps(last) == 280


class Booleans(Flicker):
    """Its streams say with booleans where an episode starts."""

    def open(self, num_streams):
        streams = super().open(num_streams)
        step = streams.step

        def with_booleans(action):
            timestep = step(action)
            return timestep._replace(first=timestep.first > 0)

        streams.step = with_booleans
        return streams


def test_streams_that_mark_starts_by_booleans_can_be_saved_and_resumed():
    trainer = make_trainer(Booleans(), RECIPE, dataclasses.replace(CONFIG, overlap="off"))
    state, _ = trainer.advance(trainer.init(jax.random.key(0)), most=1)
    for leaf, like in zip(jax.tree.leaves(state), jax.tree.leaves(trainer.skeleton()), strict=True):
        assert (leaf.shape, leaf.dtype) == (like.shape, like.dtype)
    trainer.close()


def test_on_policy_rules_take_turns_unless_told_otherwise():
    for replay, overlap, expected in [(0.0, "auto", False), (0.5, "auto", True), (0.0, "on", True), (0.5, "off", False)]:
        trainer = make_trainer(Flicker(), recipe(replay=replay), TrainerConfig(overlap=overlap))
        assert trainer.overlap == expected
