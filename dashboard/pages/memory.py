"""Memory & transfers: who holds the memory and whether it grows, and what goes over the links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from whyidle.dashboard import frame, markup, settings, theme, widgets
from whyidle.dashboard.blocks import Block, Columns, Html, courses
from whyidle.dashboard.figures.lines import Limit, Line, lines
from whyidle.dashboard.frame import Shown
from whyidle.dashboard.pages import _gpus, _memory_tiles, _transfers
from whyidle.dashboard.pages._page_data import Asked
from whyidle.dashboard.views import job, memory
from whyidle.dashboard.views.job import Trainer
from whyidle.dashboard.views.memory import Growth
from whyidle.dashboard.views.series import Course
from whyidle.dashboard.widgets import write
from whyidle.monitor.core import metrics as m
from whyidle.monitor.render import numbers

TITLE: Final = "Memory & transfers"
# The limit is drawn where the job comes so near to it.
NEAR_LIMIT: Final = 0.5
_WORDS: Final = {
    m.PROCESS_POOL_USED: "GPU memory in use, by the framework",
    m.PROCESS_LIVE_BYTES: "arrays alive",
    m.JOB_RSS: "main memory of the job",
}


def page(shown: Shown) -> None:
    """Draw the page; what moves is drawn anew by itself."""
    gpus = job.gpus(shown.reader, shown.run, everything=shown.everything)
    choice = _gpus.choice(gpus)
    frame.live(lambda now: _live(now, choice), shown)


def _live(shown: Shown, choice: str) -> None:
    asked = Asked.of(shown, choice)
    store, run = settings.current().store, shown.run.id
    grown, why = asked.seldom("growth", lambda: memory.growth(store, run))
    whose = job.trainers(shown.reader, shown.run)
    pools = [(who, memory.pools(asked.told, who.subjects)) for who in whose]
    write(_memory_tiles.tiles(asked, pools, grown, why))
    of_gpus = (
        Columns([_devices(asked), _pools(asked, pools)])
        if asked.chosen
        else Html(markup.unknown("GPU memory and links", asked.no_gpu))
    )
    widgets.board("memory-and-transfers", [
        of_gpus,
        Columns([_main(asked), [Html(_growth(grown, why))]]),
        Html(_holders(asked)),
        *_transfers.blocks(asked, whose),
    ])  # fmt: skip


def _devices(asked: Asked) -> list[Block]:
    used = asked.told.of(m.GPU_MEMORY_USED, asked.chosen)
    limits = _gpus.limits(asked.newest, m.GPU_MEMORY_TOTAL, asked.chosen, "limit")
    drawn = _gpus.one_by_one(used)
    figure = lines("memory", drawn, "bytes", asked.told.span, limits=limits)
    return courses("GPU memory, in use by everybody", figure, used, "memory")


def _pools(asked: Asked, pools: Sequence[tuple[Trainer, Sequence[Course]]]) -> list[Block]:
    name = "GPU memory, by the framework's own count"
    if not pools:
        why = markup.unknown("The framework's count", _memory_tiles.NO_AGENT, "monitor attach PID")
        return [Html(markup.title(name) + why)]
    span = asked.told.span
    if len(pools) > 1:
        # Of several processes what they use is enough to compare.
        used = [replace(told[0], name=who.name) for who, told in pools]
        return courses(name, lines("pool", _gpus.one_by_one(used), "bytes", span), used, "pool")
    told = pools[0][1]
    looks = ((theme.BLUE, "solid"), (theme.SKY, "solid"), (theme.VERMILION, "dot"),
             (theme.GREEN, "solid"))  # fmt: skip
    drawn = [Line(c, colour, dash) for c, (colour, dash) in zip(told, looks, strict=True)]
    return courses(name, lines("pool", drawn, "bytes", span), told, "pool")


def _main(asked: Asked) -> list[Block]:
    run = asked.shown.run.id
    rss = asked.told.one(m.JOB_RSS, run, "resident, all processes")
    limit = asked.newest.get(m.JOB_MEMORY_LIMIT, run).value
    whole = asked.newest.get(m.HOST_MEMORY_TOTAL, run).value
    most = limit or whole
    words = f"{'limit' if limit else 'machine'} {numbers.size(most or 0.0)}"
    # Far below its limit the course would be a flat line at the bottom.
    is_near = most is not None and rss.peak is not None and rss.peak[1] > NEAR_LIMIT * most
    limits = [Limit(words, most)] if most is not None and is_near else []
    drawn = [Line(rss, theme.BLUE, fill=True)]
    figure = lines("rss", drawn, "bytes", asked.told.span, limits=limits)
    is_far = most and not is_near and rss.unknown is None
    below = [Html(markup.note(f"{words}: far above what is shown"))] if is_far else []
    return [*courses("Main memory of the job", figure, [rss], "rss"), *below]


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
    """Return the pace of what grows; of all else a pace would foretell what is not to come."""
    return f"+{numbers.size(one.per_hour)}/h" if one.grows else "none"


def _holders(asked: Asked) -> str:
    if not asked.chosen:
        return ""
    title = markup.title("Who holds it")
    found = memory.holders(asked.shown.reader, asked.shown.run, asked.chosen)
    if not found:
        return title + markup.unknown("Processes", "the driver names none on these GPUs")
    rows = [
        (
            one.gpu, str(one.pid), one.name, "this job" if one.is_ours else "another",
            numbers.show(one.memory, "bytes"), numbers.show(one.share, "ratio"),
        )
        for one in found
    ]  # fmt: skip
    head = ("GPU", "pid", "program", "", "memory", "share of SM time")
    return title + markup.table(head, rows, right=(4, 5))
