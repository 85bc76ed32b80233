"""Memory & transfers: which processes use memory, whether it grows, and traffic on the links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from whyidle.dashboard import frame, markup, settings, theme, widgets
from whyidle.dashboard.blocks import Block, Columns, Html, series_chart
from whyidle.dashboard.figures.lines import Limit, Line, lines
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.pages import _gpus, _memory_tiles, _transfers
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import job, memory
from whyidle.dashboard.views.job import Trainer
from whyidle.dashboard.views.memory import Growth
from whyidle.dashboard.views.series import Series
from whyidle.dashboard.widgets import write
from whyidle.monitor.core import metrics as m
from whyidle.monitor.render import numbers

TITLE: Final = "Memory & transfers"
_WORDS: Final = {
    m.PROCESS_POOL_USED: "GPU memory in use, by the framework",
    m.PROCESS_LIVE_BYTES: "arrays alive",
    m.JOB_RSS: "main memory of the job",
}


def page(shown: PageState) -> None:
    """Draw the page; live parts refresh by themselves."""
    gpus = job.gpus(shown.reader, shown.run, everything=shown.everything)
    choice = _gpus.choice(gpus)
    frame.live(lambda now: _live(now, choice), shown)


def _live(shown: PageState, choice: str) -> None:
    data = PageData.of(shown, choice)
    store, run = settings.current().store, shown.run.id
    grown, why = data.seldom("growth", lambda: memory.growth(store, run))
    whose = job.trainers(shown.reader, shown.run)
    pools = [(who, memory.pools(data.series, who.subjects)) for who in whose]
    write(_memory_tiles.tiles(data, pools, grown, why))
    of_gpus = (
        Columns([[*_devices(data), *_power(data)], _pools(data, pools)])
        if data.chosen
        else Html(markup.unknown("GPU memory and links", data.no_gpu))
    )
    widgets.board("memory-and-transfers", [
        of_gpus,
        Columns([_main(data), [Html(_growth(grown, why))]]),
        Html(_holders(data)),
        *_transfers.blocks(data, whose),
    ])  # fmt: skip


def _devices(data: PageData) -> list[Block]:
    used = data.series.of(m.GPU_MEMORY_USED, data.chosen)
    limits = _gpus.limits(data.newest, m.GPU_MEMORY_TOTAL, data.chosen, "limit")
    drawn = _gpus.one_by_one(used)
    figure = lines("memory", drawn, "bytes", data.series.span, limits=limits)
    return series_chart("GPU memory in use, all processes", figure, used, "memory")


def _power(data: PageData) -> list[Block]:
    drawn = data.series.of(m.GPU_POWER, data.chosen)
    limits = _gpus.limits(data.newest, m.GPU_POWER_LIMIT, data.chosen, "limit")
    figure = lines("power", _gpus.one_by_one(drawn), "watts", data.series.span, limits=limits)
    return series_chart("Power", figure, drawn, "power")


def _pools(data: PageData, pools: Sequence[tuple[Trainer, Sequence[Series]]]) -> list[Block]:
    name = "GPU memory, by the framework's own count"
    if not pools:
        why = markup.unknown("The framework's count", _memory_tiles.NO_AGENT, "monitor attach PID")
        return [Html(markup.title(name) + why)]
    span = data.series.span
    if len(pools) > 1:
        # To compare several processes, memory in use is enough.
        used = [replace(series[0], name=who.name) for who, series in pools]
        return series_chart(
            name, lines("pool", _gpus.one_by_one(used), "bytes", span), used, "pool"
        )
    series = pools[0][1]
    styles = product(theme.DASHES, (theme.SLATE, theme.MIST))
    drawn = [Line(c, colour, dash) for c, (dash, colour) in zip(series, styles, strict=True)]
    return series_chart(name, lines("pool", drawn, "bytes", span), series, "pool")


def _main(data: PageData) -> list[Block]:
    run = data.shown.run.id
    rss = data.series.one(m.JOB_RSS, run, "resident, all processes")
    limit = data.newest.get(m.JOB_MEMORY_LIMIT, run).value
    whole = data.newest.get(m.HOST_MEMORY_TOTAL, run).value
    most = limit or whole
    words = f"{'limit' if limit else 'machine'} {numbers.size(most or 0.0)}"
    limits = [Limit(words, most)] if most is not None else []
    figure = lines(
        "rss", [Line(rss, theme.SLATE, fill=True)], "bytes", data.series.span, limits=limits
    )
    name = f"Main memory of the job ({words})" if limits else "Main memory of the job"
    return series_chart(name, figure, [rss], "rss")


def _growth(grown: Sequence[Growth], why: str | None) -> str:
    title = markup.title("Growth", f"of the last {memory.GROWTH_SECONDS // 60} minutes at most")
    if why is not None:
        return title + markup.unknown("Growth", f"needs {why}")
    head = ("", "held", "trend", "")
    rows = [
        (
            _WORDS.get(one.metric, one.metric.words),
            numbers.size(one.held),
            _trend(one),
            _memory_tiles.full(one) if one.grows else "",
        )
        for one in grown
    ]
    return title + markup.table(head, rows, right=(1, 2))


def _trend(one: Growth) -> str:
    """Return the rate of growth; for anything else a rate would mislead."""
    return f"+{numbers.size(one.per_hour)}/h" if one.grows else "none"


def _holders(data: PageData) -> str:
    if not data.chosen:
        return ""
    title = markup.title("GPU memory by process")
    found = memory.holders(data.shown.reader, data.shown.run, data.chosen)
    if not found:
        return title + markup.unknown("Processes", "the driver lists none on these GPUs")
    rows = [
        (
            one.gpu, str(one.pid), one.name, "this job" if one.is_ours else "another",
            numbers.show(one.memory, "bytes"), numbers.show(one.share, "ratio"),
        )
        for one in found
    ]  # fmt: skip
    head = ("GPU", "pid", "program", "", "memory", "share of SM time")
    return title + markup.table(head, rows, right=(4, 5))
