"""What all parts of a page ask: of which run, which GPUs, which stretch of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import streamlit as st

from whyidle.dashboard.frame import Shown
from whyidle.dashboard.views import job
from whyidle.dashboard.views.cache import remember
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.series import Courses, Subject
from whyidle.dashboard.views.time_range import Span

# What looks at minutes of a run, or all of it, is asked now and then.
_SELDOM_MS: Final = 10_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Asked:
    """What all parts of a page ask."""

    shown: Shown
    gpus: Gpus
    # Those that the reader has chosen among them, and how.
    chosen: tuple[Subject, ...]
    choice: str
    told: Courses
    newest: Newest

    @classmethod
    def of(cls, shown: Shown, choice: str) -> Asked:
        """Ask what stands for the whole page."""
        gpus = job.gpus(shown.reader, shown.run, everything=shown.everything)
        told = Courses(shown.reader, shown.run.id, shown.span())
        return cls(shown, gpus, gpus.one(choice), choice, told, _newest(shown))

    @property
    def span(self) -> Span:
        """The stretch of time that is shown."""
        return self.told.span

    @property
    def no_gpu(self) -> str:
        """Why no GPU is shown; empty where one is."""
        return "" if self.chosen else self.gpus.problem or job.NONE_READ

    def seldom(self, what: str, answer: Callable[[], _T]) -> _T:
        """Return an answer that may be some seconds old."""
        reader, run = self.shown.reader, self.shown.run
        moves = self.span.is_live and self.shown.paused_ms is None
        tick = (time.monotonic_ns() // 1_000_000 if moves else self.span.end_ms) // _SELDOM_MS
        return remember((reader, run.id, what, job.standing(reader, run), tick), answer)


def _newest(shown: Shown) -> Newest:
    """Return what is known now; on a page that was stopped, what was known then."""
    if shown.paused_ms is None:
        return Newest.of(shown.reader, shown.run)
    stopped = shown.run.id, shown.paused_ms
    kept: tuple[Any, Newest] | None = st.session_state.get("newest_at")
    if kept is None or kept[0] != stopped:
        kept = stopped, Newest.of(shown.reader, shown.run)
        st.session_state["newest_at"] = kept
    return kept[1]
