"""Scores normalised as in the papers: 0 is random play, 1 a human (Atari, DMLab-30, Crafter) or the highest possible return
(ProcGen)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Scores of random play and of a human, with up to 30 no-ops at the start (Mnih et al. 2015; Wang et al. 2016).
ATARI57: dict[str, tuple[float, float]] = {
    "Alien": (227.8, 7127.7),
    "Amidar": (5.8, 1719.5),
    "Assault": (222.4, 742.0),
    "Asterix": (210.0, 8503.3),
    "Asteroids": (719.1, 47388.7),
    "Atlantis": (12850.0, 29028.1),
    "BankHeist": (14.2, 753.1),
    "BattleZone": (2360.0, 37187.5),
    "BeamRider": (363.9, 16926.5),
    "Berzerk": (123.7, 2630.4),
    "Bowling": (23.1, 160.7),
    "Boxing": (0.1, 12.1),
    "Breakout": (1.7, 30.5),
    "Centipede": (2090.9, 12017.0),
    "ChopperCommand": (811.0, 7387.8),
    "CrazyClimber": (10780.5, 35829.4),
    "Defender": (2874.5, 18688.9),
    "DemonAttack": (152.1, 1971.0),
    "DoubleDunk": (-18.6, -16.4),
    "Enduro": (0.0, 860.5),
    "FishingDerby": (-91.7, -38.7),
    "Freeway": (0.0, 29.6),
    "Frostbite": (65.2, 4334.7),
    "Gopher": (257.6, 2412.5),
    "Gravitar": (173.0, 3351.4),
    "Hero": (1027.0, 30826.4),
    "IceHockey": (-11.2, 0.9),
    "Jamesbond": (29.0, 302.8),
    "Kangaroo": (52.0, 3035.0),
    "Krull": (1598.0, 2665.5),
    "KungFuMaster": (258.5, 22736.3),
    "MontezumaRevenge": (0.0, 4753.3),
    "MsPacman": (307.3, 6951.6),
    "NameThisGame": (2292.3, 8049.0),
    "Phoenix": (761.4, 7242.6),
    "Pitfall": (-229.4, 6463.7),
    "Pong": (-20.7, 14.6),
    "PrivateEye": (24.9, 69571.3),
    "Qbert": (163.9, 13455.0),
    "Riverraid": (1338.5, 17118.0),
    "RoadRunner": (11.5, 7845.0),
    "Robotank": (2.2, 11.9),
    "Seaquest": (68.4, 42054.7),
    "Skiing": (-17098.1, -4336.9),
    "Solaris": (1236.3, 12326.7),
    "SpaceInvaders": (148.0, 1668.7),
    "StarGunner": (664.0, 10250.0),
    "Surround": (-10.0, 6.5),
    "Tennis": (-23.8, -8.3),
    "TimePilot": (3568.0, 5229.2),
    "Tutankham": (11.4, 167.6),
    "UpNDown": (533.4, 11693.2),
    "Venture": (0.0, 1187.5),
    "VideoPinball": (16256.9, 17667.9),
    "WizardOfWor": (563.5, 4756.5),
    "YarsRevenge": (3092.9, 54576.9),
    "Zaxxon": (32.5, 9173.3),
}

# Returns of random play and the largest possible or seen, on easy and on hard levels (Cobbe et al. 2020, appendix C).
PROCGEN: dict[str, dict[str, tuple[float, float]]] = {
    "Bigfish": {"Easy": (1.0, 40.0), "Hard": (0.0, 40.0)},
    "Bossfight": {"Easy": (0.5, 13.0), "Hard": (0.5, 13.0)},
    "Caveflyer": {"Easy": (3.5, 12.0), "Hard": (2.0, 13.4)},
    "Chaser": {"Easy": (0.5, 13.0), "Hard": (0.5, 14.2)},
    "Climber": {"Easy": (2.0, 12.6), "Hard": (1.0, 12.6)},
    "Coinrun": {"Easy": (5.0, 10.0), "Hard": (5.0, 10.0)},
    "Dodgeball": {"Easy": (1.5, 19.0), "Hard": (1.5, 19.0)},
    "Fruitbot": {"Easy": (-1.5, 32.4), "Hard": (-0.5, 27.2)},
    "Heist": {"Easy": (3.5, 10.0), "Hard": (2.0, 10.0)},
    "Jumper": {"Easy": (3.0, 10.0), "Hard": (1.0, 10.0)},
    "Leaper": {"Easy": (3.0, 10.0), "Hard": (1.5, 10.0)},
    "Maze": {"Easy": (5.0, 10.0), "Hard": (4.0, 10.0)},
    "Miner": {"Easy": (1.5, 13.0), "Hard": (1.5, 20.0)},
    "Ninja": {"Easy": (3.5, 10.0), "Hard": (2.0, 10.0)},
    "Plunder": {"Easy": (4.5, 30.0), "Hard": (3.0, 30.0)},
    "Starpilot": {"Easy": (2.5, 64.0), "Hard": (1.5, 35.0)},
}

# Returns of random play and of a human in DMLab-30 (Espeholt et al. 2018; the table is that of their code, scalable_agent). Two
# levels have a version for tests, whose returns these are; as there, returns in the version for training are put on the same axis.
DMLAB30: dict[str, tuple[float, float]] = {
    "rooms_collect_good_objects": (0.073, 10.0),
    "rooms_exploit_deferred_effects": (8.501, 85.65),
    "rooms_select_nonmatching_object": (0.312, 65.9),
    "rooms_watermaze": (4.065, 54.0),
    "rooms_keys_doors_puzzle": (4.135, 53.8),
    "language_select_described_object": (-0.07, 389.5),
    "language_select_located_object": (1.929, 280.7),
    "language_execute_random_task": (-5.913, 254.05),
    "language_answer_quantitative_question": (-0.33, 184.5),
    "lasertag_one_opponent_small": (-0.224, 12.65),
    "lasertag_three_opponents_small": (-0.214, 18.55),
    "lasertag_one_opponent_large": (-0.083, 18.6),
    "lasertag_three_opponents_large": (-0.102, 31.5),
    "natlab_fixed_large_map": (2.173, 36.9),
    "natlab_varying_map_regrowth": (2.989, 24.45),
    "natlab_varying_map_randomized": (7.346, 42.35),
    "skymaze_irreversible_path_hard": (0.1, 100.0),
    "skymaze_irreversible_path_varied": (14.4, 100.0),
    "psychlab_arbitrary_visuomotor_mapping": (0.163, 58.75),
    "psychlab_continuous_recognition": (0.224, 58.3),
    "psychlab_sequential_comparison": (0.129, 39.5),
    "psychlab_visual_search": (0.085, 78.5),
    "explore_object_locations_small": (3.575, 74.45),
    "explore_object_locations_large": (4.673, 65.65),
    "explore_obstructed_goals_small": (6.76, 206.0),
    "explore_obstructed_goals_large": (2.61, 119.5),
    "explore_goal_locations_small": (7.66, 267.5),
    "explore_goal_locations_large": (3.14, 194.5),
    "explore_object_rewards_few": (2.073, 77.7),
    "explore_object_rewards_many": (2.438, 106.7),
}
VERSIONS = re.compile("_(train|test)$")  # of a level of DMLab-30

CRAFTER = (2.1, 14.3)  # returns of random play and of human experts (Hafner 2021; the table is that of his repository)

PROCGEN_ID = re.compile(r"(?P<game>[A-Z][a-z]+)(?P<levels>Easy|Hard)-v0")


ENVPOOL_ATARI = "-v5"  # how EnvPool's ids of Atari games end
# Options that may have any value without making scores incomparable with the published ones: threads, observations, how a game
# starts, which actions there are and whether they are sticky, and what a lost life means to the learner.
# First those of atari/, then those of envpool/ (Atari and ProcGen).
COMPARABLE = {"threads", "size", "sticky", "noops", "life_loss", "fire", "actions", "stack"}
COMPARABLE |= {"num_threads", "repeat_action_probability", "noop_max", "zero_discount_on_life_loss", "use_fire_reset"}
COMPARABLE |= {"full_action_space", "stack_num", "num_levels", "start_level"}
COMPARABLE |= {"processes"}  # of any environment on the host
# Options that change rewards or the length of a game are allowed only with the published value. All others are refused.
AS_PUBLISHED = {"clip": False, "frames": 108_000, "skip": 4}
AS_PUBLISHED |= {"reward_clip": False, "episodic_life": False, "frame_skip": 4, "max_episode_steps": 27_000}
MODES = {0: "Easy", 1: "Hard"}  # ProcGen's `distribution_mode`, which overrides the id; other modes have no published scores
_BY_PLAIN_NAME = {game.casefold(): game for game in ATARI57}


def ends(environment: str, options: Mapping[str, Any] | None = None) -> tuple[str, float, float] | None:
    """The published axis of an environment, if there is one.

    Args:
        environment: an environment's id, such as `atari/pong`.
        options: the options it is made with. Scores stay comparable under those in `COMPARABLE`; options that change rewards or
            the length of a game, such as clip, frames and skip, must have their published values, and all others rule it out.

    Returns:
        The name of the axis and the scores that are 0 and 1 on it; None if there are no published scores to compare with.
    """
    family, _, id = environment.partition("/")
    if family == "dm_env":
        axis = DMLAB30.get(VERSIONS.sub("", str((options or {}).get("level", ""))))
        return axis and ("human-normalised", *axis)
    changed = {name: value for name, value in (options or {}).items() if name not in COMPARABLE}
    mode = changed.pop("distribution_mode", None)
    if any(name not in AS_PUBLISHED or value != AS_PUBLISHED[name] for name, value in changed.items()):
        return None
    if family == "atari" or (family == "envpool" and id.endswith(ENVPOOL_ATARI)):
        game = _BY_PLAIN_NAME.get(id.removesuffix(ENVPOOL_ATARI).replace("_", "").casefold())  # atari/ms_pacman is accepted as well
        return None if game is None else ("human-normalised", *ATARI57[game])
    if environment == "crafter/reward":
        return ("human-normalised", *CRAFTER)
    levels = PROCGEN_ID.fullmatch(id) if family == "envpool" else None
    played = MODES.get(mode) if mode is not None else levels and levels["levels"]
    if levels and played and levels["game"] in PROCGEN:
        return ("normalised", *PROCGEN[levels["game"]][played])
    return None


def normalised(environment: str, score: float, options: Mapping[str, Any] | None = None) -> float | None:
    """(score - random) / (human - random), or None where `ends` finds no published axis."""
    axis = ends(environment, options)
    return None if axis is None else (score - axis[1]) / (axis[2] - axis[1])
