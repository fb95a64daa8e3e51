"""NetHack's tasks are nle's own: who plays, how long, and when a game without progress is given up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.torsos import make_torso
from rulax.envs import make
from rulax.envs.base import is_symbols
from rulax.settings import Network
from tests.envs.adapters import host

pytest.importorskip("nle")

CHALLENGE = "nethack/NetHackChallenge-v0"


def greetings(id, seeds, **options):
    """What the game says to a newcomer, in the first game of each seed."""
    streams = make(id, keys=("message",), **options).open(1)
    shown = [streams.start(seed).observation["message"][0] for seed in seeds]
    streams.close()
    return [bytes(message.astype(np.uint8)).split(b"\0")[0].decode() for message in shown]


def test_who_plays_is_the_tasks_own_unless_said():
    roles = {text.split()[-1] for text in greetings(CHALLENGE, range(8)) if "You are a" in text}
    assert len(roles) > 2, "any role may be drawn in the Challenge"
    assert all("Monk" in text for text in greetings("nethack/NetHackScore-v0", range(8)) if "You are a" in text)
    assert any("Valkyrie" in text for text in greetings(CHALLENGE, range(8), character="val"))


def test_the_moon_depends_on_the_seed():
    """Else the same seed would be another game on another day."""
    texts = greetings(CHALLENGE, range(60))
    assert any("Full moon" in text for text in texts)
    assert not all("Full moon" in text for text in texts)
    assert texts == greetings(CHALLENGE, range(60))


def test_a_game_without_progress_is_cut_off_after_ten_thousand_steps():
    """Looking at the same screen again takes no turn; nothing shows that the game was given up."""
    from nle import nethack

    next_episode = nethack.ACTIONS.index(nethack.Command.REDRAW)
    timesteps = host.live(make(CHALLENGE), np.full((10_001, 1), next_episode))
    ended = np.flatnonzero(timesteps.episode.ended[:, 0])
    assert ended.tolist() == [10_000]
    assert timesteps.discount[10_000, 0] == 1
    np.testing.assert_array_equal(timesteps.observation["glyphs"][10_000], timesteps.observation["glyphs"][9_999])
    assert timesteps.observation["glyphs"][10_000].any()
    assert (timesteps.first[10_001, 0], timesteps.valid[10_001, 0]) == (True, False)


def test_a_game_with_progress_goes_on():
    """Resting takes turns: with a patience of 20 steps it is never cut off, while looking again is."""
    from nle import nethack

    keys = nethack.MiscDirection.WAIT, nethack.MiscAction.MORE, nethack.Command.REDRAW
    wait, more, next_episode = (nethack.ACTIONS.index(each) for each in keys)  # a message may wait for `more`
    streams = make(CHALLENGE, keys=("glyphs",)).open(2)
    for copy in streams.copies:
        assert (copy.limit, copy.patience) == (1_000_000, 10_000), "the Challenge's own"
        copy.patience = 20
    streams.start(0)
    ended = np.stack([streams.step(np.array([more if step % 2 else wait, next_episode])).episode.ended for step in range(60)])
    streams.close()
    assert ended.sum(0).tolist() == [0, 2]


def test_codes_are_symbols_and_quantities_are_not():
    from nle.env.base import NLE_SPACE_ITEMS

    quantities = ("blstats", "tty_cursor")
    shown = make("nethack/NetHackScore-v0", keys=tuple(key for key, _ in NLE_SPACE_ITEMS)).observation
    assert {key for key, leaf in shown.items() if not is_symbols(leaf)} == set(quantities)
    assert all(shown[key].dtype == np.float32 for key in quantities)


def test_keys_as_the_command_line_gives_them():
    assert set(make("nethack/NetHackScore-v0", keys="glyphs,message").observation) == {"glyphs", "message"}
    assert set(make("nethack/NetHackScore-v0", keys="glyphs").observation) == {"glyphs"}


def test_maps_of_symbols_are_stacked_and_numbers_are_not():
    environment = make("nethack/NetHackScore-v0", stack=4)
    assert {key: leaf.shape for key, leaf in environment.observation.items()} == {"glyphs": (21, 79, 4), "blstats": (39,)}
    actions = np.random.default_rng(0).integers(0, 23, (12, 2))
    stacked, plain = host.live(environment, actions), host.live(make("nethack/NetHackScore-v0"), actions)
    host.assert_declared(environment, stacked)
    shown, glyphs = stacked.observation["glyphs"], plain.observation["glyphs"]
    for age in range(4):
        np.testing.assert_array_equal(shown[age:, ..., 3 - age], glyphs[: len(glyphs) - age])
        assert not shown[:age, ..., 3 - age].any()
    np.testing.assert_array_equal(stacked.observation["blstats"], plain.observation["blstats"])


def test_an_agent_is_not_blinded_by_the_count_of_turns():
    """Measured before: after 20,000 turns the status line moved a fresh agent's reading a thousand times as far as another map."""
    from nle import nethack

    environment = make("nethack/NetHackScore-v0")
    torso = make_torso(jax.random.key(0), environment.observation, Network(hidden=(64,), activation="relu"))
    shown = [environment.open(1).start(seed).observation for seed in (0, 1)]

    def moved(one, other):
        return float(jnp.linalg.norm(torso(one) - torso(other)))

    late = environment.open(1).copies[0]
    late.reset(0)
    raw = dict(zip(late.environment._observation_keys, late.environment.last_observation, strict=True))
    raw = {key: np.array(raw[key])[None] for key in environment.observation}
    now = environment.preprocess(raw)
    raw["blstats"][0, nethack.NLE_BL_TIME], raw["blstats"][0, nethack.NLE_BL_CONDITION] = 20_000, nethack.BL_MASK_RIDE
    later = environment.preprocess(raw)
    assert np.flatnonzero(now["blstats"] != later["blstats"]).tolist() == [nethack.NLE_BL_TIME, 26 + 12]
    assert later["blstats"][0, -1] == 1
    another_map = now | {"glyphs": shown[1]["glyphs"]}
    assert moved(now, later) < moved(now, another_map)


def test_death_is_the_end_and_a_new_game_begins():
    """Walking about at random, a tourist dies sooner or later: nothing follows it, and its score is the game's."""
    environment = make("nethack/NetHackScore-v0", character="tou", max_episode_steps=100_000)
    timesteps = host.live(environment, np.random.default_rng(0).integers(0, environment.num_actions, (6_000, 1)))
    dead = np.flatnonzero(timesteps.episode.ended[:, 0])
    assert len(dead)
    np.testing.assert_array_equal(timesteps.discount[dead, 0], 0)
    assert timesteps.first[dead, 0].all()
    assert timesteps.valid.all()
    turns = timesteps.observation["blstats"][:, 0, 20]
    assert (turns[dead] < np.log(3)).all(), "the first observation of the next game"
