"""The findings of a job while it runs: looked for on a thread of their own, now and then.

A look reads the store, as any viewer does, and takes no part in the tick: what it costs is a few
hundredths of a second, spread over seconds where the job needs the cores, and it comes seldom.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Final, TypeAlias

from msgspec import to_builtins

from whyidle.monitor.core.contracts.diagnosis import FindingJson, VerdictJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.finding import Contradiction, at, times
from whyidle.monitor.core.pace import unhurried
from whyidle.monitor.diagnosis.debounce import Change, Debouncer
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.recording.pipeline import Guard
from whyidle.monitor.store import Writer

FINDING: Final = "finding"
# By then a job has warmed up, and its agent has sent something.
FIRST_SECONDS: Final = 12.0
# Soon after it two more, so that what lasts is found early; then less and less often.
AGAIN_SECONDS: Final = (5.0, 5.0, 15.0, 30.0, 60.0)
# What is looked at: so much of the past.
WINDOW_SECONDS: Final = 120.0

_Look: TypeAlias = tuple[list[FindingJson], VerdictJson, bool]


class Faults:
    """The looks of one recording."""

    def __init__(self, writer: Writer, run: int, target: ProcessKey, guard: Guard) -> None:
        self._guard = guard
        self._writer = writer
        self._run = run
        self._target = target
        self._debouncer = Debouncer()
        self._news: list[Change] = []
        self._verdict: VerdictJson | None = None
        # Whether it answers requests, and does not train, by the last look.
        self.serves = False
        self._answers: SimpleQueue[_Look | Exception | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._looks = 0
        self._due: float | None = None

    @property
    def shown(self) -> tuple[FindingJson, ...]:
        """The findings that are certain."""
        return self._debouncer.shown

    @property
    def verdict(self) -> VerdictJson | None:
        """The verdict of the last look, once the finding that it is about is certain."""
        said = self._verdict
        rules = {None, *(finding.rule for finding in self.shown)}
        return said if said is not None and said.rule in rules else None

    def take_events(self) -> list[JobEvent]:
        """Return what was found, or is gone, since the last call."""
        news, self._news = self._news, []
        return [self._event(change) for change in news]

    def _event(self, change: Change) -> JobEvent:
        severity = change.finding.severity if change.news == "found" else "info"
        return JobEvent(
            FINDING, self._target, sentence(change), severity, data=to_builtins(change.finding)
        )

    def tick(self, now: float, *, new_trace: bool = False) -> None:
        """Take in the last look, and begin another when it is due."""
        if self._due is None:
            self._due = now + FIRST_SECONDS
        if new_trace:
            # The best there is to know has just come.
            self._due = now
        while not self._answers.empty():
            found = self._answers.get()
            self._thread = None
            if isinstance(found, Exception):
                self._guard.caught("diagnosis", found)
                continue
            if found is None:
                continue
            findings, self._verdict, self.serves = found
            for change in self._debouncer.take(findings, self._verdict.rule):
                self._keep(change)
        if self._thread is None and now >= self._due:
            self._due = now + AGAIN_SECONDS[min(self._looks, len(AGAIN_SECONDS) - 1)]
            self._looks += 1
            self._thread = threading.Thread(target=self._look, name="diagnosing", daemon=True)
            self._thread.start()

    def _keep(self, change: Change) -> None:
        self._news.append(change)
        finding, now_ms = change.finding, time.time_ns() // 1_000_000
        data = {**to_builtins(finding), "state": change.news}
        self._writer.finding(self._run, now_ms, finding.rule, finding.severity, data)

    def _look(self) -> None:
        with unhurried():
            self._look_around()

    def _look_around(self) -> None:
        # The rules take a tenth of a second: nothing of it before the job is watched.
        from whyidle.monitor.diagnosis import diagnose  # noqa: PLC0415
        from whyidle.monitor.signals.opening import of_run  # noqa: PLC0415

        try:
            window = of_run(self._writer.path, str(self._run), WINDOW_SECONDS)
            found = diagnose.diagnose(window)
            findings = diagnose.findings_json(found, diagnose.host_json(window))
            said = diagnose.verdict_json(found, findings)
            for rule, why in found.contradictions.items():
                self._answers.put(Contradiction(f"{rule}: {why}"))
        except Problem:
            # A store that is gone or full says so itself.
            self._answers.put(None)
        except Exception as error:  # noqa: BLE001  a recording goes on
            self._answers.put(error)
        else:
            self._answers.put((findings, said, window.serves))


def sentence(change: Change) -> str:
    """Say in one line what was found, or that it is gone."""
    finding = change.finding
    if change.news == "gone":
        return f"No longer found: {finding.title} [{finding.rule}]."
    expected = finding.expected
    gain = "" if expected is None else f", about {times(expected)} faster when fixed"
    place = next(iter(finding.where), None)
    where = "" if place is None else f", {at(place.file, place.line)}"
    return f"Found: {finding.title}{gain}{where} [{finding.rule}]."
