"""Writes a tape as text, small: what repeats the value before it is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpu_recorder.tape import COUNTERS, NOT_SUPPORTED, TYPES, UINT, Points, Tape, Value

FIRST_LINE = "whyidle-nvml-tape 1"
LINE_WIDTH = 160
WRAP = 1 << 32
# Sleeping in the fake library is no finer: a shorter call would become slower than it was.
SHORTEST_LATENCY_US = 1000.0


class Phase(NamedTuple):
    """A stretch of the recording, in seconds of the tape."""

    name: str
    start: float
    end: float
    load: str | None


def lines(
    tape: Tape, phases: Sequence[Phase], medians_us: dict[str, float], made_with: str
) -> Iterator[str]:
    """Give the lines of the tape."""
    yield FIRST_LINE
    yield f"# {made_with}"
    yield "# The UUID is not the real one. Seconds, phase, load:"
    for phase in phases:
        yield f"# {phase.start:.1f}-{phase.end:.1f} {phase.name}: {phase.load or 'no load'}"
    yield from _head(tape, medians_us)
    for key, points in sorted(tape.points.items()):
        yield from _track(tape, key, sorted(points, key=lambda point: point[0]))
    for t, code in tape.xids:
        yield f"xid 0 {t:.3f} {code}"
    for fault in tape.all_faults():
        device = "0" if fault.function.startswith(("nvmlDevice", "nvmlGpm")) else "*"
        yield f"fault {device} {fault.function} {fault.start:.3f}-{fault.end:.3f} !{fault.error}"
    yield from tape.processes.lines(phases[-1].end)


def _head(tape: Tape, medians_us: dict[str, float]) -> Iterator[str]:
    for name, text in sorted(tape.settings.items()):
        yield f'set {name} "{text}"'
    for field_id, kind in sorted(tape.field_types.items()):
        yield f"fieldtype {field_id} {TYPES[kind]}"
    for function, us in sorted(medians_us.items()):
        if us >= SHORTEST_LATENCY_US and not function.startswith("nvmlEventSetWait"):
            yield f"latency {function} {us:.0f}"
    yield "gpu 0"
    for key, text in sorted(tape.texts.items()):
        yield f'const 0 {key} "{text}"'


def _track(tape: Tape, key: str, points: Points) -> Iterator[str]:
    if all(value == f"!{NOT_SUPPORTED}" for _, value in points):
        return  # what a tape does not hold is not supported
    wrap = ""
    # What never changes is no ramp: only steps keep all 64 bits, which a sentinel needs.
    if is_counter(key) and len(without_repeats(points)) > 1:
        shape = "ramp"
        if tape.field_types.get(_field_id(key)) == UINT:
            points, wrap = unwrapped(points), f" wrap={WRAP}"
        kept = without_level(points)
    else:
        shape = "track"
        kept = without_repeats(points)
    head = f"{shape} 0 {key}"
    line = head
    for t, value in kept:
        word = f" {t:.3f}:{_number(value)}"
        if len(line) + len(word) > LINE_WIDTH:
            yield line + wrap
            line = head
        line += word
    yield line + wrap


def is_counter(key: str) -> bool:
    """Tell whether a key's value only grows; a scope does not matter."""
    return ".".join(key.split(".")[:2]) in COUNTERS


def _field_id(key: str) -> int:
    words = key.split(".")
    return int(words[1]) if words[0] == "field" else -1


def without_repeats(points: Points) -> Points:
    """Keep where the value changes."""
    changed = [b for a, b in pairwise(points) if _number(a[1]) != _number(b[1])]
    return points[:1] + changed


def without_level(points: Points) -> Points:
    """Keep the ends of each stretch at one value: between points a counter is straight."""
    inner = [
        b
        for a, b, c in zip(points, points[1:], points[2:], strict=False)
        if not a[1] == b[1] == c[1]
    ]
    return points[:1] + inner + points[1:][-1:]


def unwrapped(points: Points) -> Points:
    """Let a counter of 32 bits go on where it began anew; the tape wraps it again."""
    result: Points = []
    turns, last = 0, 0.0
    for t, value in points:
        if isinstance(value, str):
            result.append((t, value))
            continue
        turns += value < last
        last = value
        result.append((t, value + turns * WRAP))
    return result


def _number(value: Value) -> str:
    # Shares and rates come with digits that mean nothing; totals need all of theirs.
    short = isinstance(value, float) and abs(value) < 1e6
    return f"{value:.6g}" if short else str(value)
