"""What all parts of a page ask: of which run, which GPUs, which stretch of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from whyidle.dashboard.frame import Shown
from whyidle.dashboard.views import job
from whyidle.dashboard.views.courses import Courses, Subject
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.remember import remember
from whyidle.dashboard.views.span import Span

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
        newest = Newest.of(shown.reader, shown.run)
        return cls(shown, gpus, gpus.one(choice), choice, told, newest)

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
        tick = self.span.end_ms // _SELDOM_MS
        return remember((self.shown.reader, self.shown.run.id, what, tick), answer)
