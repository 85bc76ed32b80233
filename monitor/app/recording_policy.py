"""``monitor export --attach``: which jobs are recorded without being asked for one by one.

Each recording is a process of its own, as by `monitor attach --background`, and ends with us.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Collection, Iterator
from typing import Final, Literal, Self

from whyidle.monitor.app import background
from whyidle.monitor.app.jobs import find_jobs
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.export.collector import Collector
from whyidle.monitor.processes.job import whole
from whyidle.monitor.processes.process import ProcessKey, user_of
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target
from whyidle.monitor.render.console import say
from whyidle.monitor.tracing.policy import SHARE

Which = Literal["all", "gpu", "none"]
LOOK_EVERY_SECONDS: Final = 10.0
# Each takes a hundredth of a core, and a store of its own rows.
MOST: Final = 16
END_SECONDS: Final = 15.0


class Policy:
    """Looks for new jobs on a thread of its own."""

    def __init__(
        self, which: Which, collector: Collector, users: Collection[str] = frozenset()
    ) -> None:
        self._which = which
        # Whose jobs; none named: everybody's.
        self._users = users
        self._collector = collector
        self._fs = ProcFs()
        self._recorders: list[subprocess.Popen[bytes]] = []
        self._seen: set[ProcessKey] = set()
        self._tried: set[ProcessKey] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="whyidle-policy", daemon=True)

    def __enter__(self) -> Self:
        if self._which != "none":
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS)
        for recorder in self._recorders:
            recorder.terminate()
        for recorder in self._recorders:
            try:
                recorder.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"The recorder {recorder.pid} has not ended yet.")

    def _loop(self) -> None:
        while not self._ending.wait(LOOK_EVERY_SECONDS):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  the metrics go on
                say(f"New jobs could not be looked for: {type(error).__name__}: {error}")

    def _look(self) -> None:
        self._recorders = [each for each in self._recorders if each.poll() is None]
        recorded = self._collector.recordings.keys()
        # All parts of a job are in one recording.
        began = (whole(Target(key, self._fs)).key for key in self._wanted())
        now = {key for key in began if self._is_of_users(key)}
        # Seen twice: who has ended by then is not worth a recording.
        new = (now & self._seen) - recorded - self._tried
        self._seen, self._tried = now, self._tried & now
        for key in sorted(new)[: max(0, MOST - len(self._recorders))]:
            self._tried.add(key)
            self._record(key)

    def _wanted(self) -> Iterator[ProcessKey]:
        yield from (job.key for job in self._collector.last.jobs if job.gpus)
        if self._which == "all":
            yield from (job.identity.key for job in find_jobs().jobs if job.refused is None)

    def _is_of_users(self, key: ProcessKey) -> bool:
        return not self._users or user_of(self._fs, key.pid) in self._users

    def _record(self, key: ProcessKey) -> None:
        try:
            target = Target.named(str(key.pid))
            if target.key != key:
                return
            run, recorder = background.record(target, trace_share=SHARE)
        except Problem as problem:
            say(f"Process {key.pid} is not recorded: {problem.what}", problem.next_step)
            return
        self._recorders.append(recorder)
        say(f"Run {run}: recording pid {key.pid}.")
