"""The layout: the title on top, the keys at the bottom, and what fits between them.

What does not fit goes from the bottom of the middle, where it matters least; a wide screen has two
columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.text import Text

from whyidle.monitor.render.live import account, advice, devices, host, processes, title
from whyidle.monitor.render.live.lines import BETWEEN, beside, cut
from whyidle.monitor.render.live.pages import Page
from whyidle.monitor.render.live.pages import lines as lines_of_page
from whyidle.monitor.render.live.view import View
from whyidle.monitor.render.plain import NewsLine

# Two columns of so many are wide enough for all that a line has to say.
TWO_COLUMNS: Final = 160
# The GPUs of one host, each of which has a line there.
MOST_EACH: Final = 8
EVENTS: Final = 6
# Between the top, the middle and the bottom.
LINES: Final = 2
# Columns and lines.
Size = tuple[int, int]


def main(view: View, size: Size, foot: list[Text], *, paused: bool = False) -> list[Text]:
    """Return the screen, as many lines as there are."""
    width = size[0]
    two = width >= TWO_COLUMNS
    narrow = (width - BETWEEN) // 2 if two else width
    right_width = width - narrow - BETWEEN if two else width
    left = [advice.lines(view.advice, narrow)]
    if view.account is not None:
        left.append(account.lines(view.account, narrow))
    right = [
        devices.lines(view.devices, right_width, each=two and len(view.devices.each) <= MOST_EACH),
        [*processes.lines(view.members, right_width), *host.lines(view.host, right_width)],
        _events(view, right_width),
    ]
    # What a person has time for once all the rest is there.
    code = advice.code(view.advice[0], narrow)
    if two:
        middle = beside(_parted([*left, code], narrow), _parted(right, right_width), narrow)
    else:
        middle = _parted([*left, *right, code], width)
    return _framed(_top(view, width, paused=paused), middle, foot, size)


def page(
    of: Page, view: View, size: Size, foot: list[Text], scrolled: int
) -> tuple[list[Text], int]:
    """Return a page from a line on, and how far it can be scrolled."""
    width, height = size
    top = _top(view, width)[:1]
    found = lines_of_page(of, view, width)
    most = max(0, len(found) - (height - len(top) - len(foot) - LINES))
    return _framed(top, found[min(scrolled, most) :], foot, size), most


def _top(view: View, width: int, *, paused: bool = False) -> list[Text]:
    lines = title.head(view.title, width, paused=paused)
    if view.trouble:
        lines.append(cut(Text(f"! {view.trouble}", "bold yellow"), width))
    return lines


def _events(view: View, width: int) -> list[Text]:
    return [cut(_event(clock, event), width) for clock, event in reversed(view.events[-EVENTS:])]


def _event(clock: str, event: NewsLine) -> Text:
    said = f"{event.marked[:1]} {clock:>7}  {event.text}"
    return Text(said, "yellow" if event.alarming else "dim")


def _parted(parts: Iterable[Sequence[Text]], width: int) -> list[Text]:
    """Return the parts below each other, with a line between them."""
    lines: list[Text] = []
    for part in parts:
        if part:
            lines += [*([_line(width)] if lines else []), *part]
    return lines


def _line(width: int) -> Text:
    return Text("─" * width, "dim")


def _framed(top: list[Text], middle: list[Text], foot: list[Text], size: Size) -> list[Text]:
    width, height = size
    room = max(0, height - len(top) - len(foot) - LINES)
    shown = middle[:room]
    # A line or a heading below which nothing fits says nothing.
    while shown and shown[-1].plain.strip("─") in {"", advice.HEADING}:
        shown.pop()
    blank = [Text() for _ in range(room - len(shown))]
    return [*top, _line(width), *shown, *blank, _line(width), *foot][-height:]
