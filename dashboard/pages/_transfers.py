"""The part of the memory page that is about transfers: over which links, how much, at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whyidle.dashboard import markup, theme
from whyidle.dashboard.blocks import Block, Columns, Html, courses
from whyidle.dashboard.figures.lines import Limit, Line, lines
from whyidle.dashboard.pages._page_data import Asked
from whyidle.dashboard.views import job, memory, transfers
from whyidle.dashboard.views.job import Trainer
from whyidle.dashboard.views.series import Course, Courses, Subject
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import CopyJson
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.render import numbers

_COLOURS: Final = (theme.BLUE, theme.ORANGE)


def blocks(asked: Asked, whose: Sequence[Trainer]) -> list[Block]:
    """Return what goes over the links."""
    links = [Columns([_pcie(asked), _nvlink(asked)])] if asked.chosen else []
    rest = Columns([[Html(_copies(asked))], _reads(asked.told, whose)])
    return [Html(markup.heading("Transfers")), *links, rest]


def _pcie(asked: Asked) -> list[Block]:
    told, chosen = asked.told, asked.chosen
    name = "PCIe" if len(chosen) < 2 else "PCIe, mean of the GPUs"
    carried = [transfers.carried(told, metric, chosen) for metric in transfers.PCIE]
    ids = {gpu.id for gpu in chosen}
    links = [transfers.link(asked.newest, gpu) for gpu in asked.gpus.rows if gpu.id in ids]
    limits = {link.limit: link.words for link in links if link.limit is not None}
    drawn = [Line(c, colour, band=True) for c, colour in zip(carried, _COLOURS, strict=True)]
    heights = [
        Limit(f"{words}: {numbers.show(limit, 'bytes_per_second')} each way", limit)
        for limit, words in limits.items()
    ]
    figure = lines("pcie", drawn, "bytes_per_second", told.span, limits=heights)
    slower = {f"{link.words}, and could be {link.could_be}" for link in links if link.could_be}
    notes = []
    if slower:
        rests = f"The link runs at {'; '.join(sorted(slower))}: it may rest while it is idle."
        notes.append(Html(markup.note(rests)))
    if not limits:
        notes.append(Html(markup.note(f"limit of the link: {links[0].words}")))
    return [*courses(name, figure, carried, "pcie"), *notes]


def _nvlink(asked: Asked) -> list[Block]:
    told, chosen = asked.told, asked.chosen
    name = "NVLink" if len(chosen) < 2 else "NVLink, mean of the GPUs"
    carried = [transfers.carried(told, metric, chosen) for metric in transfers.NVLINK]
    drawn = [Line(c, colour, band=True) for c, colour in zip(carried, _COLOURS, strict=True)]
    figure = lines("nvlink", drawn, "bytes_per_second", told.span)
    return courses(name, figure, carried, "nvlink")


def _copies(asked: Asked) -> str:
    shown, end_ms = asked.shown, asked.span.end_ms
    found = asked.seldom("copies", lambda: transfers.copies(shown.reader, shown.run, end_ms))
    name = "Copies, by the newest trace"
    if found is None:
        return markup.title(name) + markup.unknown("Copies", *_why_no_copies(asked))
    age = f"trace {found.trace}, {numbers.duration(found.age_s)} before the end of what is shown"
    said = [
        f"copies run for {numbers.show(found.copying, 'ratio')} of the time",
        f"nothing else runs meanwhile for {numbers.show(found.exposed, 'ratio')}",
        *(
            f"{numbers.show(share, 'ratio')} of the bytes {direction} are pageable"
            for direction, share in found.pageable.items()
            if share is not None
        ),
    ]
    head = ("copies", "count", "bytes", "time", "speed")
    rows = [_copy(row) for row in found.rows]
    table = markup.table(head, rows, right=(1, 2, 3, 4)) if rows else ""
    return markup.title(name, age) + markup.note("; ".join(said) + ".") + table


def _why_no_copies(asked: Asked) -> tuple[str, str]:
    """Return why no trace tells of copies, and what would bring one; nothing would without GPU."""
    if not asked.gpus.mine:
        return f"no GPU is read: {asked.no_gpu or job.NONE_READ}", ""
    why = "no trace of a GPU was kept with this run"
    if asked.shown.run.is_recording:
        return why, "Take a trace on the page Now"
    return f"{why}, and it is over: one of a running job has them", ""


def _copy(row: CopyJson) -> tuple[str, ...]:
    memory_of = row["memory"] if row["memory"] not in {None, "device", "unknown"} else ""
    size, speed = row["bytes"], row["gb_per_s"]
    return (
        f"{row['direction']}{memory_of and f', {memory_of}'}",
        f"{row['count']:,}",
        numbers.DASH if size is None else numbers.size(size),
        numbers.amount(row["total_ns"] / 1e9, "s"),
        numbers.DASH if speed is None else f"{speed:.1f} GB/s",
    )


def _reads(told: Courses, whose: Sequence[Trainer]) -> list[Block]:
    name = "Read back from the device"
    if not whose:
        why = "no process has the agent inside"
        return [
            Html(markup.title(name) + markup.unknown("Values read back", why, "monitor attach PID"))
        ]
    who, there = whose[0].name, whose[0].subjects
    size = _of(told, m.PROCESS_READBACK, there, "bytes")
    drawn = [Line(size, theme.BLUE, fill=True)]
    read = lines("readback", drawn, "bytes_per_second", told.span)
    counts = [
        _of(told, m.PROCESS_SYNCS, there, "values read back"),
        _of(told, m.PROCESS_DEVICE_PUTS, there, "explicit copies to the device"),
    ]
    drawn = [Line(c, colour) for c, colour in zip(counts, _COLOURS, strict=True)]
    calls = lines("calls", drawn, "per_second", told.span)
    return [
        *courses(f"{name} ({who})", read, [size], "readback", theme.SMALL_HEIGHT),
        *courses("Calls that move data", calls, counts, "calls", theme.SMALL_HEIGHT),
    ]


def _of(told: Courses, metric: Metric, whose: Sequence[Subject], name: str) -> Course:
    return memory.joined(told.of(metric, whose), name)
