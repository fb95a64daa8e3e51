"""Which environments are the same one: a held-out score would otherwise be one of training."""

import pytest

from rulax.envs.identity import same
from rulax.envs.registry import make

pytest.importorskip("gymnasium")


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("catch", "catch:rows=10", True),
        ("catch", "catch:rows=8", False),
        ("catch:tasks=3", "catch:tasks=4", False),
        ("CartPole-v1", "gymnasium/CartPole-v1", True),
        ("CartPole-v1", "CartPole-v1:max_episode_steps=500", True),
        ("CartPole-v1", "CartPole-v1:max_episode_steps=50", False),
        ("CartPole-v1", "CartPole-v1:processes=2", True),
        ("CartPole-v1", "CartPole-v1:with_noise=2", False),
        ("CartPole-v1", "Acrobot-v1", False),
        ("Pendulum-v1", "Pendulum-v1:bins=5", False),
        ("CartPole-v1:randomise=length=0.4:0.6", "CartPole-v1", False),
        ("tests.envs.failing:Fragile", "tests.envs.failing:RulaxFragile-v0", False),  # without and with its time limit
        ("tests.envs.failing:Fragile", "tests.envs.failing:Fragile", True),
    ],
)
def test_environments_are_compared_by_what_they_are_made_of(one: str, other: str, wanted: bool) -> None:
    assert same(make(one), make(other)) == wanted
    assert same(make(other), make(one)) == wanted


@pytest.mark.parametrize(
    ("package", "one", "other", "wanted"),
    [
        ("gymnax", "gymnax/CartPole-v1", "gymnax/CartPole-v1", True),
        ("gymnax", "gymnax/CartPole-v1", "gymnax/Acrobot-v1", False),
        ("crafter", "crafter/reward", "crafter/reward:length=10000", True),
        ("crafter", "crafter/reward:stack=2", "crafter/reward:stack=3", False),
        ("ale_py", "atari/Pong", "atari/pong:threads=2", True),
        ("ale_py", "atari/Pong", "atari/Pong:size=42", False),
        ("ale_py", "atari/Pong", "atari/Boxing", False),
        ("envpool", "envpool/Catch-v0", "envpool/Catch-v0:num_threads=2", True),
    ],
)
def test_those_of_other_libraries_too(package: str, one: str, other: str, wanted: bool) -> None:
    pytest.importorskip(package)
    assert same(make(one), make(other)) == wanted


def test_a_function_may_wait_for_a_variable() -> None:
    def make_function(ready: bool):
        def function():
            return later

        if ready:
            later = 1
        return function

    assert same(make_function(False), make_function(False))
    assert not same(make_function(False), make_function(True))
