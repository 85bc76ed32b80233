"""The data that all parts of a page share: run, GPUs, series, newest values."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import streamlit as st

from whyidle.dashboard.frame import PageState
from whyidle.dashboard.views import job
from whyidle.dashboard.views.cache import remember
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.series import SeriesSource, Subject
from whyidle.dashboard.views.time_range import TimeRange

# Queries over minutes of a run, or all of it, run only this often.
_SELDOM_MS: Final = 10_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PageData:
    """The data that all parts of a page share."""

    shown: PageState
    gpus: Gpus
    # The GPUs chosen by the user, and the choice itself.
    chosen: tuple[Subject, ...]
    choice: str
    series: SeriesSource
    newest: Newest

    @classmethod
    def of(cls, shown: PageState, choice: str) -> PageData:
        """Read what the whole page shares."""
        gpus = job.gpus(shown.reader, shown.run, everything=shown.everything)
        series = SeriesSource(shown.reader, shown.run.id, shown.span())
        return cls(shown, gpus, gpus.one(choice), choice, series, _newest(shown))

    @property
    def span(self) -> TimeRange:
        """The shown time range."""
        return self.series.span

    @property
    def no_gpu(self) -> str:
        """Why no GPU is shown; empty if one is."""
        return "" if self.chosen else self.gpus.problem or job.NONE_READ

    def seldom(self, what: str, answer: Callable[[], _T]) -> _T:
        """Return an answer that may be a few seconds old."""
        reader, run = self.shown.reader, self.shown.run
        moves = self.span.is_live and self.shown.paused_ms is None
        tick = (time.monotonic_ns() // 1_000_000 if moves else self.span.end_ms) // _SELDOM_MS
        return remember((reader, run.id, what, job.standing(reader, run), tick), answer)


def _newest(shown: PageState) -> Newest:
    """Return the newest values; on a paused page, those of the moment of the pause."""
    if shown.paused_ms is None:
        return Newest.of(shown.reader, shown.run)
    stopped = shown.run.id, shown.paused_ms
    kept: tuple[Any, Newest] | None = st.session_state.get("newest_at")
    if kept is None or kept[0] != stopped:
        kept = stopped, Newest.of(shown.reader, shown.run)
        st.session_state["newest_at"] = kept
    return kept[1]
