"""Colours, type and spacing, declared once. The colours of causes come from ``slices``."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.slices import LOOKS, Slice

# Okabe and Ito's palette, as for causes: safe for colour-blind eyes. One meaning, one colour.
BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
ORANGE: Final = "#E69F00"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#8A8F98"
# Better and worse differ by more than red and green, and always carry a sign.
BETTER: Final = GREEN
WORSE: Final = VERMILION
SEVERITIES: Final = {"high": VERMILION, "medium": ORANGE, "low": SKY, "info": GREY}
# Of several classes at once; white text is read on it, and it is seen on a light and a dark page.
MIXED: Final = "#5B6675"
# A colour lighter than this has dark text.
LIGHT: Final = 145
# For several GPUs or processes in one chart.
SEQUENCE: Final = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, "#44546A", "#8C6D31")

CAUSES: Final[dict[Slice, str]] = {part: look.colour for part, look in LOOKS.items()}

# The chart component gives text and lines the colours of the theme.
CHART_HEIGHT: Final = 230
SMALL_HEIGHT: Final = 170
BAR_HEIGHT: Final = 96

THEME: Final = {
    "theme.font": "sans-serif",
    "theme.baseRadius": "small",
    "theme.baseFontSize": 15,
    "theme.light.primaryColor": BLUE,
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f5f6f8",
    "theme.light.textColor": "#1b1f24",
    "theme.light.borderColor": "#dfe2e6",
    "theme.dark.primaryColor": SKY,
    "theme.dark.backgroundColor": "#101418",
    "theme.dark.secondaryBackgroundColor": "#181d23",
    "theme.dark.textColor": "#e4e7eb",
    "theme.dark.borderColor": "#2c333b",
}


def ink(colour: str) -> str:
    """Return the colour of text that can be read on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > LIGHT else "#ffffff"
