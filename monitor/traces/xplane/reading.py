"""An XPlane file -> a ``Trace``."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from whyidle.monitor.traces.model import Device, DeviceKind, Marks, Ops, Trace
from whyidle.monitor.traces.opening import Progress, Source
from whyidle.monitor.traces.xplane import facts
from whyidle.monitor.traces.xplane.chunks import Chunks
from whyidle.monitor.traces.xplane.clock import PS, Clock
from whyidle.monitor.traces.xplane.columns import Columns
from whyidle.monitor.traces.xplane.devices import Gpu, Tpu, works
from whyidle.monitor.traces.xplane.hlo import Programs
from whyidle.monitor.traces.xplane.hosts import HostPlanes, is_host
from whyidle.monitor.traces.xplane.interning import Interner
from whyidle.monitor.traces.xplane.outline import Outliner
from whyidle.monitor.traces.xplane.plane_reader import NOTHING, PlaneReader, PlaneRequest
from whyidle.monitor.traces.xplane.planes import Outline, Plane

SORTERS: Final = 2
_DEVICE: Final = re.compile(r"/device:(GPU|TPU):(\d+)$")


def read(source: Source, progress: Progress | None = None) -> Trace:
    """Read a file whole, or what can be read of it, with warnings."""

    def report(walk: int, consumed: int) -> None:
        if progress is not None:
            # A compressed file is decompressed by both walks, any other is read by the second.
            part = (consumed + walk * source.size) // 2 if source.compressed else walk * consumed
            progress(part, source.size)

    with source.open() as stream:
        outline = Outliner(stream, partial(report, 0)).run()
        damage = stream.damage
    reading = _walked(source, outline, partial(report, 1), works=_seems_to_work(outline))
    if reading.has_device_work != reading.works:
        # The host's part was read for the wrong case: rare, so the file is read once more.
        reading = _walked(source, outline, lambda _: None, works=not reading.works)
    reading.put_in_order(source)
    return reading.finish(damage)


def _seems_to_work(outline: Outline) -> bool:
    """Whether a device ran operations, as far as its unread lines show."""
    devices = (plane for plane in outline.planes if _DEVICE.match(plane.name))
    return any(works(line) for plane in devices for line in plane.lines)


def _walked(
    source: Source, outline: Outline, progress: Callable[[int], None], *, works: bool
) -> _Reading:
    with source.open() as stream:
        reading = _Reading(outline, Chunks(stream, progress), works=works)
        reading.run()
    return reading


class _Reading:
    """One file on its way to a trace; ``works``: whether a device runs the operations."""

    def __init__(self, outline: Outline, chunks: Chunks, *, works: bool) -> None:
        self.works = works
        self._outline = outline
        self._chunks = chunks
        self._intern = Interner()
        self._clock = Clock([line for plane in outline.planes for line in plane.lines])
        self._gatherer = PlaneReader(chunks, self._intern, self._clock)
        self._pid = facts.pid(outline)
        self._hosts = HostPlanes(self._intern, self._pid, runs_ops=not works)
        self._programs = Programs()
        self._steps: Marks | None = None
        self._devices: list[tuple[Gpu, Plane, DeviceKind, str]] = []
        self.trace = Trace("xplane", PS, names=self._intern.names)

    def run(self) -> None:
        """Read plane after plane."""
        # A plane without lines counts among those of its name, too.
        planes = [(plane, self._request(plane)) for plane in self._outline.planes]
        self._gatherer.read([each for each in planes if each[0].lines])

    def _request(self, plane: Plane) -> PlaneRequest:
        """Return what to read of a plane; operations are noted, for their lines of code."""
        request = NOTHING
        if found := _DEVICE.match(plane.name):
            kind: DeviceKind = "gpu" if found[1] == "GPU" else "tpu"
            device = Gpu(plane, self._intern) if kind == "gpu" else Tpu(plane, self._intern)
            self._devices.append((device, plane, kind, found[2]))
            request = device.request
        elif is_host(plane):
            request = self._hosts.request(plane)

        if "hlo_module" not in request.stats:
            return request

        def take(columns: Columns) -> None:
            self._programs.note(columns.hlo_module, columns.hlo_op)
            request.take(columns)

        return PlaneRequest(request.line, request.stats, take)

    @property
    def has_device_work(self) -> bool:
        """Whether any device ran an operation."""
        return any(device.ran for device, *_ in self._devices)

    def put_in_order(self, source: Source) -> None:
        """Sort what was read, and meanwhile find the lines of code: NumPy lets others run."""
        with ThreadPoolExecutor(SORTERS) as pool:
            spans = pool.submit(self._hosts.spans)
            ops = [pool.submit(device.ops) for device, *_ in self._devices]
            # The operations of a TPU have no programs before they are sorted.
            late = any(isinstance(device, Tpu) for device, *_ in self._devices)
            if not late:
                self._read_sources(source)
            for each, found in zip(self._devices, ops, strict=True):
                self._add(*each, found.result())
            if late:
                self._read_sources(source)
            self.trace.host, self.trace.calls = spans.result()

    def _add(self, device: Gpu, plane: Plane, kind: DeviceKind, index: str, ops: Ops) -> None:
        if not len(ops):
            return
        if isinstance(device, Tpu):
            self._programs.note(ops.hlo_module, ops.hlo_op)
            self._steps = self._steps or device.steps()
        host = self._outline.hosts[0] if len(self._outline.hosts) == 1 else None
        model = facts.model(plane)
        self.trace.devices.append(Device(kind, index, ops, host, self._pid, model=model))

    def _read_sources(self, source: Source) -> None:
        """Find the lines of code behind the operations that ran."""
        protos = [proto for plane in self._outline.planes for proto in plane.protos]
        sources = self._programs.sources(self._intern.names)
        if chosen := sources.choose(protos):
            with source.open() as stream:
                sources.read(stream, chosen)
        intern = self._intern
        found = {(intern(m), intern(op)): site for (m, op), site in sources.sites.items()}
        self.trace.sources = found
        if sources.left_out:
            programs = _many(sources.left_out, "XLA program")
            self.trace.warnings.append(
                f"{programs} damaged or too large to be read: no lines of code of their operations."
            )

    def finish(self, damage: str | None) -> Trace:
        """Return the trace."""
        trace = self.trace
        trace.events = self._chunks.events
        trace.origin_ns = self._clock.origin_ns
        trace.threads = self._hosts.threads
        trace.marks = self._hosts.marks()
        if not len(trace.marks) and self._steps is not None:
            trace.marks = self._steps
        trace.unknown = facts.unknown(trace, self._outline, self._pid)
        joined = facts.joined(trace, self._outline)
        trace.warnings = [*self._outline.warnings, *trace.warnings, *joined]
        trace.warnings += self._damage(damage)
        trace.dropped = self._outline.dropped
        return trace

    def _damage(self, damage: str | None) -> list[str]:
        counts = (
            (self._gatherer.damaged, "event", "damaged, and left out."),
            (self._chunks.damaged, "byte", "among the events damaged, and left out."),
            (self._clock.impossible, "event", "with times that cannot be, and left out."),
        )
        found = [f"{_many(count, thing)} {what}" for count, thing, what in counts if count]
        if damage:
            found.append(f"The file is not whole: {damage}.")
        if not self._outline.planes:
            found.append("The file holds no planes.")
        return found


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' if count > 1 else ''}"
