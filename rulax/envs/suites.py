"""Suites: groups of environments to compare on, by one name, with what an agent may spend there. Does not import JAX.

A suite's published scores are in `evaluation/published.py`, its axes in `evaluation/normalised.py`. docs/suites.md has a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rulax.envs.registry import families


class Budget(NamedTuple):
    """What each agent may spend, and how large it is."""

    steps: int  # decisions of one agent: where a decision is shown four frames, a quarter of the frames
    seeds: int
    presets: tuple[str, ...] = ()  # of `rulax train`: settings of the rules that they name, networks for all others


class Suite(NamedTuple):
    """Several environments, in the order in which they are shown."""

    summary: str
    environments: tuple[str, ...]
    budgets: Mapping[str, Budget] = {}
    episodes: int = 0  # that each trained agent plays for its score; 0: its score is the return of training
    needs: tuple[str, str] = ("", "")  # a package that no extra of ours installs, and what to do about it


def _gymnax(ending: str, *names: str) -> tuple[str, ...]:
    return tuple(f"gymnax/{name}-{ending}" for name in names)


# Written out, because a suite must be the same whatever version of ale-py is installed, or none.
_ATARI = (
    "Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling Boxing Breakout Centipede "
    "ChopperCommand CrazyClimber Defender DemonAttack DoubleDunk Enduro FishingDerby Freeway Frostbite Gopher Gravitar Hero "
    "IceHockey Jamesbond Kangaroo Krull KungFuMaster MontezumaRevenge MsPacman NameThisGame Phoenix Pitfall Pong PrivateEye Qbert "
    "Riverraid RoadRunner Robotank Seaquest Skiing Solaris SpaceInvaders StarGunner Surround Tennis TimePilot Tutankham UpNDown "
    "Venture VideoPinball WizardOfWor YarsRevenge Zaxxon"
)
_ATARI_5 = "BattleZone DoubleDunk NameThisGame Phoenix Qbert"  # Aitchison et al. 2023
_PROCGEN = (
    "Bigfish Bossfight Caveflyer Chaser Climber Coinrun Dodgeball Fruitbot Heist Jumper Leaper Maze Miner Ninja Plunder Starpilot"
)
_LEVELS = (  # of DMLab-30, as agents are trained on them
    "rooms_collect_good_objects_train rooms_exploit_deferred_effects_train rooms_select_nonmatching_object rooms_watermaze "
    "rooms_keys_doors_puzzle language_select_described_object language_select_located_object language_execute_random_task "
    "language_answer_quantitative_question lasertag_one_opponent_small lasertag_three_opponents_small lasertag_one_opponent_large "
    "lasertag_three_opponents_large natlab_fixed_large_map natlab_varying_map_regrowth natlab_varying_map_randomized "
    "skymaze_irreversible_path_hard skymaze_irreversible_path_varied psychlab_arbitrary_visuomotor_mapping "
    "psychlab_continuous_recognition psychlab_sequential_comparison psychlab_visual_search explore_object_locations_small "
    "explore_object_locations_large explore_obstructed_goals_small explore_obstructed_goals_large explore_goal_locations_small "
    "explore_goal_locations_large explore_object_rewards_few explore_object_rewards_many"
)
_ATARI_MINI, _ATARI_PAPER = ("paper-atari-mini", "atari-ppo-mini"), Budget(50_000_000, 2, ("paper-atari",))

# `paper` is what Oh et al. (2025) plot, and for MinAtar what Young & Tian (2019) do; `mini` is about an hour on two cores with two
# rules, and no claim to any score.
SUITES = {
    "atari57": Suite(
        "57 Atari games, 200 million frames",
        tuple(f"atari/{game}" for game in _ATARI.split()),
        {"paper": _ATARI_PAPER, "mini": Budget(20_000, 1, _ATARI_MINI)},
    ),
    "atari5": Suite(
        "five Atari games that predict the median of 57",
        tuple(f"atari/{game}" for game in _ATARI_5.split()),
        {"paper": _ATARI_PAPER, "mini": Budget(200_000, 1, _ATARI_MINI)},
    ),
    "procgen16": Suite(
        "16 games with levels of their own each time: trained on 500, scored on all others",
        tuple(f"envpool/{game}Hard-v0:num_levels=500" for game in _PROCGEN.split()),
        {"paper": Budget(50_000_000, 2, ("paper-procgen",)), "mini": Budget(50_000, 1, ("paper-procgen-mini",))},
        episodes=100,
    ),
    "crafter": Suite(
        "Crafter, by the success in each of its 22 achievements",
        ("crafter/reward",),
        {"paper": Budget(20_000_000, 3, ("paper-crafter",)), "mini": Budget(100_000, 3, ("paper-crafter-mini",))},
        episodes=100,
    ),
    "nethack": Suite(
        "the NetHack Challenge, by its score",
        ("nethack/NetHackChallenge-v0",),
        {"paper": Budget(2_000_000_000, 3, ("paper-nethack",)), "mini": Budget(100_000, 3, ("paper-nethack-mini",))},
    ),
    "sokoban": Suite(
        "Sokoban on Boxoban's levels",
        ("envpool/Sokoban-v0",),
        {"paper": Budget(100_000_000, 5, ("paper-sokoban",)), "mini": Budget(200_000, 3, ("paper-sokoban-mini",))},
    ),
    "dmlab30": Suite(
        "the 30 levels of DeepMind Lab",
        tuple(f"dm_env/my_lab:Lab:level={level}" for level in _LEVELS.split()),
        {"paper": Budget(75_000_000, 2, ("paper-dmlab",)), "mini": Budget(10_000, 1, ("paper-dmlab-mini",))},
        needs=("deepmind_lab", "DeepMind Lab, which is on no package index: build it from source, as docs/adapters/dm_env.md says"),
    ),
    "minatar": Suite(
        "small Atari games, in gymnax",
        _gymnax("MinAtar", "Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"),
        {"paper": Budget(5_000_000, 30), "mini": Budget(500_000, 3)},
    ),
    "classic": Suite(
        "four classic control tasks",
        ("cartpole", "mountain_car", "acrobot", "pendulum"),
        {"mini": Budget(250_000, 5)},
    ),
    "bsuite": Suite(
        "one skill each, in gymnax",
        _gymnax("bsuite", "Catch", "DeepSea", "DiscountingChain", "MemoryChain", "SimpleBandit", "UmbrellaChain"),
        {"mini": Budget(100_000, 5)},
    ),
    "grids": Suite("all grid environments", tuple(entry.name for entry in families()["grid"]), {"mini": Budget(100_000, 3)}),
}
