"""Scores that others have published in the environments of a suite, each with its source and the budget it had.

A figure without a source is left out, so some agents have scores in some games only, or none but over the whole suite. Budgets are
decisions of the agent: where a decision is shown four frames, a quarter of the frames. docs/suites.md says what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rulax.envs.suites import SUITES
from rulax.evaluation.normalised import ATARI57, CRAFTER


class Published(NamedTuple):
    """What one agent achieved in a suite."""

    agent: str
    source: str
    steps: int | None = None  # None: no agent that was trained, such as a human
    returns: Mapping[str, float] = {}  # by environment, without options
    scores: Mapping[str, float] = {}  # `iqm`, `median` or `mean` over the whole suite, on its published axis
    achievements: float | None = None  # Crafter's score, in per cent
    note: str = ""  # what makes it another thing than what is measured here


NATURE = "Oh et al. 2025 (Nature 648), text"
FIGURE = "Oh et al. 2025 (Nature 648), read off a figure"
HESSEL = "Hessel et al. 2018, as listed by Aitchison et al. 2023 (maitchison/Atari-5)"
AITCHISON = "the dataset of Aitchison et al. 2023 (maitchison/Atari-5)"
HUMAN = "Mnih et al. 2015; Wang et al. 2016"
HAFNER = "the scoreboard of Hafner 2021 (danijar/crafter)"
GREENQUIST = "README of nickgreenquist/deep-rl-from-scratch, unreviewed"
YOUNG = "Young & Tian 2019, read off their curves by nickgreenquist/deep-rl-from-scratch"
SMALL = "six actions and sticky ones, where gymnax has fewer actions, none of them sticky, and shorter episodes"

FRAMES_200M, FRAMES_20B = 50_000_000, 5_000_000_000
# Of DQN and Rainbow, up to 30 no-ops at the start. The source has rounded values of Riverraid and UpNDown, and none of Jamesbond.
_DQN_AND_RAINBOW = {
    "Alien": (1620, 9491.7), "Amidar": (978, 5131.2), "Assault": (4280, 14198.5), "Asterix": (4359, 428200.3),
    "Asteroids": (1364.5, 2712.8), "Atlantis": (279987, 826659.5), "BankHeist": (455, 1358), "BattleZone": (29900, 62010),
    "BeamRider": (8627.5, 16850.2), "Berzerk": (585.6, 2545.6), "Bowling": (50.4, 30), "Boxing": (88, 99.6),
    "Breakout": (385.5, 417.5), "Centipede": (4657.7, 8167.3), "ChopperCommand": (6126, 16654),
    "CrazyClimber": (110763, 168788.5), "Defender": (23633, 55105), "DemonAttack": (12149.4, 111185.2),
    "DoubleDunk": (-6.6, -0.3), "Enduro": (729, 2125.9), "FishingDerby": (-4.9, 31.3), "Freeway": (30.8, 34),
    "Frostbite": (797.4, 9590.5), "Gopher": (8777.4, 70354.6), "Gravitar": (473, 1419.3), "Hero": (20437.8, 55887.4),
    "IceHockey": (-1.9, 1.1), "Kangaroo": (7259, 14637.5), "Krull": (8422.3, 8741.5), "KungFuMaster": (26059, 52181),
    "MontezumaRevenge": (0, 384), "MsPacman": (3085.6, 5380.4), "NameThisGame": (8207.8, 13136),
    "Phoenix": (8485.2, 108528.6), "Pitfall": (-286.1, 0), "Pong": (19.5, 20.9), "PrivateEye": (146.7, 4234),
    "Qbert": (13117.3, 33817.5), "Riverraid": (5440, 22500), "RoadRunner": (39544, 62041), "Robotank": (63.9, 61.4),
    "Seaquest": (5860.6, 15898.9), "Skiing": (-13062.3, -12957.8), "Solaris": (3482.8, 3560.3),
    "SpaceInvaders": (1692.3, 18789), "StarGunner": (54282, 127029), "Surround": (-5.6, 9.7), "Tennis": (12.2, 0),
    "TimePilot": (4870, 12926), "Tutankham": (68.1, 241), "UpNDown": (8000, 103600), "Venture": (163, 5.5),
    "VideoPinball": (196760.4, 533936.5), "WizardOfWor": (2704, 17862.5), "YarsRevenge": (18089.9, 102557),
    "Zaxxon": (5363, 22209.5),
}  # fmt: skip


def _atari(scores: Mapping[str, float]) -> dict[str, float]:
    return {f"atari/{game}": score for game, score in scores.items()}


_ATARI5 = [game.partition("/")[2] for game in SUITES["atari5"].environments]
_HUMAN = Published("human", HUMAN, returns=_atari({game: human for game, (_, human) in ATARI57.items()}))
_DQN, _RAINBOW = (
    Published(name, HESSEL, FRAMES_200M, _atari({game: pair[column] for game, pair in _DQN_AND_RAINBOW.items()}))
    for column, name in enumerate(("DQN", "Rainbow"))
)


def _five(agent: str, steps: int, *scores: float) -> Published:
    return Published(agent, AITCHISON, steps, _atari(dict(zip(_ATARI5, scores, strict=True))))


def _minatar(agent: str, source: str, note: str, *scores: float) -> Published:
    return Published(agent, source, 5_000_000, dict(zip(SUITES["minatar"].environments, scores, strict=True)), note=note)


def _overall(agent: str, steps: int, iqm: float, source: str = FIGURE, note: str = "") -> Published:
    return Published(agent, source, steps, scores={"iqm": iqm}, note=note)


def _alone(env: str, agent: str, steps: int | None, score: float, source: str = NATURE, note: str = "") -> Published:
    return Published(agent, source, steps, {env: score}, note=note)


ON_TRAINING_LEVELS = "on the 500 levels of training"
PUBLISHED: dict[str, tuple[Published, ...]] = {
    "atari57": (
        _HUMAN,
        _DQN,
        _RAINBOW,
        _overall("Disco57", FRAMES_200M, 13.86, NATURE),
        _overall("Disco103", FRAMES_200M, 13.7),
        _overall("MuZero", FRAMES_200M, 12.4),
        _overall("MEME", FRAMES_200M, 11.25),
        _overall("Dreamer", FRAMES_200M, 9.55),
        _overall("STACX", FRAMES_200M, 5.5),
        _overall("IMPALA", FRAMES_200M, 2.7),
    ),
    "atari5": (
        *(
            entry._replace(returns={env: entry.returns[env] for env in SUITES["atari5"].environments})
            for entry in (_HUMAN, _DQN, _RAINBOW)
        ),
        _five("IMPALA (deep)", FRAMES_200M, 20885.0, -0.33, 21537.2, 210996.45, 351200.12),
        _five("DreamerV2", FRAMES_200M, 40325.0, 17.0, 14649.0, 49375.0, 94688.0),
        _five("MuZero", FRAMES_20B, 848623.0, 23.94, 157177.85, 955137.84, 72276.0),
    ),
    "procgen16": (
        _overall("Disco103", 50_000_000, 0.96, note=ON_TRAINING_LEVELS),
        _overall("Disco57", 50_000_000, 0.92, note=ON_TRAINING_LEVELS),
        _overall("MuZero", 30_000_000, 0.78),
        _overall("Dreamer", 50_000_000, 0.73),
        _overall("PPG", 50_000_000, 0.66),
        _overall("PPO", 50_000_000, 0.40),
    ),
    "crafter": (
        Published("human", HAFNER, None, {"crafter/reward": CRAFTER[1]}, achievements=50.5),
        _alone("crafter/reward", "Disco103", 1_000_000, 6.59),
        _alone("crafter/reward", "Disco103", 20_000_000, 14.56),
        _alone("crafter/reward", "Disco57", 1_000_000, 7.58),
        _alone("crafter/reward", "Disco57", 20_000_000, 13.18),
        Published("DreamerV3", HAFNER, 1_000_000, {"crafter/reward": 11.7}, achievements=14.5),
        Published("Rainbow", HAFNER, 1_000_000, {"crafter/reward": 6.0}, achievements=4.3),
        Published("PPO", HAFNER, 1_000_000, {"crafter/reward": 4.2}, achievements=4.6),
        Published("random", HAFNER, None, {"crafter/reward": CRAFTER[0]}, achievements=1.6),
    ),
    "nethack": (
        _alone("nethack/NetHackChallenge-v0", "Disco103", 2_000_000_000, 1114.0, note="the budget is read off the figure"),
        _alone("nethack/NetHackChallenge-v0", "Disco57", 2_000_000_000, 938.0, note="the budget is read off the figure"),
        _alone("nethack/NetHackChallenge-v0", "IMPALA", 2_000_000_000, 189.0, note="the budget is read off the figure"),
    ),
    "sokoban": (
        _alone("envpool/Sokoban-v0", "MuZero", 100_000_000, 10.6, FIGURE),
        _alone("envpool/Sokoban-v0", "Disco103", 100_000_000, 9.5, FIGURE),
        _alone("envpool/Sokoban-v0", "Disco57", 100_000_000, 7.4, FIGURE),
    ),
    "dmlab30": (
        _overall("Disco103", 75_000_000, 0.56),
        _overall("IMPALA", 250_000_000, 0.46),
        _overall("Disco57", 75_000_000, 0.26),
    ),
    "minatar": (
        _minatar("DQN", YOUNG, f"returns of training with a tenth of the actions at random; {SMALL}", 16.5, 10.0, 50.5, 20.0, 45.0),
        _minatar("PPO", GREENQUIST, f"greedy evaluation of three seeds; {SMALL}", 31.5, 25.9, 61.3, 24.5, 276.9),
    ),
}  # classic, bsuite and grids have none: nobody has published scores with these environments and budgets


# -- Atari-5 -------------------------------------------------------------------------------------------------------------------

# From log scores of five games to the log of the median over 57, without an intercept: the regression of Aitchison et al. (2023),
# appendix E, with the digits of the authors' code. Its estimates are off by 10 % on average.
ATARI5_WEIGHTS = {
    "BattleZone": 0.3819751237831753,
    "DoubleDunk": 0.0679099488887574,
    "NameThisGame": 0.310804148620847,
    "Phoenix": 0.12412619402774641,
    "Qbert": 0.08048518286466755,
}


def atari5_median(scores: Mapping[str, float | np.ndarray]) -> np.ndarray:
    """The median human-normalised score over 57 games that five of them predict.

    Args:
        scores: human-normalised scores of those games by name, 1 being a human; numbers or arrays of the same shape.

    Returns:
        The prediction, in the same unit and shape.
    """
    # The regression is of percentages; below random play a score counts as random.
    logs = [weight * np.log10(1 + 100 * np.maximum(np.asarray(scores[game], float), 0)) for game, weight in ATARI5_WEIGHTS.items()]
    return (10 ** np.sum(logs, 0) - 1) / 100


# -- Crafter -------------------------------------------------------------------------------------------------------------------


def crafter_score(rates: np.ndarray) -> np.ndarray:
    """Crafter's score in per cent: the geometric mean of success rates, each with 1 % added (Hafner 2021), [..., A] -> [...].

    Args:
        rates: shares of episodes in which each achievement was unlocked, from 0 to 1.
    """
    return np.exp(np.log1p(100 * np.asarray(rates, float)).mean(-1)) - 1
