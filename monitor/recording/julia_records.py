"""A Julia process, read from outside: the records that an agent inside would send."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import PurePath
from typing import Final

from whyidle.agents import wire
from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.attach.julia_reader import Counters, JuliaReader
from whyidle.monitor.attach.stack_reader.unreadable import Unreadable
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.link.channel import Address, Channel, LinkRefused
from whyidle.monitor.link.records import Gauges, Record, State, Steps
from whyidle.monitor.link.spool import Spool
from whyidle.monitor.processes.process import JULIA
from whyidle.monitor.processes.target import Target

# What is in the way (a right, a library that is only being loaded) may pass.
TRY_AGAIN_NS: Final = 30_000_000_000
# What it computes on shows by the driver that it loads, at any time: looked for ever more seldom,
# since the kernel holds the job's memory map meanwhile.
LATER: Final = 2
SELDOM_NS: Final = 60_000_000_000
_DRIVERS: Final = (
    ("cuda", re.compile(r"/libcuda\.so[^/]*$")),
    ("rocm", re.compile(r"/libamdhip64\.so[^/]*$")),
)
# What only a known layout tells.
BY_LAYOUT: Final = (m.PROCESS_GC_COLLECTIONS, m.PROCESS_GC_FULL, m.PROCESS_ALLOCATED)


class JuliaRecords:
    """Opens the process when it is first asked, and again where that failed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._reader: JuliaReader | None = None
        self._failed: Unreadable | None = None
        self._tried_ns: int | None = None
        self._began_ns = self._look_ns = 0
        self._backend: str | None = None
        self._script: str | None = None
        self._visible: str | None = None
        # Whether it has loaded our marks, and the file of them.
        self._has_marks = False
        self._spool: Spool | None = None
        self._first: Counters | None = None
        # Of the total what is told so far, and when: a long pause is counted at its end, and fills
        # the seconds before it.
        self._reported: tuple[int, int] | None = None

    def take(self, now_ns: int) -> list[Record]:
        """Return what is new; of a process that has ended the last marks of steps alone."""
        counters = None if (reader := self._opened(now_ns)) is None else reader.read()
        if reader is not None:
            self._look_for_marks()
        steps = [] if self._spool is None else self._spool.read()
        # Nothing else is believed of a file that the job writes.
        marked: list[Record] = [record for record in steps if isinstance(record, Steps)]
        if counters is None or reader is None:
            return marked
        facts = {
            "version": reader.version,
            "backend": self._computes_on(now_ns),
            "script": self._script,
            "gpus_visible": self._visible,
        }
        values = self._values(counters, now_ns)
        return [State(now_ns, JULIA, facts), *marked, Gauges(now_ns, values)]

    @property
    def refusal(self) -> Refusal:
        """What is known from outside, and what is not."""
        if self._failed is not None:
            return Refusal(self._failed.what, self._failed.next_step)
        pid = self._target.pid
        if self._has_marks:
            return Refusal(
                f"Process {pid} runs Julia: its garbage collector is read; only the step"
                " marks are in it."
            )
        return Refusal(
            f"Process {pid} runs Julia: its garbage collector is read, no agent goes in."
        )

    @property
    def unknown(self) -> dict[Metric, str]:
        """Why figures of this version's collector are missing."""
        why = None if self._reader is None else self._reader.only_total
        return {} if why is None else dict.fromkeys(BY_LAYOUT, why)

    def close(self) -> None:
        """Let go of the process."""
        for each in (self._reader, self._spool):
            if each is not None:
                each.close()
        self._reader = self._spool = None
        # Nor is it opened again.
        self._has_marks, self._tried_ns = False, 2**63

    def _opened(self, now_ns: int) -> JuliaReader | None:
        tried = self._tried_ns
        if self._reader is None and (tried is None or now_ns - tried >= TRY_AGAIN_NS):
            self._tried_ns = self._began_ns = now_ns
            try:
                self._reader, self._failed = JuliaReader(self._target.anew()), None
                self._script = _script(self._target)
                who = self._target.anew().identity
                self._visible = None if who is None else who.visible_gpus
                words = self._target.fs.arguments(self._target.pid) or []
                self._has_marks = any(word.endswith(f"/{wire.JULIA_MARKS}") for word in words)
            except Unreadable as error:
                self._failed = error
        return self._reader

    def _look_for_marks(self) -> None:
        address = Address.of(self._target.key, self._target.fs) if self._has_marks else None
        if address is None or self._spool is not None:
            return
        for channel in Channel.candidates(address):
            with contextlib.closing(channel), contextlib.suppress(LinkRefused):
                handle = channel.open_spool()
                self._spool = None if handle is None else Spool(handle)
            if self._spool is not None:
                return

    def _values(self, counters: Counters, now_ns: int) -> dict[str, float | None]:
        first = self._first = self._first or counters
        total = counters.pause_ns - first.pause_ns
        if self._reported is not None:
            reported, then_ns = self._reported
            total = max(reported, min(total, reported + now_ns - then_ns))
        self._reported = total, now_ns
        return {
            wire.GC_NS: total,
            wire.GC_COLLECTIONS: _since(counters.pauses, first.pauses),
            wire.GC_FULL: _since(counters.full, first.full),
            wire.ALLOCATED_BYTES: _since(counters.allocated, first.allocated),
            wire.HEAP_BYTES: counters.alive,
        }

    def _computes_on(self, now_ns: int) -> str:
        if self._backend is None and now_ns >= self._look_ns:
            lived = max(now_ns - self._began_ns, TRY_AGAIN_NS // 30)
            self._look_ns = now_ns + min(SELDOM_NS, LATER * lived)
            files = self._target.fs.mapped_files(self._target.pid) or ()
            drivers = (name for name, like in _DRIVERS if any(map(like.search, files)))
            self._backend = next(drivers, None)
        return self._backend or "cpu"


def _script(target: Target) -> str | None:
    """Return the path of the program, as it can be read from here."""
    who, folder = target.anew().identity, target.fs.link(f"{target.pid}/cwd")
    if who is None or folder is None or not who.script.endswith(".jl"):
        return None
    return os.path.normpath(PurePath(folder, who.script))


def _since(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(0, now - before)
