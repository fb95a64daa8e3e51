"""Discovered rules with every kind of agent: recurrent, convolutional, many at once, on device and on Gymnasium.

The update pools over all steps (lifetime memory, moving averages), so that a leak cannot be seen by changing one episode. But
pooling does not care which stream an episode is in: two streams whose episodes end together may swap what follows, and the
update must come out the same unless something crossed the end.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rulax
from rulax.envs.registry import make
from rulax.learning.life import collect, store
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.learning.update import update
from rulax.rules.base import Recipe
from rulax.rules.disco import LEARNING, NETWORK, disco
from rulax.types import Experience, now
from tests.metanet.environments import SMALL
from tests.shared import weights

from .environments import Counter
from .test_train import finish

STREAMS, UNROLL = 4, 9
CATCH = make("catch", rows=8, columns=8)  # large enough for a convolution; every episode takes 7 steps


def recipe(core="none", torso="mlp", **learning) -> Recipe:
    settings = {"streams": STREAMS, "unroll": UNROLL, "batch": 8, "capacity": 16, "warmup": 8} | learning
    small = {"hidden": (8,), "channels": (2,), "action_model": 4, "action_hidden": (4,), "core_size": 6}
    network = dataclasses.replace(NETWORK, core=core, torso=torso, **small)
    return Recipe(disco(SMALL), dataclasses.replace(LEARNING, **settings), network)


def lived(environment, made: Recipe, iterations=3):
    """An agent that acted but never learned, and all that it stored: the network of that time can be asked again."""
    trainer = make_trainer(environment, made, TrainerConfig())
    life = jax.tree.map(lambda x: x[0], trainer.init(jax.random.key(1)).life)
    iterate = jax.jit(lambda life, key: store(*collect(trainer.streams, UNROLL, life, key)[:2]))
    for key in jax.random.split(jax.random.key(2), iterations):
        life = iterate(life, key)
    return trainer, life.learner_state, trajectories(life.replay.storage, slice(iterations * STREAMS))


def trajectories(stored: Experience, chosen: slice) -> Experience:
    """Some of the trajectories in a buffer."""
    memory = jax.tree.map(lambda x: x[chosen], stored.memory)
    return jax.tree.map(lambda x: x[:, chosen], stored._replace(memory=()))._replace(memory=memory)


def check_reading(learner, stored: Experience) -> None:
    """That learning reads what acting read: across ends of episodes, and from one unroll to the next."""
    assert stored.first[1:-1].any(), "no episode ended: nothing was tested"
    assert max(jnp.abs(leaf[STREAMS:]).max() for leaf in jax.tree.leaves(stored.memory)) > 0
    policy = learner.params.predict(learner.params.embed(stored))["policy"]
    np.testing.assert_allclose(stored.behaviour, now(policy), rtol=1e-5, atol=1e-6)
    assert jnp.ptp(policy[..., 0]) > 1e-4, "a policy that never changes cannot be read wrongly"


@pytest.mark.parametrize(
    ("cut", "core", "torso"), [pytest.param(False, "gru", "conv", marks=pytest.mark.slow), (True, "lstm", "mlp")]
)
def test_what_is_replayed_is_read_as_it_was_lived(cut, core, torso):
    _, learner, stored = lived(Counter(length=4, cut=True) if cut else CATCH, recipe(core, torso))
    check_reading(learner, stored)


def swap_after(experience, step):
    """Streams 0 and 1 exchange everything from observation `step` on."""

    def swap(x):
        return x.at[step:, 0].set(x[step:, 1]).at[step:, 1].set(x[step:, 0])

    return jax.tree.map(swap, experience._replace(memory=()))._replace(memory=experience.memory)


@pytest.mark.parametrize(
    ("cut", "core", "torso"),
    [pytest.param(False, "lstm", "conv", marks=pytest.mark.slow), (False, "gru", "mlp"), (True, "lstm", "mlp")],
)
def test_an_update_does_not_cross_the_end_of_an_episode(cut, core, torso):
    environment = Counter(length=4, cut=True) if cut else CATCH
    trainer, learner, stored = lived(environment, recipe(core, torso))
    both = trajectories(stored, slice(STREAMS, STREAMS + 2))
    if cut:  # an environment that counts looks the same in every stream
        both = both._replace(observation=jax.random.normal(jax.random.key(5), both.observation.shape))
    start = int(np.flatnonzero(both.first[:, 0])[-1])
    assert start > 2
    assert both.first[start].all()

    @jax.jit
    def params_after(experience):
        def one(_, state):
            return update(trainer.learner, trainer.rule_params, state, experience, jax.random.key(0))[0]

        state = jax.lax.fori_loop(
            0, 2, one, learner._replace(hyperparameters=trainer.numbers)
        )  # by an empty lifetime memory, half of the meta-network is shut
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state.params)])

    def change(one, other):
        """In steps: Adam makes each about as large as the learning rate, unless the gradient is almost zero (hence a quantile)."""
        apart = jnp.abs(params_after(one) - params_after(other)) / trainer.recipe.learning.learning_rate
        return np.quantile(apart, 0.99)

    assert change(both, swap_after(both, start)) < 1e-3
    assert change(both, swap_after(both, start - 2)) > 1e-1, "swapped within an episode, the update must differ"
    unmarked = both._replace(first=jnp.zeros_like(both.first))
    assert change(unmarked, swap_after(unmarked, start)) > 1e-2, "without the marks the memory must leak"


@pytest.mark.slow
def test_many_seeds_are_many_single_runs():
    config = TrainerConfig(seeds=3, total_steps=6 * STREAMS * UNROLL)
    together = make_trainer(CATCH, recipe("lstm"), config)
    start = together.init(jax.random.key(2))
    lives = [jax.tree.map(lambda x, seed=seed: jnp.copy(x[seed : seed + 1]), start.life) for seed in range(3)]
    state, metrics = finish(together, start)
    assert (state.life.learner_state.updates == 5).all()
    alone = make_trainer(CATCH, recipe("lstm"), dataclasses.replace(config, seeds=1))
    for seed, life in enumerate(lives):
        state_alone, metrics_alone = finish(alone, state._replace(life=life, iteration=jnp.int32(0)))
        np.testing.assert_array_equal(state_alone.life.replay.storage.action[0], state.life.replay.storage.action[seed])
        np.testing.assert_allclose(metrics_alone["loss"][:, 0], metrics["loss"][:, seed], rtol=1e-4)
        theirs, ours = (s.life.learner_state.params.torso.mlp.layers[0].weight for s in (state, state_alone))
        np.testing.assert_allclose(theirs[seed], ours[0], rtol=1e-3, atol=1e-4)
    assert len({float(loss) for loss in metrics["loss"][-1]}) == 3


def test_gymnasium_trains_a_recurrent_agent():
    pytest.importorskip("gymnasium")
    made = recipe("lstm", warmup=16)  # of three unrolls nothing is learned yet: they can be asked about
    trainer = make_trainer(make("CartPole-v1"), made, TrainerConfig(seeds=2, total_steps=5 * STREAMS * UNROLL))
    state = trainer.init(jax.random.key(0))
    for _ in range(trainer.warm_iterations):
        state, _ = trainer.advance(state, 1)
    start = jax.tree.map(lambda x: jnp.copy(x[1]), state.life.learner_state)
    stored = jax.tree.map(lambda x: jnp.asarray(x[1, : 3 * STREAMS]), trainer.replay.storage)  # [N, T, ...]
    in_time = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), stored._replace(memory=()))
    check_reading(start, in_time._replace(memory=stored.memory))
    state, metrics = finish(trainer, state)
    trainer.close()
    assert (state.life.learner_state.updates == 2).all()
    assert np.isfinite(metrics["loss"]).all()
    before, after = start.params.torso, state.life.learner_state.params.torso
    assert np.abs(after.mlp.layers[0].weight[1] - before.mlp.layers[0].weight).max() > 1e-3


@pytest.mark.slow
def test_the_published_rule_solves_catch(tmp_path, monkeypatch):
    """What `rulax train catch --rule disco103` promises, with the settings that it chooses by itself."""
    monkeypatch.setenv("RULAX_RULES", str(weights().parent))
    run = rulax.train("catch", rule="disco103", quiet=True, out=str(tmp_path / "run"))
    assert run.final_returns[0] >= 0.9
