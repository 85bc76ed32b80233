"""Colours, type and spacing, declared once. The colours of causes come from ``slices``."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.slices import LOOKS, Slice, is_light

# Hues belong to causes alone. Devices, runs and everything else that is drawn has shades of slate.
SLATE: Final = "#4F6B84"
MIST: Final = "#8FA9BF"
GREY: Final = "#6F7680"
# White text is read on these.
BETTER: Final = "#0B7A5A"
WORSE: Final = "#A3180F"
ALARM: Final = WORSE
SEVERITIES: Final = {"high": ALARM, "medium": "#8A5300", "low": "#4A5560", "info": "#6B7280"}
# Of several classes at once; white text is read on it, and it is seen on a light and a dark page.
MIXED: Final = "#5B6675"
# For several GPUs or processes in one chart: shades, then the same with dots.
SHADES: Final = (SLATE, "#6F8BA3", MIST, "#B4C5D4")
DASHES: Final = ("solid", "dot")

CAUSES: Final[dict[Slice, str]] = {part: look.colour for part, look in LOOKS.items()}

# The chart component gives text and lines the colours of the theme.
CHART_HEIGHT: Final = 230
SMALL_HEIGHT: Final = 170
BAR_HEIGHT: Final = 96

THEME: Final = {
    "theme.font": "sans-serif",
    "theme.baseRadius": "small",
    "theme.baseFontSize": 15,
    "theme.light.primaryColor": "#33475B",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f5f6f8",
    "theme.light.textColor": "#1b1f24",
    "theme.light.linkColor": "#1F4E79",
    "theme.light.borderColor": "#dfe2e6",
    "theme.dark.primaryColor": SHADES[-1],
    "theme.dark.backgroundColor": "#101418",
    "theme.dark.secondaryBackgroundColor": "#181d23",
    "theme.dark.textColor": "#e4e7eb",
    "theme.dark.linkColor": "#9CC4EC",
    "theme.dark.borderColor": "#2c333b",
}


def ink(colour: str) -> str:
    """Return the colour of text that can be read on a colour."""
    return "#000000" if is_light(colour) else "#ffffff"


# The mark: two bars at work, and between them one that is idle.
MARK: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" aria-hidden="true">'
    '<g fill="currentColor">'
    '<rect x="1" y="2" width="4" height="12"/><rect x="11" y="2" width="4" height="12"/></g>'
    '<rect x="6.5" y="2.5" width="3" height="11" fill="none" stroke="#C32C08"'
    ' stroke-dasharray="2 1.4"/></svg>'
)
