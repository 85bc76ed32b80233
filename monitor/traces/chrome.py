"""The events of Chrome's trace format, one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from whyidle.monitor.core.contracts.trace import JsonObject


class Track(NamedTuple):
    """A line of a viewer: the format calls the group a process and the line a thread."""

    group: int
    line: int


class ChromeEvents:
    """Writes times as the format wants them: microseconds, whose decimals keep every tick."""

    def __init__(self, ticks_per_ns: int) -> None:
        self._per_us = 1000 * ticks_per_ns
        self._digits = len(str(self._per_us)) - 1
        self._number = count(1)

    def _time(self, ticks: int) -> str:
        sign, ticks = ("-", -ticks) if ticks < 0 else ("", ticks)
        return f"{sign}{ticks // self._per_us}.{ticks % self._per_us:0{self._digits}d}"

    def span(self, track: Track, start: int, end: int, fields: str) -> str:
        """Return something that lasted; ``fields`` is the rest of its JSON."""
        return (
            f'{{"ph":"X","pid":{track.group},"tid":{track.line},"ts":{self._time(start)},'
            f'"dur":{self._time(end - start)},{fields}}}'
        )

    def arrow(self, name: str, begin: tuple[Track, int], end: tuple[Track, int]) -> Iterator[str]:
        """Yield an arrow between spans that begin at these times on these tracks."""
        head = f'"id":{next(self._number)},"name":"{name}","cat":"{name}"'
        for phase, ((group, line), ticks) in (('"s"', begin), ('"f","bp":"e"', end)):
            at = f'"pid":{group},"tid":{line},"ts":{self._time(ticks)}'
            yield f'{{"ph":{phase},{head},{at}}}'


def named_group(group: int, name: str) -> Iterator[str]:
    """Yield the name of a group of tracks, and its place among them."""
    yield _meta("process_name", Track(group, 0), {"name": name})
    yield _meta("process_sort_index", Track(group, 0), {"sort_index": group})


def named_track(track: Track, name: str) -> Iterator[str]:
    """Yield the name of a track, and its place in its group."""
    yield _meta("thread_name", track, {"name": name})
    yield _meta("thread_sort_index", track, {"sort_index": track.line})


def _meta(what: str, track: Track, args: JsonObject) -> str:
    event = {"ph": "M", "name": what, "pid": track.group, "tid": track.line, "args": args}
    return json.dumps(event, separators=(",", ":"))
