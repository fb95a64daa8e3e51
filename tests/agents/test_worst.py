"""Learning from the worst episodes: which steps are kept, against loops in NumPy, and what a policy learns from them."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rulax
from rulax.agents.worst import WorstEpisodes, worst_episodes
from rulax.envs.base import Environment, Episode, Transition
from rulax.envs.registry import make
from rulax.errors import UserError
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.rules.registry import make_rule
from tests.commands.bad_lines import refused_in_one_sentence

STREAMS, UNROLL, ITERATIONS, AFTER, SHARE = 6, 30, 5, 2, 0.4


def kept_by_hand(ended, total, share):
    """The definition, episode by episode."""
    returns = sorted(total[ended])
    kept = np.zeros(ended.shape, bool)
    if not returns:
        return kept
    highest = returns[max(1, math.ceil(round(share * len(returns), 6))) - 1]
    for stream in range(ended.shape[1]):
        began = 0
        for time in np.flatnonzero(ended[:, stream]):
            kept[began : time + 1, stream] = total[time, stream] <= highest
            began = time + 1
    return kept


@pytest.mark.parametrize("share", [0.001, 0.1, 0.25, 0.5, 0.999, 1.0])
def test_the_kept_steps_are_those_of_the_lowest_returns(share):
    random, judge = np.random.default_rng(0), jax.jit(worst_episodes, static_argnums=1)
    for chance in (0.0, 0.02, 0.2, 1.0):
        for _ in range(5):
            ended = random.random((20, 7)) < chance
            total = random.integers(-5, 5, (20, 7)).astype(np.float32)  # with equal ones among them; noise where nothing ended
            kept = judge(Episode(ended, total, np.zeros_like(ended, np.int32)), share)
            np.testing.assert_array_equal(kept, kept_by_hand(ended, total, share))


def test_a_tenth_of_thirty_is_three():
    """Not four, which 0.1 x 30 rounded up in floating-point numbers would be."""
    episodes = Episode(jnp.ones((30, 1), bool), jnp.arange(30.0)[::-1, None], jnp.ones((30, 1), jnp.int32))
    assert np.flatnonzero(worst_episodes(episodes, 0.1)).tolist() == [27, 28, 29]


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_an_agent_learns_from_the_worst_after_some_unrolls(kind):
    """What is stored for replay is what is learned from; returns of CartPole are lengths, so it tells its own."""
    if kind == "host":
        pytest.importorskip("gymnasium")
    environment = make("CartPole-v1") if kind == "host" else make("cartpole", limit=25)
    rule = make_rule("actor_critic")
    sizes = {"streams": STREAMS, "unroll": UNROLL, "replay": 0.5, "batch": STREAMS, "capacity": STREAMS * ITERATIONS}
    learning = dataclasses.replace(rule.learning, worst=SHARE, worst_after=AFTER, normalise_observations=True, **sizes)
    config = TrainerConfig(2, STREAMS * UNROLL * ITERATIONS, overlap="off")
    trainer = make_trainer(environment, rule._replace(learning=learning), config)
    state = trainer.init(jax.random.key(3))
    while not trainer.done(state):
        state, _ = trainer.advance(state)
    storage = state.life.replay.storage if kind == "compiled" else trainer.replay.storage
    stored = jax.tree.map(np.asarray, (storage.valid, storage.reward, storage.discount))
    for seed in range(2):
        agent = trainer.agent(state, seed)
        assert isinstance(agent, WorstEpisodes)
        assert agent.unrolls == ITERATIONS
        # Everything that happened is in the statistics of observations, kept or not, but for dummy steps.
        assert agent.agent.statistics.value[0].number > STREAMS * UNROLL * ITERATIONS * 0.9
        valid, reward, discount = (x[seed] if kind == "compiled" else np.swapaxes(x[seed], 0, 1) for x in stored)
        length = np.zeros(STREAMS)
        for number in range(ITERATIONS):
            here = slice(number * STREAMS, (number + 1) * STREAMS)
            ended, total, dummy = np.zeros((3, UNROLL, STREAMS))
            for time in range(UNROLL):
                # A dummy step follows a cut-off at 25 and pays nothing.
                dummy[time] = reward[time, here] == 0
                length += reward[time, here]
                cut = (length == 25) & (kind == "compiled")
                ended[time] = ((discount[time, here] == 0) | cut) & (dummy[time] == 0)
                total[time] = length
                length[ended[time] > 0] = 0
            worst = kept_by_hand(ended > 0, total, SHARE)
            assert 0 < worst.mean() < 1
            np.testing.assert_array_equal(valid[:, here], (dummy == 0) & (worst | (number < AFTER)))
    trainer.close()


@dataclasses.dataclass(frozen=True)
class Gamble(Environment):
    """One decision: 0.5 for sure, or 2 that becomes -2 once in ten times. Its mean is higher, that of its worst fifth is not."""

    num_actions = 2
    observation = jax.ShapeDtypeStruct((1,), jnp.float32)

    def default_task(self):
        return ()

    def sample_task(self, key):
        return ()

    def reset(self, task, key):
        return jnp.zeros(()), jnp.ones(1)

    def step(self, task, state, action, key):
        gamble = jnp.where(jax.random.uniform(key) < 0.1, -2.0, 2.0)
        return state, Transition(jnp.ones(1), jnp.where(action == 1, gamble, 0.5), jnp.bool_(True), jnp.bool_(False))


def test_the_mean_of_the_worst_is_maximised():
    """All episodes: 0.9 x 2 - 0.1 x 2 = 1.6 is more than 0.5. The worst fifth: half of it is -2, so less than 0.5."""
    settings = {"steps": 8_000, "streams": 32, "unroll": 8, "hidden": (8,), "learning_rate": 1e-2}
    share = {}
    for worst in (1.0, 0.2):
        run = rulax.train(Gamble(), rule="actor_critic", worst=worst, worst_after=3, animation=False, quiet=True, **settings)
        share[worst] = np.mean(run.agent.act(np.ones((50, 1), np.float32), jax.random.key(0), greedy=False))
    assert share[1.0] > 0.8
    assert share[0.2] < 0.2


def test_an_agent_is_saved_without_it_and_a_run_goes_on_with_it(tmp_path):
    settings = {"streams": 4, "unroll": 16, "hidden": (8,), "quiet": True, "worst": 0.5, "worst_after": 1, "animation": False}
    run = rulax.train("cartpole", rule="actor_critic", steps=256, out=tmp_path / "run", **settings)
    file = run.agent.save(tmp_path / "agent.safetensors")
    seen = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    assert rulax.load_agent(file).act(seen) == run.agent.act(seen)
    longer = rulax.train(resume=tmp_path / "run", steps=512, quiet=True)
    whole = rulax.train("cartpole", rule="actor_critic", steps=512, **settings)
    assert longer.rows[-1]["episode_return"] == whole.rows[-1]["episode_return"]


@pytest.mark.parametrize("rule", ["dqn", "q_learning", "mfec", "nec"])
def test_values_of_actions_are_not_learned_from_the_worst(rule):
    with pytest.raises(UserError, match="worst picks the episodes") as caught:
        rulax.train("cartpole", rule=rule, worst=0.1, quiet=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["--worst 0", "--worst 1.5", "--worst x", "--worst 0.1 --worst-after -1"])
def test_mistakes_are_one_sentence(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused_in_one_sentence(f"train cartpole {line}", "worst", tmp_path, capsys)
