"""Every preset of a benchmark makes a real update: its torso, its rule and its way of replaying, on what its environment shows.

Only sizes are smaller. The environment shows noise in the shapes of the real one, so that no extra is needed.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from rulax.commands.discover.settings import build_discover
from rulax.commands.preset_files import preset_names
from rulax.commands.settings import override
from rulax.commands.train.settings import build_train
from rulax.commands.train.setup import prepare
from rulax.discovery.settings import Discovery
from rulax.envs.actions import one_of
from rulax.envs.adapters.stacking import stack
from rulax.envs.adapters.streams import CopiedEnvironment
from rulax.rules.base import Recipe
from rulax.rules.disco import LEARNING, NETWORK, disco
from tests.metanet.environments import SMALL

IMAGE = jax.ShapeDtypeStruct((64, 64, 3), np.uint8)
SHOWN = {
    "atari": jax.ShapeDtypeStruct((84, 84, 1), np.uint8),
    "crafter": IMAGE,
    "dmlab": jax.ShapeDtypeStruct((72, 96, 3), np.uint8),
    "nethack": {"blstats": jax.ShapeDtypeStruct((39,), np.float32), "glyphs": jax.ShapeDtypeStruct((21, 79), np.int16)},
    "procgen": IMAGE,
    "sokoban": jax.ShapeDtypeStruct((10, 10, 10), np.float32),
}
STACKED = {"atari": 4}  # by the environment itself, rather than by the preset
STREAMS, UNROLL = 2, 3
SIZES = {"streams": STREAMS, "unroll": UNROLL, "capacity": 8, "action_model": 8, "symbols": 50, "embedding": 4}
# Each takes 10 to 30 seconds to compile. Always: both rules, fresh and replayed data, frames, symbols, strided and residual torsos.
ALWAYS = ("atari-ppo-mini", "paper-nethack-mini")
PRESETS = [name for name in preset_names() if any(environment in name for environment in SHOWN)]


class Noise:
    """One copy of an environment that shows noise, and ends after five steps."""

    def __init__(self, shown):
        self.shown, self.steps = shown, 0

    def reset(self, seed):
        self.random = self.random if seed is None else np.random.default_rng(seed)
        self.steps = 0
        return jax.tree.map(lambda leaf: self.random.integers(0, 50, leaf.shape).astype(leaf.dtype), self.shown)

    def step(self, action):
        steps, observation = self.steps + 1, self.reset(None)
        self.steps = steps
        return observation, float(self.random.normal()), steps >= 5, False

    def close(self):
        pass


def environment(name, options):
    """What the preset's environment shows, with the preset's stack of frames around it."""
    kind = next(each for each in SHOWN if each in name)
    noise = CopiedEnvironment(kind, one_of(4), SHOWN[kind], lambda: Noise(SHOWN[kind]))
    return stack(kind, noise, options.get("stack", STACKED.get(kind, 1)))


def shrunken(name):
    """The preset as a configuration, with everything that is a size made small; and the options of its environment."""
    preset = build_train({"preset": name})
    own = preset.overrides
    small = {key: [4] * len(own[key]) for key in ("channels", "hidden", "action_hidden") if key in own}
    small |= {"batch": 4, "warmup": 4} if own.get("replay") else {"batch": STREAMS}
    small |= {key: min(2, own[key]) for key in ("minibatches", "warmup_updates") if key in own}
    return build_train({"preset": name, "env": name, "steps": 4 * STREAMS * UNROLL, **SIZES, **small}), preset.env_options


def learned(trainer, state):
    """The state at the end of a short life in which something was learned."""
    losses = []
    while not trainer.done(state):
        state, metrics = trainer.advance(state)
        losses += metrics["loss"][:, 0].tolist()
    trainer.close()
    assert int(state.life.learner_state.updates[0]) >= 2
    assert np.isfinite(losses[trainer.warm_iterations :]).all()
    return state


def test_a_preset_named_after_disco103s_evaluation_trains_disco103():
    assert build_train({"preset": "reference-catch"}).rule == "disco103"
    assert build_train({"preset": "reference-catch", "rule": "ppo"}).rule == "ppo"


def test_the_suite_of_the_notebook_has_its_numbers():
    """colabs/meta_train.ipynb of google-deepmind/disco_rl."""
    config = build_discover({"suite": "catch-notebook"})
    assert (config.steps, config.envs, config.validation, config.init) == (800, ("catch:rows=5,columns=5",), (), "")
    settings = override(Discovery(), config.overrides)
    assert (settings.agents, settings.window, settings.validation_unroll) == (2, 2, 32)
    assert (settings.collection, settings.rule_init, settings.estimator) == ("before_window", "reference", "backprop")
    assert (settings.meta_optimiser, settings.meta_learning_rate, settings.meta_clip) == ("mean", 5e-4, 0.0)
    assert (settings.critic_hidden, settings.critic_activate_last, settings.critic_head_std) == ((256, 256), False, 1e-2)
    assert (settings.critic_learning_rate, settings.critic_discount, settings.critic_trace) == (1e-3, 0.99, 0.96)
    assert (settings.critic_learns_from, settings.critic_statistics) == ("updates", "learned")
    costs = (settings.policy_entropy_cost, settings.prediction_entropy_cost, settings.target_kl_cost, settings.target_mean_cost)
    assert costs == (1e-2, 1e-3, 1e-2, 1e-3)
    learning, network = override(LEARNING, config.overrides), override(NETWORK, config.overrides)
    assert (learning.streams, learning.unroll, learning.replay, learning.batch) == (32, 16, 0.0, 0)
    assert (learning.learning_rate, learning.clip_update, learning.slow_decay) == (5e-4, 1.0, 0.9)
    assert (network.hidden, network.activate_last, network.action_model, network.action_hidden) == ((512, 512), False, 256, (256,))


def test_every_benchmark_of_the_paper_is_here():
    assert [name for name in preset_names() if name.startswith("paper-")] == [name for name in PRESETS if "ppo" not in name]
    assert {name.removeprefix("paper-").removesuffix("-mini") for name in PRESETS} == {*SHOWN, "atari-ppo"}
    assert set(ALWAYS) <= set(PRESETS)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in ALWAYS else pytest.mark.slow) for n in PRESETS])
@jax.default_prng_impl("unsafe_rbg")  # compiles in less time than JAX's own
def test_it_makes_an_update(name):
    config, options = shrunken(name)
    recipe = Recipe(disco(SMALL), LEARNING, NETWORK) if config.rule == "disco103" else None  # its weights may not be here
    prepared = prepare(config, environment(name, options), recipe)
    state = prepared.trainer.init(jax.random.key(0))
    before = jax.tree.map(np.asarray, state.life.learner_state.params)
    state = learned(prepared.trainer, state)
    olds, news = jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(state.life.learner_state.params)
    for (path, old), new in zip(olds, news, strict=True):
        assert np.isfinite(new).all(), jax.tree_util.keystr(path)
        assert not np.array_equal(old, new), f"never learned: {jax.tree_util.keystr(path)}"
