"""Options that a package would take without a word, or fail of in the middle of something, are one sentence."""

import importlib.util

import pytest

from rulax.envs import make
from rulax.envs.catalogue import adapter_families

CHARACTER = "character must be @ .* as in mon-hum-neu-mal, not"
REFUSED = [
    ("nethack/NetHackScore-v0", {"max_episode_steps": 0}, "max_episode_steps must be at least 1, not 0"),
    ("nethack/NetHackScore-v0", {"character": "foo"}, f"{CHARACTER} 'foo'"),
    ("nethack/NetHackScore-v0", {"character": "mon-val"}, f"{CHARACTER} 'mon-val'"),
    ("minigrid/MiniGrid-Empty-5x5-v0", {"max_steps": 0}, "max_steps must be a whole number of at least 1, not 0"),
    ("minigrid/MiniGrid-Empty-5x5-v0", {"max_steps": "long"}, "max_steps must be a whole number of at least 1, not 'long'"),
    ("crafter/reward", {"size": (0, 0)}, r"size must be two whole numbers of at least 1, .* not \(0, 0\)"),
    ("crafter/reward", {"area": 5}, r"area must be two whole numbers of at least 1, .* not \(5,\)"),
    ("crafter/reward", {"size": (17, 64)}, "size must be at least twice the view of 9,9, not 17,64"),
    ("crafter/reward", {"view": (9, 2)}, "a view 9 wide must be more than 2 high"),
    ("crafter/reward", {"length": -1}, "length must not be negative, not -1"),
    ("envpool/Pong-v5", {"max_episode_steps": 0}, "max_episode_steps must be at least 1, not 0"),
    ("envpool/CoinrunEasy-v0", {"max_episode_steps": 9}, "has no option 'max_episode_steps'"),
    ("envpool/CoinrunEasy-v0", {"env_name": "maze"}, "has no option 'env_name'"),
    ("envpool/CoinrunEasy-v0", {"num_levels": -1}, "num_levels must not be negative, not -1"),
    ("envpool/CoinrunEasy-v0", {"distribution_mode": 9}, r"must be one of 0 \(easy\), 1 \(hard\), 20 \(exploration\), not 9"),
    ("envpool/MazeHard-v0", {"distribution_mode": 2}, r"must be one of 0 \(easy\), 1 \(hard\), 10 \(memory\), 20 .*, not 2"),
]
TAKEN = [
    ("nethack/NetHackScore-v0", {"character": "Val-Hum-Fem-Law", "max_episode_steps": 1}),
    ("minigrid/MiniGrid-Empty-5x5-v0", {"max_steps": 1}),
    ("crafter/reward", {"size": (6, 18), "view": (3, 9), "area": (5, 5), "length": 0}),
    ("envpool/MazeHard-v0", {"distribution_mode": 10, "num_levels": 500, "start_level": 3, "num_threads": 1}),
]


def need(name):
    package = adapter_families()[name.split("/")[0]].package
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize(("name", "options", "sentence"), REFUSED, ids=str)
def test_it_is_refused(name, options, sentence):
    need(name)
    with pytest.raises(ValueError, match=f"^'{name}'.*{sentence}"):
        make(name, **options)


@pytest.mark.parametrize(("name", "options"), TAKEN, ids=str)
def test_what_is_just_possible_works(name, options):
    need(name)
    streams = make(name, **options).open(1)
    streams.start(0)
    for _ in range(30):
        timestep = streams.step([0])
    streams.close()
    assert timestep.reward.shape == (1,)
