"""Normalised observations and rewards, against NumPy on everything that an agent ever collected, which its replay buffer holds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rulax
from rulax.agents import make_agent
from rulax.agents.normalising import DISCOUNT, ObservationNormaliser, RewardNormaliser, normalising
from rulax.envs.registry import make
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.records import checkpoint
from rulax.values.normalisation import merge_statistics, over_deviation, standardised, start_statistics

from .environments import Counter, Flicker
from .test_train import finish, recipe, same

STREAMS, UNROLL, ITERATIONS = 4, 5, 6
CONFIG = TrainerConfig(seeds=2, total_steps=STREAMS * UNROLL * ITERATIONS)
BOTH = {"normalise_observations": True, "normalise_rewards": True}


# -- statistics ----------------------------------------------------------------------------------------------------------------


def test_merged_statistics_are_those_of_two_passes_over_everything():
    """Far from zero, where a sum of squares in float32 would lose every digit; batches of any size, some without a valid entry."""
    random = np.random.default_rng(0)
    statistics, seen = start_statistics((3,)), []
    for size, share in ((1, 1.0), (7, 0.5), (4, 0.0), (50, 0.9), (2, 1.0)):
        values = (random.normal(size=(size, 2, 3)) * [1, 5, 0.1] + [1000, -3, 20]).astype(np.float32)
        valid = random.random((size, 2)) < share
        seen.append(values[valid])
        values[~valid] = np.nan  # what is not valid may hold anything
        statistics = merge_statistics(statistics, values, valid)
    everything = np.concatenate(seen).astype(np.float64)
    assert statistics.number == len(everything)
    np.testing.assert_allclose(statistics.mean, everything.mean(0), rtol=1e-6)
    np.testing.assert_allclose(statistics.variance, everything.var(0), rtol=2e-4)
    scaled = standardised(statistics, everything.astype(np.float32))
    np.testing.assert_allclose(scaled, (everything - everything.mean(0)) / everything.std(0), atol=2e-3)
    np.testing.assert_allclose(
        over_deviation(statistics, np.ones(3)), np.minimum(10, 1 / np.sqrt(everything.var(0) + 1e-8)), rtol=2e-4
    )


def test_before_anything_was_seen_values_stay_and_later_they_are_cut_off():
    unseen = start_statistics()
    assert standardised(unseen, jnp.float32(37.0)) == 37
    assert merge_statistics(unseen, np.ones(3, np.float32), np.zeros(3, bool)) == unseen
    constant = merge_statistics(unseen, np.ones(3, np.float32), np.ones(3, bool))
    assert standardised(constant, jnp.float32(1.0)) == 0, "what never changes tells nothing, and divides by nothing"
    assert (standardised(constant, jnp.float32(2.0)), over_deviation(constant, jnp.float32(-5.0))) == (10, -10)


# -- agents in training ----------------------------------------------------------------------------------------------------------


def trainer_of(kind, **settings):
    if kind == "host":
        pytest.importorskip("gymnasium")
    environment = make("CartPole-v1") if kind == "host" else Counter(length=4, cut=True)
    made = recipe(replay=0.5, batch=8, capacity=STREAMS * ITERATIONS, streams=STREAMS, unroll=UNROLL, **settings)
    return make_trainer(environment, made, dataclasses.replace(CONFIG, overlap="off" if kind == "host" else "auto"))


def collected(kind, trainer, state, seed):
    """What one agent collected, as NumPy experience [T, B] per iteration, and what the environment paid for it."""
    storage = state.life.replay.storage if kind == "compiled" else trainer.replay.storage
    found = jax.tree.map(lambda x: np.asarray(x[seed]), storage._replace(memory=()))
    if kind != "compiled":
        found = jax.tree.map(lambda x: np.swapaxes(x, 0, 1), found)
    for number in range(ITERATIONS):
        part = jax.tree.map(lambda x, at=number * STREAMS: x[:, at : at + STREAMS], found)
        paid = 10 * part.observation[:-1, ..., 0] + part.action if kind == "compiled" else np.ones(part.valid.shape)
        yield part, np.where(part.valid, paid, 0)


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_statistics_and_rewards_are_those_of_numpy(kind):
    trainer = trainer_of(kind, **BOTH)
    state, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    agents = state.life.learner_state.params
    for seed in range(CONFIG.seeds):
        seen, returns, so_far = [], [], np.zeros(STREAMS)
        for part, paid in collected(kind, trainer, state, seed):
            seen.append(part.observation[:-1][part.valid])
            for t in range(UNROLL):
                so_far = np.where(part.first[t] > 0, 0, so_far)
                so_far = np.where(part.valid[t], DISCOUNT * so_far + paid[t], so_far)
                returns.extend(so_far[part.valid[t]])
            expected = np.where(part.valid, paid / np.sqrt(np.var(returns) + 1e-8), 0)
            np.testing.assert_allclose(part.reward, np.clip(expected, -10, 10), rtol=1e-4)
        everything = np.concatenate(seen).astype(np.float64)
        (statistics,) = trainer.agent(state, seed).agent.statistics.value
        assert 0 < statistics.number == len(everything) <= STREAMS * UNROLL * ITERATIONS
        np.testing.assert_allclose(statistics.mean, everything.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(statistics.variance, everything.var(0), rtol=1e-4)
        # What acts after training reads observations by them; the agent inside is the one that has always been made.
        last = jnp.asarray(everything[-1:], jnp.float32)
        agent, first = trainer.agent(state, seed), jnp.zeros(1, jnp.int8)
        by_hand = (everything[-1:] - everything.mean(0)) / everything.std(0)
        np.testing.assert_allclose(
            agent.act(last, first, ())[0], agent.agent.agent.act(jnp.asarray(by_hand, jnp.float32), first, ())[0], atol=1e-4
        )
    assert isinstance(agents, RewardNormaliser)
    assert metrics["bad_gradients"].sum() == 0
    if kind == "compiled":  # reported is what the environment paid: 0 + 10 + 20 + 30 and at most one per step
        assert (metrics["episode_return"].sum(0) >= 60 * metrics["episodes"].sum(0)).all()
    trainer.close()


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_saved_statistics_are_restored_and_a_resumed_run_goes_on_with_them(kind, tmp_path):
    trainer = trainer_of(kind, **BOTH)
    state = trainer.init(jax.random.key(0))
    while int(state.iteration) < 3:
        state, _ = trainer.advance(state, 1)
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save(path, state, {}, {})
    before = jax.tree.map(np.asarray, state.life.learner_state.params)
    again = trainer_of(kind, **BOTH)
    saved = checkpoint.unpack(checkpoint.load(path), again.skeleton(), path)
    same(saved.life.learner_state.params, before)
    resumed, _ = finish(again, again.resume(saved))
    if kind == "compiled":
        same(resumed, finish(trainer, state)[0])
    else:  # a resumed host run begins new episodes, so it counts other observations; none is forgotten
        number = np.asarray(resumed.life.learner_state.params.agent.statistics.value[0].number)
        assert (number > before.agent.statistics.value[0].number).all()
    trainer.close()
    again.close()


def test_without_the_options_the_agent_is_the_one_that_has_always_been_made():
    made, observation = recipe(), jax.ShapeDtypeStruct((2,), np.float32)
    agent = make_agent(jax.random.key(0), observation, 2, made.rule.heads(2), made.network)
    assert normalising(agent, observation, STREAMS, observations=False, rewards=False) is agent


def test_only_real_numbers_are_normalised():
    shapes = {"image": jax.ShapeDtypeStruct((4, 4, 1), np.uint8), "speed": jax.ShapeDtypeStruct((2,), np.float32)}
    made = recipe()
    plain = make_agent(jax.random.key(0), shapes, 2, made.rule.heads(2), made.network)
    agent = normalising(plain, shapes, STREAMS, observations=True, rewards=False)
    assert isinstance(agent, ObservationNormaliser)
    agent = dataclasses.replace(agent, statistics=type(agent.statistics)((start_statistics((2,))._replace(number=1.0, mean=5.0),)))
    seen = agent.seen({"image": np.full((4, 4, 1), 200, np.uint8), "speed": np.full(2, 7.0, np.float32)})
    assert (seen["image"] == 200).all()
    np.testing.assert_allclose(seen["speed"], 2.0)
    with pytest.raises(ValueError, match="needs observations of real numbers"):
        make_trainer(Flicker(), recipe(normalise_observations=True), CONFIG).check()


def test_an_agent_takes_its_statistics_along_in_a_run_folder_and_in_a_file(tmp_path):
    """From the flags of a user to an agent that acts: the same action values in memory, from the folder and from the file."""
    small = {"rule": "actor_critic", "steps": 200, "streams": 4, "unroll": 5, "hidden": 8}
    run = rulax.train("cartpole", **small, **BOTH, out=tmp_path / "run", quiet=True)
    agents = [run.agent, rulax.load(tmp_path / "run").agent, rulax.load_agent(run.agent.save(tmp_path / "agent.safetensors"))]
    for agent in agents[1:]:
        same(agents[0].params, agent.params)
    assert float(agents[2].params.agent.statistics.value[0].number) > 100
    observation = np.zeros(agents[0].observation.shape, np.float32)
    assert len({agent.act(observation) for agent in agents}) == 1
