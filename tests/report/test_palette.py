"""The colours of the pages: readable on their paper in both themes, and told apart by people who see fewer colours."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from rulax.report.page import asset

# Machado, Oliveira and Fernandes (2009), severity 1.0: what is left of linear RGB.
VISION = {
    "all colours": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}
FIRST = 4  # lines that a chart commonly has


def themes() -> dict[str, dict[str, np.ndarray]]:
    blocks = re.findall(r":root(\S*) \{([^}]*--c7[^}]*)\}", asset("page.css"))
    found = {}
    for selector, body in blocks:
        found["dark" if "dark" in selector or "not" in selector else "light"] = {
            name: linear(value) for name, value in re.findall(r"--([\w-]+): #([0-9a-f]{6})", body)
        }
    assert len(blocks) == 3
    assert blocks[1][1].split() == blocks[2][1].split()  # dark by the system is dark by the button
    return found


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    low, high = sorted(float(colour @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
    xyz = to_xyz @ np.clip(colour, 0, 1) / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_lines_stand_out_from_the_paper(theme: str) -> None:
    colours = themes()[theme]
    for name in ("ink", "soft", "faint", "accent"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name  # WCAG AA for text
        assert contrast(colours[name], colours["raised"]) >= 4.5, name
    assert contrast(colours["warn"], colours["warn-paper"]) >= 4.5
    for number in range(8):
        assert contrast(colours[f"c{number}"], colours["paper"]) >= 3.0, number  # and for graphics


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_first_lines_are_told_apart(theme: str, vision: str) -> None:
    seen = {n: lab(VISION[vision] @ themes()[theme][f"c{n}"]) for n in range(FIRST)}
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 14, (one, other)
