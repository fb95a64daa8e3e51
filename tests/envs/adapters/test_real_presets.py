"""The small presets of the paper's benchmarks make updates in the environments that they are for; DMLab's cannot be had."""

import importlib.util

import jax
import pytest

from rulax.commands.train.settings import build_train
from rulax.commands.train.setup import prepare
from rulax.envs import make
from rulax.envs.catalogue import adapter_families
from rulax.rules.base import Recipe
from rulax.rules.disco import LEARNING, NETWORK, disco
from tests.commands.test_presets import learned, shrunken
from tests.metanet.environments import SMALL

ENVIRONMENTS = {  # with an end within the few steps of the test, where there is an option for it
    "paper-atari-mini": ("atari/Pong", {"frames": 40, "threads": 1}),
    "paper-crafter-mini": ("crafter/reward", {"area": (32, 32), "length": 5}),
    "paper-nethack": ("nethack/NetHackChallenge-v0", {"max_episode_steps": 5}),
    "paper-procgen-mini": ("envpool/CoinrunEasy-v0", {"num_threads": 1}),
    "paper-sokoban-mini": ("envpool/Sokoban-v0", {"num_threads": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
@jax.default_prng_impl("unsafe_rbg")  # compiles in less time than JAX's own
def test_it_learns_from_the_real_environment(name):
    environment, options = ENVIRONMENTS[name]
    if importlib.util.find_spec(adapter_families()[environment.partition("/")[0]].package) is None:
        pytest.skip(f"the package of {environment} is not installed")
    own = build_train({"preset": name})
    assert own.env in ("", None, environment)
    config, _ = shrunken(name)
    prepared = prepare(config, make(environment, **own.env_options, **options), Recipe(disco(SMALL), LEARNING, NETWORK))
    learned(prepared.trainer, prepared.trainer.init(jax.random.key(0)))
