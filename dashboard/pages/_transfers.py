"""The part of the memory page that is about transfers: over which links, how much, at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from whyidle.dashboard import look, parts
from whyidle.dashboard.figures.lines import Limit, Line, lines
from whyidle.dashboard.pages._asked import Asked
from whyidle.dashboard.views import job, memory, transfers
from whyidle.dashboard.views.courses import Course, Courses, Subject
from whyidle.dashboard.views.job import Trainer
from whyidle.monitor import metrics as m
from whyidle.monitor.metrics import Metric
from whyidle.monitor.render import numbers

_COLOURS: Final = (look.BLUE, look.ORANGE)


def draw(asked: Asked, whose: Sequence[Trainer]) -> None:
    """Draw what goes over the links."""
    parts.heading("Transfers")
    if asked.chosen:
        left, right = parts.halves()
        with left:
            _pcie(asked)
        with right:
            _nvlink(asked)
    left, right = parts.halves()
    with left:
        _copies(asked)
    with right:
        _reads(asked.told, whose)


def _pcie(asked: Asked) -> None:
    told, chosen = asked.told, asked.chosen
    name = "PCIe" if len(chosen) < 2 else "PCIe, mean of the GPUs"
    courses = [transfers.carried(told, metric, chosen) for metric in transfers.PCIE]
    ids = {gpu.id for gpu in chosen}
    links = [transfers.link(asked.newest, gpu) for gpu in asked.gpus.rows if gpu.id in ids]
    limits = {link.limit: link.words for link in links if link.limit is not None}
    drawn = [Line(c, colour, band=True) for c, colour in zip(courses, _COLOURS, strict=True)]
    heights = [
        Limit(f"{words}: {numbers.show(limit, 'bytes_per_second')} each way", limit)
        for limit, words in limits.items()
    ]
    figure = lines("pcie", drawn, "bytes_per_second", told.span, limits=heights)
    parts.courses(name, figure, courses, "pcie")
    slower = {f"{link.words}, and could be {link.could_be}" for link in links if link.could_be}
    if slower:
        parts.note(f"The link runs at {'; '.join(sorted(slower))}: it may rest while it is idle.")
    if not limits:
        parts.note(f"limit of the link: {links[0].words}")


def _nvlink(asked: Asked) -> None:
    told, chosen = asked.told, asked.chosen
    name = "NVLink" if len(chosen) < 2 else "NVLink, mean of the GPUs"
    courses = [transfers.carried(told, metric, chosen) for metric in transfers.NVLINK]
    drawn = [Line(c, colour, band=True) for c, colour in zip(courses, _COLOURS, strict=True)]
    figure = lines("nvlink", drawn, "bytes_per_second", told.span)
    parts.courses(name, figure, courses, "nvlink")


def _copies(asked: Asked) -> None:
    shown, end_ms = asked.shown, asked.span.end_ms
    found = asked.seldom("copies", lambda: transfers.copies(shown.reader, shown.run, end_ms))
    if found is None:
        parts.title("Copies, by the newest trace")
        parts.unknown("Copies", *_why_no_copies(asked))
        return
    age = f"trace {found.trace}, {numbers.duration(found.age_s)} before the end of what is shown"
    parts.title("Copies, by the newest trace", age)
    said = [
        f"copies run for {numbers.show(found.copying, 'ratio')} of the time",
        f"nothing else runs meanwhile for {numbers.show(found.exposed, 'ratio')}",
        *(
            f"{numbers.show(share, 'ratio')} of the bytes {direction} are pageable"
            for direction, share in found.pageable.items()
            if share is not None
        ),
    ]
    parts.note("; ".join(said) + ".")
    if found.rows:
        head = ("copies", "count", "bytes", "time", "speed")
        parts.table(head, [_copy(row) for row in found.rows], right=(1, 2, 3, 4))


def _why_no_copies(asked: Asked) -> tuple[str, str]:
    """Return why no trace tells of copies, and what would bring one; nothing would without GPU."""
    if not asked.gpus.mine:
        return f"no GPU is read: {asked.no_gpu or job.NONE_READ}", ""
    why = "no trace of a GPU was kept with this run"
    if asked.shown.run.is_recording:
        return why, "Take a trace on the page Now"
    return f"{why}, and it is over: one of a running job has them", ""


def _copy(row: Mapping[str, Any]) -> tuple[str, ...]:
    memory_of = row["memory"] if row["memory"] not in {None, "device", "unknown"} else ""
    size, speed = row["bytes"], row["gb_per_s"]
    return (
        f"{row['direction']}{memory_of and f', {memory_of}'}",
        f"{row['count']:,}",
        numbers.DASH if size is None else numbers.size(size),
        numbers.amount(row["total_ns"] / 1e9, "s"),
        numbers.DASH if speed is None else f"{speed:.1f} GB/s",
    )


def _reads(told: Courses, whose: Sequence[Trainer]) -> None:
    name = "Read back from the device"
    if not whose:
        parts.title(name)
        parts.unknown("Values read back", "no process has the agent inside", "monitor attach PID")
        return
    who, there = whose[0].name, whose[0].subjects
    size = _of(told, m.PROCESS_READBACK, there, "bytes")
    drawn = [Line(size, look.BLUE, fill=True)]
    figure = lines("readback", drawn, "bytes_per_second", told.span)
    parts.courses(f"{name} ({who})", figure, [size], "readback", look.SMALL_HEIGHT)
    counts = [
        _of(told, m.PROCESS_SYNCS, there, "values read back"),
        _of(told, m.PROCESS_DEVICE_PUTS, there, "explicit copies to the device"),
    ]
    drawn = [Line(c, colour) for c, colour in zip(counts, _COLOURS, strict=True)]
    figure = lines("calls", drawn, "per_second", told.span)
    parts.courses("Calls that move data", figure, counts, "calls", look.SMALL_HEIGHT)


def _of(told: Courses, metric: Metric, whose: Sequence[Subject], name: str) -> Course:
    return memory.joined(told.of(metric, whose), name)
