"""Colours: causes are told apart by everybody, have one meaning, and text on them can be read."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from whyidle.dashboard import theme
from whyidle.monitor.core.slices import LOOKS, Slice

# Linear light as eyes see it that lack one kind of cones (Machado, Oliveira, Fernandes 2009).
EYES = {
    "usual": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                            [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip
# In OKLab; two shades this far apart side by side are told apart (the old pair of oranges: 0.02).
APART = 0.08
# What stands beside each other in most accounts.
MAIN = (Slice.COMPUTE, Slice.EXPOSED_COPY, Slice.EXPOSED_COMM, Slice.IDLE_INPUT,
        Slice.IDLE_DISPATCH, Slice.IDLE_SYNC, Slice.IDLE_UNKNOWN)  # fmt: skip
WELL_APART = 0.11
# WCAG 2, level AA.
READABLE = 4.5
_CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                   [0.2119034982, 0.6806995451, 0.1073969566],
                   [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                 [1.9779984951, -2.4285922050, 0.4505937099],
                 [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip


def light(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def apart(one: str, other: str, eyes: str) -> float:
    seen = [
        _LAB @ np.cbrt(_CONES @ np.clip(EYES[eyes] @ light(each), 0, 1)) for each in (one, other)
    ]
    return float(np.linalg.norm(seen[0] - seen[1]))


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(np.dot((0.2126, 0.7152, 0.0722), light(x))) for x in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("eyes", EYES)
def test_any_two_causes_are_told_apart(eyes: str) -> None:
    for one, other in combinations(Slice, 2):
        least = WELL_APART if one in MAIN and other in MAIN else APART
        assert apart(LOOKS[one].colour, LOOKS[other].colour, eyes) >= least, (one, other)


def test_what_is_no_cause_has_no_hue_of_one() -> None:
    for colour in (*theme.SHADES, theme.SLATE, theme.MIST, theme.GREY):
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        assert max(red, green, blue) - min(red, green, blue) < 64, colour


@pytest.mark.parametrize("colour", [*theme.SEVERITIES.values(), theme.BETTER, theme.WORSE])
def test_white_text_on_a_chip_is_read(colour: str) -> None:
    assert contrast(colour, "#ffffff") >= READABLE


@pytest.mark.parametrize("colour", [look.colour for look in LOOKS.values()])
def test_text_inside_a_part_of_a_bar_is_read(colour: str) -> None:
    assert contrast(colour, theme.ink(colour)) >= READABLE


def test_links_are_read_on_both_pages() -> None:
    for kind in ("light", "dark"):
        link, page = theme.THEME[f"theme.{kind}.linkColor"], f"theme.{kind}.backgroundColor"
        assert contrast(str(link), str(theme.THEME[page])) >= READABLE
