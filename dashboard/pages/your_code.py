"""Your code: at which of your lines the main thread was, and what it did there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from whyidle.dashboard import frame, markup, widgets
from whyidle.dashboard.blocks import Block, Chart, Html
from whyidle.dashboard.figures import icicle
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.markup import Part, safe
from whyidle.dashboard.pages import _gpus, _tables
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import source, your_code
from whyidle.dashboard.views.time_range import ALL
from whyidle.dashboard.views.your_code import HotLine, Sampled, YourCode
from whyidle.dashboard.widgets import write
from whyidle.monitor.core.contracts.diagnosis import PlaceJson
from whyidle.monitor.core.host_class import HOST_LOOKS
from whyidle.monitor.render import numbers
from whyidle.monitor.runs.stacks import place_json
from whyidle.monitor.signals import code_boxes
from whyidle.monitor.store import Run

TITLE: Final = "Your code"
# Samples are kept every ten seconds at most.
EVERY: Final = 10.0
# Fewer say little: a share of a half may be wrong by a tenth.
FEW: Final = 100
# What a line does besides is in the chart.
MOST_CLASSES: Final = 3
_HOW: Final = (
    "Each box is a line of yours, above the lines that it called, and as wide as its share. A dark"
    " grey one has time of several kinds: the boxes below it show which. A click zooms in, and"
    " one on the top box back out."
)
_STYLE: Final = """
<style>
.w-line { border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent); }
.w-line summary { cursor: pointer; list-style-position: inside; font-size: 0.86rem;
  display: grid; grid-template-columns: 7.5rem minmax(0, 1fr) minmax(0, 17rem); gap: 2px 14px;
  padding: 4px 0; font-variant-numeric: tabular-nums; align-items: baseline; }
.w-line summary > * { overflow-wrap: anywhere; min-width: 0; }
.w-line .w-open::before { content: "▸ "; opacity: 0.7; }
.w-line[open] .w-open::before { content: "▾ "; }
.w-line > div { margin: 2px 0 10px 0; }
.w-doing { display: block; white-space: nowrap; }
.w-dot { display: inline-block; width: 11px; height: 11px; margin-right: 6px;
  vertical-align: -1px; }
@media (max-width: 800px) { .w-line summary { grid-template-columns: 7.5rem minmax(0, 1fr); }
  .w-line summary > :last-child { grid-column: 2; } }
</style>
"""


def page(shown: PageState) -> None:
    """Draw the page; for a running job it refreshes now and then."""
    write(_tables.STYLE + _STYLE)
    who = _choice(your_code.sampled(shown.reader, shown.run))
    every = None if shown.every is None else max(EVERY, shown.every)
    frame.live(lambda now: _live(now, who), shown, every)


def _choice(some: Sequence[Sampled]) -> str | None:
    """Draw the choice among several processes; return the name of the chosen one."""
    if len(some) < 2:
        return None
    names = [each.name for each in some]
    return st.segmented_control(
        "Process", names, default=names[0], key="process", bind="query-params",
        label_visibility="collapsed",
    )  # fmt: skip


def _live(shown: PageState, who: str | None) -> None:
    data = PageData.of(shown, _gpus.TOGETHER)
    some = _sampled(data)
    chosen = next((each for each in some if each.name == who), some[0] if some else None)
    found = None if chosen is None else read(data, chosen)
    if chosen is None or found is None:
        why, step = your_code.why_not(shown.reader, shown.run, anything=chosen is not None)
        widgets.unknown("Where your code spends its time", why, step)
        return
    past = "the whole run" if shown.range == ALL else f"the last {shown.range}"
    widgets.board("your-code", _blocks(found, chosen, past, shown.run))


def _sampled(data: PageData) -> Sequence[Sampled]:
    shown = data.shown
    return data.seldom("sampled", lambda: your_code.sampled(shown.reader, shown.run))


def read(data: PageData, who: Sampled) -> YourCode | None:
    """Return what a process did in the shown range; the answer may be a few seconds old."""
    shown = data.shown
    name = f"your code {who.name} {data.span.name}"
    return data.seldom(name, lambda: your_code.of(shown.reader, shown.run, who, data.span))


def hottest(data: PageData, said: Sequence[PlaceJson] = ()) -> str:
    """Return the hottest line of the user's; empty where none is known, or it was just said."""
    some = _sampled(data)
    found = read(data, some[0]) if some else None
    hot = next((each for each in found.lines if each.line), None) if found is not None else None
    if hot is None or hot.line is None or hot.line[:2] in {(x.file, x.line) for x in said}:
        return ""
    doing = HOST_LOOKS[next(iter(hot.doing))].words
    share = f"{numbers.show(hot.share, 'ratio')} ± {numbers.show(hot.error, 'ratio')}"
    link = markup.link("code", TITLE, run=data.shown.run.id, range=data.shown.range)
    return (
        '<p class="w-note">Your hottest line: <span class="w-mono">'
        f"{safe(code_boxes.named(hot.line))}</span>, {share} of the main thread's samples"
        f" ({safe(doing)}) {link}</p>"
    )


def _blocks(found: YourCode, who: Sampled, past: str, run: Run) -> list[Block]:
    account = found.account
    error = numbers.show(account.error(0.5), "ratio")
    count = f"{account.samples:,.0f} samples of {who.name}, {past}"
    few = "; few: the shares are rough" if account.samples < FEW else ""
    parts = [
        Part(look.words, look.meaning, look.colour, account.share(doing))
        for doing, look in HOST_LOOKS.items()
    ]
    caveats = "".join(markup.note(each) for each in found.caveats)
    return [
        Html(
            markup.bar(
                "What the main thread did",
                f"{count}; shares are ± {error} at most{few}",
                parts,
            )
            + caveats
        ),
        Html(markup.title("Where it did it", _HOW)),
        Chart(
            "your-code",
            icicle.icicle(f"your-code {who.name} {past}", found.boxes, account.samples),
            icicle.height(found.boxes),
        ),
        Html(_lines(found, run)),
    ]


def _lines(found: YourCode, run: Run) -> str:
    rows = "".join(_line(each, run) for each in found.lines)
    rest = 1 - sum(each.share for each in found.lines)
    lines = "line" if found.more_lines == 1 else "lines"
    more = f"{found.more_lines} more {lines}: {rest:.1%}" if found.more_lines else ""
    head = markup.title("The hottest lines", "Click a line to see its code.")
    return f"{head}<div>{rows}</div>{markup.note(more) if more else ''}"


def _line(hot: HotLine, run: Run) -> str:
    share = f"{numbers.show(hot.share, 'ratio')} ± {numbers.show(hot.error, 'ratio')}"
    cells = (
        f"<span>{safe(share)}</span>"
        f'<span class="w-mono w-open">{safe(code_boxes.named(hot.line))}</span>'
        f"<span>{_doings(hot)}</span>"
    )
    key = "" if hot.line is None else f"{hot.line.file}:{hot.line.line} {hot.line.function}"
    return (
        f'<details class="w-line" data-key="{safe(key)}"><summary>{cells}</summary>'
        f"<div>{_code(hot, run)}</div></details>"
    )


def _doings(hot: HotLine) -> str:
    parts = []
    for doing, share in list(hot.doing.items())[:MOST_CLASSES]:
        look = HOST_LOOKS[doing]
        of_it = f" {share / hot.share:.0%}" if len(hot.doing) > 1 else ""
        parts.append(
            f'<span class="w-doing" title="{safe(look.meaning)}"><i class="w-dot"'
            f' style="background:{look.colour}"></i>{safe(look.words)}{of_it}</span>'
        )
    return "".join(parts)


def _code(hot: HotLine, run: Run) -> str:
    if hot.line is None:
        return markup.note(
            "Libraries ran that no line of yours had called: threads, imports, exit."
        )
    file, line, _ = hot.line
    place = f'<div class="w-mono w-sub">{safe(f"{file}:{line}")}</div>'
    code = source.around(place_json(hot.line), run)
    if isinstance(code, str):
        return place + markup.note(f"Its code is not shown: {code}.")
    return place + _tables.code(code)
