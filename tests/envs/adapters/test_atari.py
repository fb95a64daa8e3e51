"""What the Atari adapter adds to ale-py: names, options, and a lost life as the end of all value."""

import numpy as np
import pytest

from rulax.envs.adapters import atari
from tests.envs.adapters import host

pytest.importorskip("ale_py")


def test_a_lost_life_is_worth_nothing_but_the_game_goes_on():
    actions = np.random.default_rng(0).integers(0, 4, (220, 1))
    plain = host.live(atari.make("breakout", threads=1), actions)
    lives = host.live(atari.make("breakout", threads=1, life_loss=True), actions)
    np.testing.assert_array_equal(plain.observation, lives.observation)
    for field in ("ended", "total", "length"):  # of whole games
        np.testing.assert_array_equal(getattr(plain.episode, field), getattr(lives.episode, field))
    np.testing.assert_array_equal(plain.valid, lives.valid)
    over = np.flatnonzero(plain.episode.ended)[0]
    lost = np.flatnonzero(lives.discount[: over + 1, 0] == 0)
    assert len(lost) == 5, "Breakout has five lives, and the last one ends the game"
    assert lost[-1] == over
    np.testing.assert_array_equal(np.flatnonzero(lives.first[: over + 1, 0]), [0, *lost[:-1]])
    np.testing.assert_array_equal(np.flatnonzero(plain.discount[: over + 1, 0] == 0), [over])


def test_actions_and_names():
    assert len(atari.ids()) >= 100
    assert {"Pong", "MsPacman", "PrivateEye"} <= set(atari.ids())
    assert atari.make("MsPacman").rom == atari.make("ms_pacman").rom == "ms_pacman"
    assert (atari.make("Pong").num_actions, atari.make("Pong", actions="full").num_actions) == (6, 18)


def test_rewards_are_clipped_on_demand():
    """Every hit of an alien ship pays 5 to 30 in Space Invaders."""
    actions = np.ones((150, 1), np.int64)  # FIRE
    plain, clipped = (host.live(atari.make("SpaceInvaders", threads=1, clip=clip), actions) for clip in (False, True))
    assert plain.reward.max() >= 5
    np.testing.assert_array_equal(clipped.reward, np.sign(plain.reward))


def test_frames_move_through_the_channels():
    timesteps = host.live(atari.make("breakout", threads=1), np.random.default_rng(0).integers(0, 4, (20, 1)))
    seen = timesteps.observation[:, 0]  # [T+1, 84, 84, 4], the newest frame last
    np.testing.assert_array_equal(seen[5, ..., 1:], seen[6, ..., :3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stick": 0.25}, "'atari/Pong' has no option 'stick'; it has sticky, actions"),
        ({"sticky": 2}, "sticky is a probability below 1"),
        ({"actions": "all"}, "actions must be minimal or full"),
        ({"frames": 0}, "frames must be at least 1"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        atari.make("Pong", **options)
    with pytest.raises(ValueError, match="unknown Atari environment 'Pongg'; did you mean 'Pong'"):
        atari.make("Pongg")
