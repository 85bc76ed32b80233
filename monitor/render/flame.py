"""The main thread's stacks for other tools: collapsed lines, speedscope, pprof.

What the thread does at its innermost line stands on top of each stack as a frame of its own, waits
among them: a flame graph shows who waits for what, and not only who computes.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from whyidle.monitor.core.host_class import HOST_LOOKS
from whyidle.monitor.core.protobuf import written
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.report import Report
from whyidle.monitor.signals.phases import WORDS, Phase

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_NS: Final = 10**9
# Nobody's code is on such a stack.
_NOWHERE: Final = "no line of yours"


class Frame(NamedTuple):
    """A function at a line; what the thread does there has no file."""

    name: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})" if self.file else self.name


# From the outermost to what it does.
Stack = tuple[Frame, ...]


def stacks(report: Report) -> Iterator[tuple[Stack, int]]:
    """Yield each stack with its nanoseconds; none where the main thread was not sampled."""
    shown = cache(lambda file: printable(report.path(file)))
    for row in () if report.host is None else report.host.rows:
        lines = [Frame(printable(x.function), shown(x.file), x.line) for x in reversed(row.frames)]
        phase = [] if row.phase is Phase.STEP else [Frame(f"[{WORDS[row.phase]}]")]
        does = Frame(f"[{HOST_LOOKS[row.doing].words}]")
        yield (*phase, *(lines or [Frame(_NOWHERE)]), does), round(row.share * report.seconds * _NS)


def collapsed(report: Report) -> str:
    """Write a line for each stack, and its microseconds."""
    return "".join(
        f"{';'.join(str(frame).replace(';', ':') for frame in stack)} {ns // 1000}\n"
        for stack, ns in stacks(report)
    )


def speedscope(report: Report) -> str:
    """Write what speedscope opens."""
    known: dict[Frame, int] = {}
    some = list(stacks(report))
    samples = [[known.setdefault(frame, len(known)) for frame in stack] for stack, _ in some]
    profile = {
        "type": "sampled",
        "name": f"stacks of {report.answer.target}",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(ns for _, ns in some),
        "samples": samples,
        "weights": [ns for _, ns in some],
    }
    frames = [
        {"name": x.name, "file": x.file, "line": x.line} if x.file else {"name": x.name}
        for x in known
    ]
    return json.dumps(
        {
            "$schema": _SCHEMA,
            "exporter": "whyidle",
            "name": report.answer.target,
            "shared": {"frames": frames},
            "profiles": [profile],
        }
    )


def pprof(report: Report) -> bytes:
    """Write what pprof reads: a message ``perftools.profiles.Profile``, packed by gzip."""
    texts: dict[str, int] = {"": 0}
    known: dict[Frame, int] = {}

    def text(said: str) -> int:
        return texts.setdefault(said, len(texts))

    def place(frame: Frame) -> int:
        return known.setdefault(frame, len(known) + 1)

    out = written(1, written(1, text("time")) + written(2, text("nanoseconds")))
    total = 0
    for stack, ns in stacks(report):
        total += ns
        # From the innermost out.
        at = b"".join(written(1, place(frame)) for frame in reversed(stack))
        out += written(2, at + written(2, ns))
    for frame, number in known.items():
        name = text(frame.name)
        named = written(1, number) + written(2, name) + written(3, name)
        out += written(5, named + written(4, text(frame.file)))
        line = written(1, number) + written(2, frame.line)
        out += written(4, written(1, number) + written(4, line))
    out += b"".join(written(6, said.encode(errors="replace")) for said in texts)
    return gzip.compress(out + written(10, total), mtime=0)
