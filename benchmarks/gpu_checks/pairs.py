"""The demo pairs on this machine: what is found first, the gain said and measured, and the traces.

Each side runs as `monitor demo` runs it. Kept of it: the figures, the window that the rules judge,
and the largest of its traces that is small enough to be kept.
"""

from __future__ import annotations

import gzip
import os
from functools import partial
from pathlib import Path
from typing import Any

from gpu_checks import places
from gpu_checks.retaken import trace_of
from gpu_checks.room import Failed, LeftOut, Part, Room
from whyidle.monitor.core.paths import database
from whyidle.monitor.demo import answer, pairs
from whyidle.monitor.demo.outcome import Half, of_runs
from whyidle.monitor.demo.pairs import SIDES, Pair
from whyidle.monitor.demo.watched import watch
from whyidle.monitor.signals import portable
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.tracing.space import Space

# And what the checks before it did not need.
SECONDS = 80
SIDE_SECONDS, FIRST_TRACE = 6.0, 2.0
# Both sides, with what they need to start.
NEEDS = 30.0
LARGEST_TRACE = 1_200_000
# Of all traces of one run of the checks: what fits into a repository.
LARGEST_ALL = 14_000_000
# They show what needs several devices, or too few cores: one GPU has nothing to say of it.
NOT_HERE = {
    "idle_devices": "it is about several devices",
    "misaligned_shards": "it is about several devices",
    "cpu_starved": "it is about cores",
}
# One of each kind of idle time comes first.
FIRST = (
    ("input_starved", "torch"),
    ("unjitted_step", "jax"),
    ("per_step_sync", "torch"),
    ("retracing", "jax"),
    ("eager_launch_bound", "torch"),
    ("large_readback", "jax"),
    ("host_resident_data", "jax"),
    ("allocation_churn", "torch"),
)
QUICK = (("retracing", "jax"),)


def run(room: Room) -> None:
    """Run one pair after the other, as long as there is time."""
    os.environ["WHYIDLE_STATE_DIR"] = str(room.folder / "state")
    space = LARGEST_ALL
    for pair in chosen(room):
        part = room.do(title(pair), partial(_one, room, pair, space), needs=_needs(room))
        space -= sum((room.folder / name).stat().st_size for name in part.files)


def title(pair: Pair) -> str:
    """Return what a pair is called in the report, and how it is asked for."""
    return f"{pair.name}_{pair.framework}"


def chosen(room: Room) -> list[Pair]:
    """Return the pairs that are asked for, the most telling first."""
    found = {(pair.name, pair.framework): pair for pair in pairs.all_pairs()}
    if room.wanted:
        return [pair for pair in found.values() if title(pair) in room.wanted]
    if room.quick:
        return [found[key] for key in QUICK]
    return [found[key] for key in sorted(found, key=_place)]


def _place(key: tuple[str, str]) -> int:
    """Say how early a pair comes; those that are not for here take no time, and come first."""
    if key[0] in NOT_HERE:
        return -1
    return FIRST.index(key) if key in FIRST else len(FIRST)


def _needs(room: Room) -> float:
    return 0.0 if room.quick else NEEDS


def _one(room: Room, pair: Pair, space: int, part: Part) -> None:
    if pair.name in NOT_HERE and not room.wanted:
        raise LeftOut(NOT_HERE[pair.name])
    if not pairs.installed(pair.framework):
        raise LeftOut(f"{pair.framework} is not installed here")
    seconds = SIDE_SECONDS - 2 if room.quick else SIDE_SECONDS
    traces = ("--first-trace", f"{FIRST_TRACE:g}", "--trace-share", "0.1")
    seen = [watch(pair.script(side), seconds, title(pair), traces=traces) for side in SIDES]
    told = of_runs(database(), pair, [(seen[0], seen[1])])
    part.figures = answer.as_json(told)
    part.figures["unknown_traces"] = {}
    for side, half in zip(SIDES, (told.before, told.after), strict=True):
        part.files.append(_keep_window(room, f"{title(pair)}_{side}", half))
        name, why = _keep_trace(room, f"{title(pair)}_{side}", half, space)
        part.files += [name] if name else []
        if why:
            part.figures["unknown_traces"][side] = why
    top = told.top(told.before)
    part.figures["right"] = top in pair.faults
    # On a busy CPU another fault may be as large.
    if not part.figures["right"] and room.gpu:
        raise Failed(f"{top or 'nothing'} stands first before the fix")


def _keep_window(room: Room, name: str, half: Half) -> str:
    """Keep what the rules saw, with what they said, and no folder of this machine."""
    document: dict[str, Any] = {
        "window": portable.dump(half.window),
        "findings": half.findings,
        "step_ms": half.watched.step_ms,
        "samples_per_s": half.watched.samples_per_s,
    }
    return _write(room, f"windows/{name}.json.gz", _packed(places.document(document)))


def _keep_trace(room: Room, name: str, half: Half, space: int) -> tuple[str | None, str | None]:
    """Keep the largest trace that is small enough, or take one; else say why there is none."""
    most = min(LARGEST_TRACE, space)
    files = [f.path for f in Space(database()).files() if f.run == half.watched.run]
    # A window may have met nothing but a compilation.
    packed = [(_blanked(path), path.name) for path in files if analyse(path).devices]
    fit = [each for each in packed if len(each[0]) <= most]
    if fit:
        text, file = max(fit, key=lambda each: len(each[0]))
    else:
        found = None
        if room.left > NEEDS and not room.quick:
            found = trace_of(half.watched.script, _blanked, most)
        if found is None:
            return None, "none that is small enough came in the time that there was"
        text, file = found
    suffix = "json" if file.endswith(".json") else "xplane.pb"
    return _write(room, f"traces/{name}.{suffix}.gz", text), None


def _blanked(path: Path) -> bytes:
    return _packed(places.blanked(path.read_bytes()))


def _packed(text: bytes) -> bytes:
    return gzip.compress(text, 9, mtime=0)


def _write(room: Room, name: str, packed: bytes) -> str:
    path = Path(room.folder, name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(packed)
    return name
