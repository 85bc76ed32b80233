"""Generated jobs: what a thread calls and launches, and when the device runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Device, Format, Links, Marks, Ops, Spans, Thread, Trace

LAUNCH, PAUSE = 10, 3  # ticks


@dataclass
class Job:
    """A process: what happens is appended in order, and time goes on."""

    format: Format = "kineto"
    now: int = 0
    thread: int = 0
    queue: int = 0  # how long the device takes to begin
    names: dict[str, int] = field(default_factory=dict)
    spans: list[tuple[int, int, int, Cause, int]] = field(default_factory=list)
    ops: list[tuple[int, int, int, int]] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)
    marks: list[tuple[int, int, int, int]] = field(default_factory=list)

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def call(self, text: str, kind: Cause, ticks: int = LAUNCH) -> None:
        """A host call, with nothing inside."""
        self.spans.append((self.now, self.now + ticks, self.thread, kind, self.name(text)))
        self.now += ticks + PAUSE

    def wait(self, ticks: int) -> None:
        self.now += ticks

    def launch(self, kernels: Iterable[object], ticks: int = LAUNCH // 2) -> None:
        """Launch kernels one by one; the device runs them in order."""
        for kernel in kernels:
            number = len(self.ops)
            self.calls.append((len(self.spans), number))
            self.call("cudaLaunchKernel", Cause.DRIVER_CALL)
            free = self.ops[-1][1] if self.ops else 0
            begin = max(self.now + self.queue, free)
            self.ops.append((begin, begin + ticks, self.name(f"kernel {kernel}"), number))

    def mark(self, text: str, start: int) -> None:
        self.marks.append((start, self.now, self.name(text), self.thread))

    def trace(self, *, threads: Sequence[int] = (1, 1), hidden: bool = True) -> Trace:
        """The record; ``threads`` are the processes of the threads, hidden markers are left out."""
        order = sorted(range(len(self.spans)), key=lambda i: (self.spans[i][0], -self.spans[i][1]))
        row = {old: new for new, old in enumerate(order)}
        spans = [self.spans[i] for i in order]
        marks = [] if hidden else sorted(self.marks)
        return Trace(
            format=self.format,
            ticks_per_ns=1,
            names=list(self.names),
            devices=[Device("gpu", "0", _ops(self.ops))] if self.ops else [],
            threads=[Thread(f"thread {i}", pid=pid) for i, pid in enumerate(threads)],
            host=Spans.of(**_columns(spans, "start", "end", "thread", "kind", "name")),
            calls=Links.of(row=[row[r] for r, _ in self.calls], id=[n for _, n in self.calls]),
            marks=Marks.of(**_columns(marks, "start", "end", "name", "thread")),
        )


def _ops(ops: list[tuple[int, int, int, int]]) -> Ops:
    kinds = np.full(len(ops), Cause.KERNEL)
    return Ops.of(kind=kinds, **_columns(ops, "start", "end", "name", "correlation"))


def _columns(rows: Sequence[tuple[int, ...]], *names: str) -> dict[str, list[int]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
