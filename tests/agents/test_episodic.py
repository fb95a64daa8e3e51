"""Episodic agents against Python loops over the same streams: what is written when, and what the values make of it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.base import Carried, split, write
from rulax.agents.mfec import make_mfec_agent
from rulax.agents.nec import make_nec_agent
from rulax.agents.normalising import normalising
from rulax.envs.base import Episode
from rulax.envs.registry import make as make_environment
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.records import checkpoint
from rulax.rules.registry import make_rule
from rulax.settings import Network
from rulax.types import Experience, Level
from tests.learning.environments import Counter, Flicker
from tests.learning.test_train import finish, same

TIME, STREAMS, ACTIONS, STATES = 5, 3, 2, 6
DISCOUNT, RATE, HORIZON, NEIGHBOURS = 0.9, 0.25, 4, 2
NETWORK = Network(hidden=(8,))
OBSERVATION = jax.ShapeDtypeStruct((2,), jnp.float32)
PLACES = np.random.default_rng(7).normal(size=(STATES, 2)).astype(np.float32)
OPTIONS = {"discount": DISCOUNT, "neighbours": NEIGHBOURS, "horizon": HORIZON, "epsilon": 0.1}


def make(rule, rows=50, **options):
    if rule == "mfec":
        maker, own = make_mfec_agent, {"key_size": 5}
    else:
        maker, own = make_nec_agent, {"rate": RATE}
    return maker(jax.random.key(0), OBSERVATION, ACTIONS, {}, NETWORK, 0, STREAMS, rows=rows, **(OPTIONS | own | options))


def unrolls(number, seed=0):
    """Streams that end, are cut off with a dummy step after it, and now and then are abandoned, as experience per unroll."""
    rng = np.random.default_rng(seed)
    time = number * TIME
    state = rng.integers(0, STATES, (time + 1, STREAMS))
    action, reward = rng.integers(0, ACTIONS, (time, STREAMS)), rng.integers(-3, 4, (time, STREAMS)).astype(np.float32)
    discount, valid, ended = np.ones((time, STREAMS), np.float32), np.ones((time, STREAMS), bool), np.zeros((time, STREAMS), bool)
    first = np.zeros((time + 1, STREAMS), np.int8)
    first[0] = Level.LIFE
    for stream in range(STREAMS):
        for t in range(time):
            if t and ended[t - 1, stream] and discount[t - 1, stream]:
                valid[t, stream], reward[t, stream], first[t + 1, stream] = False, 0, Level.EPISODE
                continue
            what = rng.choice(["on", "end", "cut", "fail", "inside"], p=[0.7, 0.12, 0.08, 0.05, 0.05])
            ended[t, stream] = what in ("end", "cut")
            if what == "end":
                discount[t, stream], first[t + 1, stream] = 0, Level.EPISODE
            elif what == "fail":  # an environment that raised: a dummy step, and no end
                valid[t, stream], first[t + 1, stream] = False, Level.EPISODE
            elif what == "inside":  # the episodes of a trial, which has one return
                first[t + 1, stream] = Level.EPISODE
    for start in range(0, time, TIME):
        now, whole = slice(start, start + TIME), slice(start, start + TIME + 1)
        behaviour = jnp.zeros((TIME, STREAMS, ACTIONS))
        parts = (action[now], reward[now], discount[now], first[whole], valid[now])
        experience = Experience(jnp.asarray(PLACES[state[whole]]), *map(jnp.asarray, parts), behaviour, ())
        zeros = jnp.zeros((TIME, STREAMS))
        yield experience, Episode(jnp.asarray(ended[now]), zeros, zeros.astype(jnp.int32)), state[whole]


class Slow:
    """One table per action as a dictionary from states to values, and lists of what waits."""

    def __init__(self, rule, keys):
        self.rule, self.keys = rule, keys
        self.tables = [{} for _ in range(ACTIONS)]
        self.waiting = [[] for _ in range(STREAMS)]

    def value(self, state, action):
        table = self.tables[action]
        distances = {other: float(np.sum((self.keys[state] - self.keys[other]) ** 2)) for other in table}
        near = sorted(distances, key=distances.get)[:NEIGHBOURS]
        if self.rule == "mfec":
            return table[state] if state in table else np.mean([table[other] for other in near])
        weights = [1 / (distances[other] + 1e-3) for other in near]
        return np.dot(weights, [table[other] for other in near]) / np.sum(weights)

    def best(self, state):
        return max((self.value(state, action) for action in range(ACTIONS) if self.tables[action]), default=0.0)

    def write(self, state, action, value):
        table = self.tables[action]
        if state not in table:
            table[state] = value
        else:
            old = table[state]
            table[state] = max(old, value) if self.rule == "mfec" else old + RATE * (value - old)

    def unroll(self, experience, episodes, states):
        best = {state: self.best(state) for state in range(STATES)}  # of the table before the unroll
        for t in range(TIME):
            for stream in range(STREAMS):
                waiting = self.waiting[stream]
                if not experience.valid[t, stream] or experience.first[t, stream] == Level.LIFE:
                    waiting.clear()
                if not experience.valid[t, stream]:
                    continue
                action, reward = int(experience.action[t, stream]), float(experience.reward[t, stream])
                waiting.append((states[t, stream], action, reward))
                nec = self.rule == "nec"
                onwards = float(experience.discount[t, stream]) * best[states[t + 1, stream]] if nec else 0.0
                if episodes.ended[t, stream]:
                    for state, action, reward in waiting[: -HORIZON - 1 : -1]:
                        onwards = reward + DISCOUNT * onwards
                        self.write(state, action, onwards)
                    waiting.clear()
                elif nec and len(waiting) == HORIZON:
                    rewards = sum(DISCOUNT**j * reward for j, (_, _, reward) in enumerate(waiting))
                    state, action, _ = waiting.pop(0)
                    self.write(state, action, rewards + DISCOUNT**HORIZON * onwards)


@pytest.mark.parametrize("rule", ["mfec", "nec"])
def test_what_is_written_is_what_loops_write(rule):
    agents = jax.tree.map(lambda *x: jnp.stack(x), make(rule), make(rule))  # two, which live through different streams
    keys = np.asarray(make(rule).reader(jnp.asarray(PLACES)))
    slow = [Slow(rule, keys), Slow(rule, keys)]
    writes = jax.jit(jax.vmap(lambda *parts: write(*parts)[0]))
    for lives in zip(unrolls(12), unrolls(12, seed=1), strict=True):
        experience, episodes = (jax.tree.map(lambda *x: jnp.stack(x), *(life[part] for life in lives)) for part in (0, 1))
        agents = writes(agents, experience, episodes)
        for table, life in zip(slow, lives, strict=True):
            table.unroll(*life)
    for number, loops in enumerate(slow):
        tables = jax.tree.map(lambda x, number=number: x[number], agents.tables)
        for action, expected in enumerate(loops.tables):
            assert int(tables.valid[action].sum()) == len(expected) > 2
            for row in np.flatnonzero(tables.valid[action]):
                state = int(np.argmin(np.sum((keys - np.asarray(tables.keys[action, row])) ** 2, -1)))
                np.testing.assert_allclose(tables.values[action, row], expected[state], rtol=1e-4, atol=1e-4)
        agent = jax.tree.map(lambda x, number=number: x[number], agents)
        values = agent.predict(agent.look(jnp.asarray(PLACES)))["value"][..., 0]
        expected = [[loops.value(state, action) for action in range(ACTIONS)] for state in range(STATES)]
        np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-3)
        taken = agent.predict_taken(agent.look(jnp.asarray(PLACES)), jnp.ones(STATES, jnp.int32))["value"][..., 0]
        np.testing.assert_allclose(taken, values[:, 1], rtol=1e-6)


def test_a_row_that_is_read_to_act_stays_and_the_one_that_is_not_goes():
    """Three rows, three states; one is not met again, and makes room for the fourth."""
    agent = make("mfec", rows=3, neighbours=1)
    written = jax.jit(lambda agent, *parts: agent.written(*parts)[0])

    def lived(agent, *states, ended=True):
        """Episodes of one step each, all with action 0, in every stream alike; or a part of an episode, with action 1."""
        time = len(states)
        shape = (time, STREAMS)
        observation = jnp.broadcast_to(jnp.asarray(PLACES[[*states, 0]])[:, None], (time + 1, STREAMS, 2))
        ones, zeros = jnp.ones(shape), jnp.zeros(shape)
        first = jnp.ones((time + 1, STREAMS), jnp.int8)
        experience = Experience(
            observation, zeros.astype(jnp.int32) + (not ended), ones, zeros, first, ones > 0, jnp.zeros((*shape, ACTIONS)), ()
        )
        return written(agent, experience, Episode((ones > 0) & ended, ones, zeros.astype(jnp.int32)))

    def held(agent):
        distances = jnp.sum((agent.tables.keys[0][:, None] - agent.reader(jnp.asarray(PLACES))) ** 2, -1)
        return {int(state) for state in jnp.argmin(distances, -1)}

    agent = lived(agent, 0, 1, 2)
    assert held(agent) == {0, 1, 2}
    assert held(lived(agent, 1, 2, 3)) == {1, 2, 3}
    # The oldest row is read, and nothing is written, because no episode ends: now the second one is the oldest.
    assert held(lived(lived(agent, 0, 0, 0, ended=False), 4, 4, 4)) == {0, 2, 4}


def test_the_policy_tries_the_unknown_and_shares_between_equals():
    agent = make("mfec", epsilon=0.2)
    place = jnp.asarray(PLACES[:1])
    act = jax.jit(lambda agent: agent.act(place, jnp.zeros(1, jnp.int8), ())[0])
    chances = lambda agent: np.exp(act(agent))[0]  # noqa: E731
    np.testing.assert_allclose(chances(agent), [0.5, 0.5], rtol=1e-6)

    def knowing(*values):
        tables, key = agent.tables, agent.reader(place)[0]
        for action, value in enumerate(values):
            rows = tables.keys.at[action, 0].set(key), tables.values.at[action, 0].set(value)
            tables = tables._replace(keys=rows[0], values=rows[1], valid=tables.valid.at[action, 0].set(True))
        return dataclasses.replace(agent, stored=Carried(tables))

    np.testing.assert_allclose(chances(knowing(5.0)), [0.1, 0.9], rtol=1e-5)  # of the other action nothing is known
    np.testing.assert_allclose(chances(knowing(5.0, 1.0)), [0.9, 0.1], rtol=1e-5)
    np.testing.assert_allclose(chances(knowing(-1.0, -1.0)), [0.5, 0.5], rtol=1e-5)


def test_what_is_trained():
    assert jax.tree.leaves(split(make("mfec"))[0]) == []
    trained = split(make("nec"))[0]
    assert [part is not None for part in trained.tables] == [True, True, False, False, False]
    assert jax.tree.leaves(trained.reader)
    assert jax.tree.leaves(trained.waiting) == []


SMALL = {"streams": 2, "unroll": 3}


def small(rule):
    own = {"key_size": 4} if rule == "mfec" else {}
    made = make_rule(rule, rows=16, neighbours=3, horizon=8, **own)
    replay = {"batch": 2, "warmup": 2, "capacity": 8} if rule == "nec" else {}
    learning = dataclasses.replace(made.learning, **SMALL, **replay)
    return made._replace(learning=learning, network=dataclasses.replace(made.network, hidden=(8,)))


@pytest.mark.parametrize("rule", ["mfec", "nec"])
def test_a_saved_run_goes_on_exactly(rule, tmp_path):
    trainer = make_trainer(Counter(length=4, cut=True), small(rule), TrainerConfig(seeds=2, total_steps=6 * 12))
    end, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    assert np.isfinite(metrics["loss"][-1]).all()
    state = trainer.init(jax.random.key(0))
    while int(state.iteration) < 4:
        state, _ = trainer.advance(state, 1)
    checkpoint.save(tmp_path / "checkpoint.safetensors", state, {}, {})
    assert int(state.life.learner_state.params.waiting.value.number.sum()) > 0, "in the middle of an episode"
    saved = checkpoint.unpack(checkpoint.load(tmp_path / "checkpoint.safetensors"), trainer.skeleton(), tmp_path)
    same(finish(trainer, trainer.resume(saved))[0], end)
    tables = end.life.learner_state.params.tables
    assert tables.valid.any((1, 2)).all()
    assert tables.stamp.max() > 0


@pytest.mark.parametrize("rule", ["mfec", "nec"])
def test_images_of_a_host_environment(rule):
    trainer = make_trainer(Flicker(), small(rule), TrainerConfig(seeds=2, total_steps=6 * 8))
    state, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    trainer.close()
    assert np.isfinite(metrics["loss"][-1]).all()
    assert state.life.learner_state.params.tables.valid.any((1, 2)).all()


def test_what_a_table_per_action_cannot_do():
    arguments = jax.random.key(0), OBSERVATION, ACTIONS, {}
    with pytest.raises(ValueError, match="one choice, not 3 at once"):
        make_mfec_agent(*arguments, NETWORK, 3)
    with pytest.raises(ValueError, match="one choice, not real: --action-distribution bins"):
        make_nec_agent(*arguments, NETWORK, 0, 1, 2)
    with pytest.raises(ValueError, match="60 neighbours cannot be found in a table of 50 rows"):
        make_nec_agent(*arguments, NETWORK, neighbours=60, rows=50)
    with pytest.raises(ValueError, match="no use for the core 'gru'"):
        make_mfec_agent(*arguments, dataclasses.replace(NETWORK, core="gru"))
    scaled = small("mfec")._replace(learning=dataclasses.replace(small("mfec").learning, reward_scale=2.0))
    with pytest.raises(ValueError, match="leave --normalise-rewards and --reward-scale out"):
        make_trainer(Counter(), scaled, TrainerConfig()).skeleton()


def test_normalised_observations_are_written_as_they_are_acted_on():
    """What an agent has just written is what it finds where it stands, by the statistics of that time."""
    inner = make("mfec")
    agent = normalising(inner, OBSERVATION, STREAMS, observations=True, rewards=False)
    known = agent.statistics.value[0]
    mean = known._replace(**{name: jnp.ones_like(part) * 4 for name, part in known._asdict().items()})
    agent = eqx.tree_at(lambda agent: agent.statistics.value, agent, (mean,))
    (experience, episodes, _), *_ = unrolls(3, seed=3)
    after, kept, _ = write(agent, experience, episodes)
    assert kept.observation is experience.observation
    rows = after.agent.tables.keys[after.agent.tables.valid]
    seen = inner.reader(agent.seen(experience.observation)).reshape(-1, rows.shape[-1])
    assert len(rows) > 0
    np.testing.assert_allclose(jnp.min(jnp.sum((rows[:, None] - seen) ** 2, -1), -1), 0, atol=1e-9)


def lived(environment, steps, seeds=3, **options):
    """A run with tables as small as it needs: the trainer's last state, and metrics [I, K]."""
    trainer = make_trainer(environment, make_rule("mfec", **options), TrainerConfig(seeds=seeds, total_steps=steps))
    return finish(trainer, trainer.init(jax.random.key(0)))


@pytest.mark.learning
def test_mfec_catches_within_three_hundred_episodes():
    _, metrics = lived(make_environment("catch"), 2880, rows=1000)
    so_far = metrics["episodes"].cumsum(0)
    last = (so_far > 200) & (so_far <= 300)
    returns = np.where(last, metrics["episode_return"], 0).sum(0) / np.where(last, metrics["episodes"], 0).sum(0)
    assert returns.mean() >= 0.95, returns


@pytest.mark.learning
def test_mfec_believes_in_luck():
    """Where it must fail: the largest of many noisy draws stands in the table, and keeps the agent at an arm that was lucky."""
    bandit = make_environment("bandit/gaussian")
    state, metrics = lived(bandit, 4800, seeds=8, rows=16)
    means = np.asarray(bandit.default_task().means)
    believed = np.asarray(state.life.learner_state.params.tables.values.max((1, 2)))
    # The expected largest of 4800 standard normal numbers is above 3.
    assert (believed > means.max() + 1.5).all(), believed
    late = slice(len(metrics["episodes"]) // 2, None)
    earned = metrics["episode_return"][late].sum(0) / metrics["episodes"][late].sum(0)
    # A fixed arm is worth its mean: some seeds stay with one that is not the best.
    assert earned.mean() < means.max() - 0.2, earned
