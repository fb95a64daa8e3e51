"""The barcode bandit of Ritter et al. (2018): bandits that come back, each recognised by its barcode."""

from __future__ import annotations

from rulax.envs.bandit import OneGoodArm
from rulax.envs.previous import with_previous
from rulax.envs.tasks import Recurring, recurring


def barcode_bandit(arms: int = 10, pulls: int = 10, barcodes: int = 10, repeats: int = 10, bits: int = 10) -> Recurring:
    """Episodes of `pulls` pulls of one good arm among `arms`; each of `barcodes` bandits is met `repeats` times in an epoch.

    The good arm of each is drawn by itself, and so are the barcodes, anew for every epoch: neither can be learned by heart, and no
    bandit tells anything about another.

    Args:
        arms: of each bandit.
        pulls: of each episode.
        barcodes: bandits of an epoch, each with a barcode.
        repeats: episodes of each bandit in an epoch, in random order among the others.
        bits: of a barcode.
    """
    return recurring(with_previous(OneGoodArm(arms=arms, pulls=pulls)), barcodes, repeats, bits)
