"""The core episodic_lstm under every rule whose agent can remember, in compiled and host environments, saved and resumed."""

import gymnasium
import jax
import numpy as np
import pytest

from rulax.commands.build import make_recipe
from rulax.envs import make
from rulax.envs.own import environment_of
from rulax.learning.train import CompiledTrainer, TrainerConfig, make_trainer
from rulax.records import checkpoint

OPTIONS = {"arms": 3, "pulls": 2, "barcodes": 2, "repeats": 2, "bits": 2}
NETWORK = {"core": "episodic_lstm", "core_size": 4, "core_rows": 3, "hidden": (4,)}
SMALL = {"streams": 2, "unroll": 5, "minibatches": 1, "epochs": 1}
RULES = ["policy_gradient", "actor_critic", "ppo", "ppo_targets", "q_learning", "dqn", "diayn", "disco", "rulax5"]


def recipe_of(rule, **others):
    return make_recipe(rule, {}, NETWORK | SMALL | others)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_with_memory_takes_it(rule):
    """One iteration is traced, with the shapes of memories that replay has to hold as well."""
    recipe = make_recipe(
        rule, {}, NETWORK | SMALL | {"action_model": 4, "action_hidden": (4,), "batch": 2, "capacity": 4, "warmup": 0}
    )
    environment = make("bandit/barcode", **OPTIONS | recipe.env_options)
    trainer = CompiledTrainer(environment, recipe, TrainerConfig(seeds=2, total_steps=1000))
    trainer.check()
    memory = trainer.skeleton().life.actor.memory
    assert memory.table.values.shape == (2, 2, 3, 4)  # agents, streams, rows, cells
    assert memory.table.keys.shape == (2, 2, 3, 2)


class Doors(gymnasium.Env):
    """Two rooms in turn, each with a sign; in each of them one of two doors pays. An episode is three steps, cut off."""

    def __init__(self):
        box = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"before": box, "context": box})
        self.action_space = gymnasium.spaces.Discrete(2)
        self.room = 0

    def seen(self, before=(0, 0)):
        return {"before": np.array(before, np.float32), "context": np.eye(2, dtype=np.float32)[self.room]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.steps = 1 - self.room, 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        reward = float(action == self.room)
        return self.seen((action, reward)), reward, False, self.steps == 3, {}


def test_a_checkpoint_holds_the_tables(tmp_path):
    """A run that goes on from a file ends like the one that was never interrupted, bit by bit."""
    trainer = CompiledTrainer(make("bandit/barcode", **OPTIONS), recipe_of("ppo"), TrainerConfig(total_steps=60))
    state, path = trainer.init(jax.random.key(0)), tmp_path / "checkpoint.safetensors"
    while int(state.iteration) < 3:
        state, _ = trainer.advance(state, most=1)
    assert state.life.actor.memory.table.values.any()  # there is something to lose
    checkpoint.save(path, state, {}, {})
    whole = finish(trainer, state)
    saved = checkpoint.unpack(checkpoint.load(path), trainer.skeleton(), path)
    one, other = checkpoint.pack(whole), checkpoint.pack(finish(trainer, trainer.resume(saved)))
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_context_of_gymnasiums_is_one():
    """Nothing above an episode starts in a host environment, so its tables last: both rooms are in them, each in a row."""
    trainer = make_trainer(environment_of(Doors, "doors", {}), recipe_of("ppo"), TrainerConfig(total_steps=60))
    try:
        state = finish(trainer, trainer.init(jax.random.key(0)))
        table = state.life.actor.memory.table
        assert np.asarray(table.valid).sum(-1).tolist() == [[2, 2]]  # one agent, two streams
        assert {tuple(key) for key in np.asarray(table.keys)[0, 0, :2].tolist()} == {(1.0, 0.0), (0.0, 1.0)}
        assert np.asarray(table.values)[:, :, :2].any(-1).all()
    finally:
        trainer.close()


def finish(trainer, state):
    while not trainer.done(state):
        state, _ = trainer.advance(state)
    return state
