"""What a key opens: the findings in full, each GPU and process, help."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from rich.text import Text

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.slices import LOOKS
from whyidle.monitor.render import findings, numbers
from whyidle.monitor.render.budget import in_order, named
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.live import devices, processes
from whyidle.monitor.render.live.lines import aligned, cut
from whyidle.monitor.render.live.view import View

_HELP: Final = (
    ("q, Ctrl-C", "stop watching; your job goes on, the recording is kept"),
    ("d", "what was found, with the evidence and what to write"),
    ("t", "take a short trace now: it shows exactly where the time goes"),
    ("g", "each GPU and each process"),
    ("p", "hold the screen still; the recording goes on"),
    ("↑ ↓", "scroll a page"),
)


class Page(StrEnum):
    """Pages over the live view, by their keys."""

    FINDINGS = "d"
    EACH = "g"
    HELP = "?"


def lines(page: Page, view: View, width: int) -> list[Text]:
    """Return all lines of a page, however many."""
    return list(_PAGES[page](view, width))


def _findings(view: View, width: int) -> Iterator[Text]:
    if view.verdict is not None:
        yield cut(Text(printable(view.verdict.text), "bold"), width)
        yield Text()
    for each in view.findings:
        for part in findings.finding(each, width):
            yield from (cut(line, width) for line in part.split("\n"))
        yield Text()
    if not view.findings:
        yield Text("Nothing is certain yet." if view.verdict is None else "No finding.")
    yield Text(f"All of it, also later: monitor diagnose {view.title.run}", "dim")


def _each(view: View, width: int) -> Iterator[Text]:
    yield from devices.lines(view.devices, width, each=True)
    yield cut(Text(f"shown: {view.shown}", "dim"), width)
    yield Text()
    yield from processes.table(view.members, width)


def _help(view: View, width: int) -> Iterator[Text]:
    yield from aligned([[Text(key, "bold"), said] for key, said in _HELP], width, left=2)
    yield Text()
    if view.account is not None:
        parts = [part for part, _ in in_order(view.account.running.budget)]
        yield from aligned([[named(part), LOOKS[part].meaning] for part in parts], width, left=2)
        notes = view.account.running.notes
        yield from (cut(Text(f"{numbers.DASH} {note}", "dim"), width) for note in notes)
        yield Text()
    own = view.monitor
    yield cut(Text(f"How it is watched: {view.how}."), width)
    cost = f"{numbers.of(own, m.SELF_CPU)} cores, {numbers.of(own, m.SELF_RSS)}"
    yield cut(Text(f"What the monitor takes: {cost}."), width)


_PAGES: Final = {Page.FINDINGS: _findings, Page.EACH: _each, Page.HELP: _help}
