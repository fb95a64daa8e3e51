"""Scores on the papers' axes."""

import importlib.util

import pytest

from rulax.evaluation.normalised import ATARI57, PROCGEN, ends, normalised


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
    assert ends("atari/MsPacman", {"clip": True}) is None
    assert ends("envpool/MsPacman-v5", {"episodic_life": True}) is None


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs pip install 'rulax[atari]'")
def test_every_game_of_the_table_can_be_played():
    from rulax.envs.adapters.atari import ids

    assert set(ATARI57) <= set(ids())
