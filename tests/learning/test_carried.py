"""Agents that carry what no gradient touches: a table of visits, against counting by hand, compiled and on the host.

Everything that an agent ever collected is in its replay buffer here, so that NumPy can count visits and compute the bonus and the
policy of every unroll: the rewards of both environments are known in closed form.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import BaseAgent, Carried, make_agent
from rulax.agents.base import join, split, write
from rulax.agents.counting import CountingAgent, with_count_bonus
from rulax.agents.gaussian import GaussianAgent
from rulax.envs.base import Episode
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.learning.update import slow_agent
from rulax.records import checkpoint
from rulax.types import Experience

from .environments import Counter, Flicker
from .test_train import finish, recipe, same

BONUS, SHYNESS = 0.5, 0.1
STREAMS, UNROLL, ITERATIONS = 4, 5, 6
CONFIG = TrainerConfig(seeds=2, total_steps=STREAMS * UNROLL * ITERATIONS)


class Shy(CountingAgent):
    """Avoids what it has done before: its policy is the table alone, so that every decision shows which table it was made with."""

    def act(self, observation, first, memory):
        return -SHYNESS * self.visits.value[self.cell(observation)].astype(jnp.float32), memory


def shy(*arguments, **keywords):
    made = with_count_bonus(*arguments, **keywords)

    def make(*arguments):
        agent = made(*arguments)
        return Shy(agent.agent, agent.visits, agent.cell, agent.bonus)

    return make


def counted(observation):
    """The cell of `Counter`: the steps since the start, up to 4."""
    return observation[..., 0].astype(jnp.int32)


def bright(observation):
    """The cell of `Flicker`: whether one pixel of the newest frame is bright."""
    return (observation[..., 0, 0, -1] > 127).astype(jnp.int32)


def environment_of(kind):
    return Counter(length=4, cut=True) if kind == "compiled" else Flicker(frames=1)


def recipe_of(kind, maker, **settings):
    """Half of each batch is replayed, from a buffer in which everything has room; in the first iterations nothing is learned."""
    cell, cells = (counted, 5) if kind == "compiled" else (bright, 2)
    made = recipe(replay=0.5, batch=8, capacity=STREAMS * ITERATIONS, warmup=12, streams=STREAMS, unroll=UNROLL, **settings)
    return made._replace(make_agent=maker(cell, cells, BONUS))


def trainer_of(kind, maker, **settings):
    overlap = "on" if kind == "overlapped" else "off"
    return make_trainer(environment_of(kind), recipe_of(kind, maker, **settings), dataclasses.replace(CONFIG, overlap=overlap))


def collected(kind, trainer, state, seed):
    """What one agent collected, as NumPy experience [T, B] per iteration, and what the environment paid for it."""
    storage = state.life.replay.storage if kind == "compiled" else trainer.replay.storage
    found = jax.tree.map(lambda x: np.asarray(x[seed]), storage._replace(memory=()))
    if kind != "compiled":
        found = jax.tree.map(lambda x: np.swapaxes(x, 0, 1), found)
    for number in range(ITERATIONS):
        part = jax.tree.map(lambda x, at=number * STREAMS: x[:, at : at + STREAMS], found)
        shown = part.observation[:-1]
        if kind == "compiled":
            cell, paid = shown[..., 0].astype(int), 10 * shown[..., 0] + part.action
        else:
            cell = (shown[..., 0, 0, -1] > 127).astype(int)
            paid = (part.action == cell).astype(np.float32)
        yield part, cell, np.where(part.valid, paid, 0)


KINDS = ["compiled", "in turns", "overlapped"]


@functools.cache
def whole_run(kind):
    trainer = trainer_of(kind, shy)
    return trainer, *finish(trainer, trainer.init(jax.random.key(0)))


@pytest.mark.parametrize("kind", KINDS)
def test_visits_bonus_and_policy_are_those_of_counting_by_hand(kind):
    trainer, state, metrics = whole_run(kind)
    table = np.asarray(state.life.learner_state.params.visits.value)
    late = 2 if kind == "overlapped" else 1  # how many unrolls pass before one is known to the agent that acts
    assert np.isnan(metrics["loss"]).all(1).tolist() == [True, True, False, False, False, False], "written while nothing is learned"
    for seed in range(CONFIG.seeds):
        visits = np.zeros(table.shape[1:], int)
        tables = [visits.copy()] * late
        for part, cell, paid in collected(kind, trainer, state, seed):
            np.testing.assert_allclose(part.behaviour, -SHYNESS * tables[-late][cell], rtol=1e-6)
            np.add.at(visits, (cell[part.valid], part.action[part.valid]), 1)
            tables.append(visits.copy())
            bonus = np.where(part.valid, BONUS / np.sqrt(np.maximum(visits[cell, part.action], 1)), 0)
            np.testing.assert_allclose(part.reward, paid + bonus, rtol=1e-6)
        np.testing.assert_array_equal(table[seed], visits)
        assert 0 < visits.sum() < STREAMS * UNROLL * ITERATIONS, "dummy steps are no visits"
    assert not np.array_equal(*table), "each seed has its own table"
    if kind == "compiled":  # what is reported is what the environment paid: 0 + 10 + 20 + 30 and at most one per step
        assert (metrics["episode_return"] <= 64 * metrics["episodes"]).all()
    trainer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_optimiser_and_slow_copy_know_nothing_of_the_table(kind):
    """They are those of the agent inside, and the agent learns as if there were no table, where it earns no bonus."""
    cell, cells = (counted, 5) if kind == "compiled" else (bright, 2)
    settings = {"epochs": 2, "minibatches": 2} if kind == "compiled" else {}
    ends = []
    for maker in (None, with_count_bonus(cell, cells, 0.0)):
        made = recipe_of(kind, with_count_bonus, **settings)._replace(make_agent=maker)
        config = dataclasses.replace(CONFIG, overlap="on" if kind == "overlapped" else "off")
        trainer = make_trainer(environment_of(kind), made, config)
        ends.append(finish(trainer, trainer.init(jax.random.key(1)))[0].life.learner_state)
        trainer.close()
    plain, counting = ends
    same(plain.params, counting.params.agent)
    for ours, theirs in ((plain.slow, counting.slow), (plain.optimiser_state, counting.optimiser_state)):
        same(jax.tree.leaves(ours), jax.tree.leaves(theirs))
    assert counting.slow.visits.value is None
    assert slow_agent(counting).visits.value is counting.params.visits.value
    assert int(counting.params.visits.value.sum()) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_table_is_restored(kind, tmp_path):
    trainer = trainer_of(kind, shy)
    state, _ = trainer.advance(trainer.init(jax.random.key(0)), 1)
    while int(state.iteration) < 3:
        state, _ = trainer.advance(state, 1)
    before = np.array(state.life.learner_state.params.visits.value)
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save(path, state, {}, {})

    def resumed():
        again = trainer_of(kind, shy)
        saved = checkpoint.unpack(checkpoint.load(path), again.skeleton(), path)
        np.testing.assert_array_equal(saved.life.learner_state.params.visits.value, before)
        end, _ = finish(again, again.resume(saved))
        return again, end

    trainer.close()
    again, end = resumed()
    if kind == "compiled":
        same(end, whole_run(kind)[1])
        return
    # On the host a resumed run begins new episodes with an empty buffer: what it counts from there on is what it stores.
    table = np.asarray(end.life.learner_state.params.visits.value)
    assert again.replay.filled == 3 * STREAMS
    for seed in range(CONFIG.seeds):
        visits = before[seed].copy()
        for _, (part, cell, _) in zip(range(3), collected(kind, again, end, seed), strict=False):
            np.add.at(visits, (cell[part.valid], part.action[part.valid]), 1)
        np.testing.assert_array_equal(table[seed], visits)
    same(end.life.learner_state, resumed()[1].life.learner_state)


def test_timing_changes_nothing(monkeypatch):
    _, state, _ = whole_run("overlapped")
    again = trainer_of("overlapped", shy)
    monkeypatch.setattr(again.environment, "pause", 0.002)
    monkeypatch.setattr("rulax.learning.host.CHUNK_SECONDS", 0.0)
    same(state.life.learner_state, finish(again, again.init(jax.random.key(0)))[0].life.learner_state)


# -- what is carried ---------------------------------------------------------------------------------------------------------


class Centred(BaseAgent):
    """Reads observations less a running mean, a carried floating-point number, and adds up the returns of whole episodes."""

    agent: BaseAgent
    mean: Carried  # [] of the observations
    so_far: Carried  # [B] return of the episode that is not over yet
    finished: Carried  # [2] number and total return of those that are

    def act(self, observation, first, memory):
        return self.agent.act(observation - self.mean.value, first, memory)

    def embed(self, experience):
        return self.agent.embed(experience._replace(observation=experience.observation - self.mean.value))

    def predict(self, embedded):
        return self.agent.predict(embedded)

    def predict_taken(self, embedded, action):
        return self.agent.predict_taken(embedded, action)

    def written(self, experience, episodes):
        def one(carry, step):
            so_far, finished = carry
            first, reward, ended = step
            so_far = jnp.where(first, 0, so_far) + reward
            finished = finished + jnp.stack([ended.sum(), jnp.where(ended, so_far, 0).sum()])
            return (so_far, finished), None

        steps = experience.first[:-1], experience.reward, episodes.ended
        (so_far, finished), _ = jax.lax.scan(one, (self.so_far.value, self.finished.value), steps)
        mean = 0.9 * self.mean.value + 0.1 * experience.observation.mean()
        where = lambda agent: (agent.mean.value, agent.so_far.value, agent.finished.value)  # noqa: E731
        return eqx.tree_at(where, self, (mean, so_far, finished)), experience


def make_centred(key, observation, num_actions, heads, network, action_dimensions=0, num_streams=1):
    agent = make_agent(key, observation, num_actions, heads, network, action_dimensions)
    return Centred(agent, Carried(jnp.float32(0)), Carried(jnp.zeros(num_streams)), Carried(jnp.zeros(2)))


def test_episodes_that_span_unrolls_are_put_together_and_floats_are_not_trained():
    """Episodes of 12 steps, unrolls of 5; a large weight decay would show on what the optimiser touches."""
    made = recipe(weight_decay=1.0, learning_rate=0.1)._replace(make_agent=make_centred)
    trainer = make_trainer(Counter(length=12), made, TrainerConfig(seeds=2, total_steps=20 * 13))
    state, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    learner_state = state.life.learner_state
    np.testing.assert_allclose(learner_state.params.finished.value[:, 0], metrics["episodes"].sum(0))
    np.testing.assert_allclose(learner_state.params.finished.value[:, 1], metrics["episode_return"].sum(0), rtol=1e-6)
    assert metrics["episodes"].sum() == 2 * 4 * 5
    mean = 0.0
    for number in range(13):  # all streams are in step, so the mean of the 6 observations of each unroll is known
        mean = 0.9 * mean + 0.1 * np.mean([(5 * number + step) % 12 for step in range(6)])
    np.testing.assert_allclose(learner_state.params.mean.value, mean, rtol=1e-5)
    assert jax.tree.leaves((learner_state.slow.mean, learner_state.slow.finished)) == []


def test_split_takes_floats_outside_of_carried():
    class Mixed(eqx.Module):
        weight: jax.Array
        counts: jax.Array
        key: jax.Array
        table: Carried

    agent = Mixed(jnp.ones(2), jnp.arange(3), jax.random.key(0), Carried({"values": jnp.ones(4), "used": jnp.zeros(4, bool)}))
    trained, carried = split(agent)
    assert jax.tree.leaves(trained) == [agent.weight]
    assert len(jax.tree.leaves(carried)) == 4
    assert jax.tree.structure(join(trained, carried)) == jax.tree.structure(agent)
    same(join(trained, carried), agent)


def example(agent, streams=3, time=2):
    observation = jnp.zeros((time + 1, streams, 1))
    flags = jnp.ones((time, streams), bool)
    numbers = jnp.zeros((time, streams))
    first = jnp.zeros((time + 1, streams), bool)
    experience = Experience(
        observation,
        numbers.astype(int),
        numbers,
        numbers,
        first,
        flags,
        jnp.zeros((time, streams, 2)),
        agent.initial_memory(streams),
    )
    return experience, Episode(flags, numbers, numbers.astype(int))


def test_an_ordinary_agent_pays_nothing():
    """Nothing is computed, and on the host nothing is copied to the device and back."""
    made = recipe()
    heads = made.rule.heads(2)
    agent = make_agent(jax.random.key(0), jax.ShapeDtypeStruct((1,), jnp.float32), 2, heads, made.network)
    assert jax.make_jaxpr(write)(agent, *example(agent)).eqns == []
    assert not make_trainer(Flicker(), made, CONFIG).acting.writes
    assert trainer_of("in turns", with_count_bonus).acting.writes


def test_every_agent_has_the_methods_of_the_protocol():
    from rulax.agents import Agent

    names = {name for name in vars(Agent) if not name.startswith("_")}
    assert names == {"initial_memory", "act", "sample", "remember", "embed", "predict", "predict_taken", "written"}
    for kind in (
        type(make_agent(jax.random.key(0), jax.ShapeDtypeStruct((1,), jnp.float32), 2, {}, recipe().network)),
        GaussianAgent,
        Shy,
    ):
        assert all(callable(getattr(kind, name)) for name in names)


def test_a_table_needs_actions_that_are_one_choice():
    made = with_count_bonus(counted, 5, BONUS)
    with pytest.raises(ValueError, match="one choice, not 3"):
        made(jax.random.key(0), jax.ShapeDtypeStruct((1,), jnp.float32), 2, {}, recipe().network, 3)
