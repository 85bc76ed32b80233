"""The transfers section of the memory page: over which links, how much, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whyidle.dashboard import markup, theme
from whyidle.dashboard.blocks import Block, Columns, Html, series_chart
from whyidle.dashboard.figures.lines import Limit, Line, lines
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import job, memory, transfers
from whyidle.dashboard.views.job import Trainer
from whyidle.dashboard.views.series import Series, SeriesSource, Subject
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import CopyJson
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.render import numbers

_COLOURS: Final = (theme.SLATE, theme.MIST)


def blocks(data: PageData, whose: Sequence[Trainer]) -> list[Block]:
    """Return the blocks of the section."""
    links = [Columns([_pcie(data), _nvlink(data)])] if data.chosen else []
    rest = Columns([[Html(_copies(data))], _reads(data.series, whose)])
    return [Html(markup.heading("Transfers")), *links, rest]


def _pcie(data: PageData) -> list[Block]:
    series, chosen = data.series, data.chosen
    name = "PCIe" if len(chosen) < 2 else "PCIe, mean of the GPUs"
    carried = [transfers.carried(series, metric, chosen) for metric in transfers.PCIE]
    ids = {gpu.id for gpu in chosen}
    links = [transfers.link(data.newest, gpu) for gpu in data.gpus.rows if gpu.id in ids]
    limits = {link.limit: link.words for link in links if link.limit is not None}
    drawn = [Line(c, colour, band=True) for c, colour in zip(carried, _COLOURS, strict=True)]
    heights = [
        Limit(f"{words}: {numbers.show(limit, 'bytes_per_second')} each way", limit)
        for limit, words in limits.items()
    ]
    figure = lines("pcie", drawn, "bytes_per_second", series.span, limits=heights)
    slower = {
        f"{link.words}, though it supports {link.could_be}" for link in links if link.could_be
    }
    notes = []
    if slower:
        rests = f"The link runs at {'; '.join(sorted(slower))}: it may slow down while idle."
        notes.append(Html(markup.note(rests)))
    if not limits:
        notes.append(Html(markup.note(f"limit of the link: {links[0].words}")))
    return [*series_chart(name, figure, carried, "pcie"), *notes]


def _nvlink(data: PageData) -> list[Block]:
    series, chosen = data.series, data.chosen
    name = "NVLink" if len(chosen) < 2 else "NVLink, mean of the GPUs"
    carried = [transfers.carried(series, metric, chosen) for metric in transfers.NVLINK]
    drawn = [Line(c, colour, band=True) for c, colour in zip(carried, _COLOURS, strict=True)]
    figure = lines("nvlink", drawn, "bytes_per_second", series.span)
    return series_chart(name, figure, carried, "nvlink")


def _copies(data: PageData) -> str:
    shown, end_ms = data.shown, data.span.end_ms
    found = data.seldom("copies", lambda: transfers.copies(shown.reader, shown.run, end_ms))
    name = "Copies in the newest trace"
    if found is None:
        return markup.title(name) + markup.unknown("Copies", *_why_no_copies(data))
    age = f"trace {found.trace}, {numbers.duration(found.age_s)} before the end of what is shown"
    said = [
        f"copies run for {numbers.show(found.copying, 'ratio')} of the time",
        f"nothing else runs during {numbers.show(found.exposed, 'ratio')} of it",
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


def _why_no_copies(data: PageData) -> tuple[str, str]:
    """Return why no trace shows copies, and how to get one; without a GPU there is no way."""
    if not data.gpus.mine:
        return data.no_gpu or job.NONE_READ, ""
    why = "no GPU trace is stored with this run"
    if data.shown.run.is_recording:
        return why, "Take a trace on the page Now"
    return f"{why}, and it is over: only a running job can be traced", ""


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


def _reads(series: SeriesSource, whose: Sequence[Trainer]) -> list[Block]:
    name = "Read back from the device"
    if not whose:
        why = "no process has the agent inside"
        return [
            Html(markup.title(name) + markup.unknown("Values read back", why, "monitor attach PID"))
        ]
    who, there = whose[0].name, whose[0].subjects
    size = _of(series, m.PROCESS_READBACK, there, "bytes")
    drawn = [Line(size, theme.SLATE, fill=True)]
    read = lines("readback", drawn, "bytes_per_second", series.span)
    counts = [
        _of(series, m.PROCESS_SYNCS, there, "values read back"),
        _of(series, m.PROCESS_DEVICE_PUTS, there, "explicit copies to the device"),
    ]
    drawn = [Line(c, colour) for c, colour in zip(counts, _COLOURS, strict=True)]
    calls = lines("calls", drawn, "per_second", series.span)
    return [
        *series_chart(f"{name} ({who})", read, [size], "readback", theme.SMALL_HEIGHT),
        *series_chart("Calls that move data", calls, counts, "calls", theme.SMALL_HEIGHT),
    ]


def _of(series: SeriesSource, metric: Metric, whose: Sequence[Subject], name: str) -> Series:
    return memory.joined(series.of(metric, whose), name)
