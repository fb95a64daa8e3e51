"""Scores on the papers' axes."""

import importlib.util

import pytest

from rulax.evaluation.normalised import AS_PUBLISHED, ATARI57, COMPARABLE, PROCGEN, ends, normalised


def test_random_play_is_zero_and_the_other_end_is_one():
    for game, (low, high) in ATARI57.items():
        assert (normalised(f"atari/{game}", low), normalised(f"atari/{game}", high)) == (0, 1)
        assert low < high
    for game, levels in PROCGEN.items():
        for name, (low, high) in levels.items():
            assert normalised(f"envpool/{game}{name}-v0", (low + high) / 2) == pytest.approx(0.5)
    assert (len(ATARI57), len(PROCGEN)) == (57, 16)


def test_published_means_come_out():
    """DQN on Breakout and Pong (Mnih et al. 2015, extended data table 2): 1327 % and 132 % of a human, by the scores of that
    paper, which differ a little from today's: 401.2 of 31.8 and 18.9 of 9.3. By ours they must be near."""
    assert normalised("atari/Breakout", 401.2) == pytest.approx(13.87, abs=0.01)
    assert normalised("atari/Pong", 18.9) == pytest.approx(1.122, abs=0.001)


def test_where_there_is_no_axis_nothing_is_claimed():
    assert ends("catch") is None
    assert normalised("atari/Adventure", 1.0) is None
    assert normalised("envpool/CartPole-v1", 1.0) is None


def test_a_game_has_one_axis_under_all_its_names_and_none_where_a_return_is_not_its_score():
    axis = ("human-normalised", 307.3, 6951.6)
    assert all(ends(name) == axis for name in ("atari/MsPacman", "atari/ms_pacman", "atari/mspacman", "envpool/MsPacman-v5"))
    assert ends("atari/MsPacman", {"sticky": 0.25, "clip": False}) == axis
    kept = {"threads": 1, "sticky": 0.25, "noops": 0, "life_loss": True, "fire": True, "actions": "full"}
    assert ends("atari/MsPacman", kept | {"frames": 108_000, "skip": 4}) == axis
    for name, value in {"clip": True, "frames": 18_000, "skip": 1, "reward": 2}.items():
        assert ends("atari/MsPacman", kept | {name: value}) is None, name
    for name, value in {"episodic_life": True, "reward_clip": True, "max_episode_steps": 1000}.items():
        assert ends("envpool/MsPacman-v5", {name: value}) is None, name
    assert ends("envpool/MsPacman-v5", {"num_threads": 2, "max_episode_steps": 27_000}) == axis


def test_procgens_axis_is_that_of_the_levels_that_are_played():
    easy, hard = (("normalised", *PROCGEN["Starpilot"][levels]) for levels in ("Easy", "Hard"))
    assert ends("envpool/StarpilotHard-v0", {"stack": 4, "num_levels": 500}) == hard != easy
    assert ends("envpool/StarpilotHard-v0", {"distribution_mode": 0}) == easy
    assert ends("envpool/StarpilotEasy-v0", {"distribution_mode": 1}) == hard
    assert ends("envpool/StarpilotEasy-v0", {"distribution_mode": 2}) is None
    assert ends("envpool/StarpilotEasy-v0", {"use_sequential_levels": True}) is None


def test_options_are_judged_by_the_adapters_own_names_and_defaults():
    from rulax.envs.adapters.atari import DEFAULTS

    assert set(DEFAULTS) <= COMPARABLE | set(AS_PUBLISHED)
    assert {name: DEFAULTS[name] for name in AS_PUBLISHED if name in DEFAULTS} == {"clip": False, "frames": 108_000, "skip": 4}
    assert not COMPARABLE & set(AS_PUBLISHED)


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs pip install 'rulax[atari]'")
def test_every_game_of_the_table_can_be_played():
    from rulax.envs.adapters.atari import ids

    assert set(ATARI57) <= set(ids())
