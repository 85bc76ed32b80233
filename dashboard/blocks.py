"""What a board is made of: markup, charts, and columns of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whyidle.dashboard import markup, theme
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.series import Course


@dataclass(frozen=True, slots=True)
class Html:
    """Markup of our own; everything else in it went through ``safe``."""

    markup: str

    def told(self) -> dict[str, Any]:
        """Return it as the browser gets it."""
        return {"html": self.markup}


@dataclass(frozen=True, slots=True)
class Chart:
    """A live chart; the same key is the same chart."""

    key: str
    figure: Figure
    height: int = theme.CHART_HEIGHT

    def told(self) -> dict[str, Any]:
        """Return it as the browser gets it."""
        return {"name": self.key, "figure": self.figure, "height": self.height}


@dataclass(frozen=True, slots=True)
class Columns:
    """Pieces beside each other, each column with those below each other."""

    columns: Sequence[Sequence[Block]]

    def told(self) -> dict[str, Any]:
        """Return it as the browser gets it."""
        return {"columns": [[block.told() for block in column] for column in self.columns]}


Block = Html | Chart | Columns


def courses(
    name: str, figure: Figure, told: Sequence[Course], key: str, height: int = theme.CHART_HEIGHT
) -> list[Block]:
    """Return a chart of courses with its title; what is unknown says so, each reason once."""
    missing: dict[str, list[str]] = {}
    for course in told:
        if course.unknown is not None:
            missing.setdefault(course.unknown, []).append(course.name)
    title = Html(markup.title(name))
    if all(course.unknown is not None for course in told):
        return [title, *(Html(markup.unknown(", ".join(x), why)) for why, x in missing.items())]
    notes = "; ".join(f"{', '.join(names)}: {why}" for why, names in missing.items())
    return [title, Chart(key, figure, height), *([Html(markup.note(notes))] if notes else [])]
