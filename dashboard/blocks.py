"""The building blocks of a board: markup, charts, and columns of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whyidle.dashboard import markup, theme
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.series import Series


@dataclass(frozen=True, slots=True)
class Html:
    """Our own markup; any other text in it went through ``safe``."""

    markup: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON for the browser."""
        return {"html": self.markup}


@dataclass(frozen=True, slots=True)
class Chart:
    """A live chart; the key identifies it across updates."""

    key: str
    figure: Figure
    height: int = theme.CHART_HEIGHT

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON for the browser."""
        return {"name": self.key, "figure": self.figure, "height": self.height}


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns side by side, each a stack of blocks."""

    columns: Sequence[Sequence[Block]]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON for the browser."""
        return {"columns": [[block.to_dict() for block in column] for column in self.columns]}


Block = Html | Chart | Columns


def series_chart(
    name: str,
    figure: Figure,
    all_series: Sequence[Series],
    key: str,
    height: int = theme.CHART_HEIGHT,
) -> list[Block]:
    """Return a chart of series with its title; unknown series are listed by reason."""
    missing: dict[str, list[str]] = {}
    for series in all_series:
        if series.unknown is not None:
            missing.setdefault(series.unknown, []).append(series.name)
    title = Html(markup.title(name))
    if all(series.unknown is not None for series in all_series):
        return [title, *(Html(markup.unknown(", ".join(x), why)) for why, x in missing.items())]
    notes = "; ".join(f"{', '.join(names)}: {why}" for why, names in missing.items())
    return [title, Chart(key, figure, height), *([Html(markup.note(notes))] if notes else [])]
