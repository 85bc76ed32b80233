"""Our account of a trace against the profilers' own: torch's key_averages, JAX's own reader."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpu_checks.jobs import FRAMEWORKS
from gpu_checks.profiled import profiled
from gpu_checks.room import Failed, Part, Room
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

SECONDS = 40
# Theirs are floating point, in microseconds or of picoseconds.
CLOSE: Final = 1e-6
CLOSE_NS: Final = 2
Totals = dict[str, tuple[int, float]]


def run(room: Room) -> None:
    """Compare one trace of each framework, name by name."""
    for framework in FRAMEWORKS:
        room.do(f"{framework}: time by name", partial(compare, room, framework))


def compare(room: Room, framework: str, part: Part) -> None:
    """Compare one trace; a name of which the two say something else fails it."""
    told, file = profiled(room, framework)
    theirs = of_torch(told) if framework == "torch" else of_jax(told, gpu=room.gpu)
    mine = ours(file, gpu=room.gpu)
    different = {
        name: {"ours": mine.get(name), "theirs": theirs[name]}
        for name in theirs
        if not alike(mine.get(name), theirs[name], counted=room.gpu)
    }
    part.figures = {
        "names": len(theirs),
        "count": sum(count for count, _ in theirs.values()),
        "theirs_ns": round(sum(ns for _, ns in theirs.values())),
        "ours_ns": round(sum(ns for _, ns in mine.values())),
        "different": different,
        "only_ours": sorted(set(mine) - set(theirs)),
    }
    if not theirs:
        raise Failed("the profiler names nothing that ran on the device")
    if different or part.figures["only_ours"]:
        names = [*different, *part.figures["only_ours"]]
        raise Failed(f"{len(names)} of {len(theirs)} names differ, first of all: {names[0]}")


def alike(mine: tuple[int, float] | None, theirs: tuple[int, float], *, counted: bool) -> bool:
    """Tell whether two totals are the same but for rounding."""
    # On the CPU torch counts an operator that calls its like once, and takes the time of both.
    if mine is None or (counted and mine[0] != theirs[0]):
        return False
    # Each event is rounded on its own.
    return abs(mine[1] - theirs[1]) <= CLOSE_NS * theirs[0] + CLOSE * theirs[1]


def ours(file: Path, *, gpu: bool) -> Totals:
    """Return what we say ran, by name."""
    answer: dict[str, Any] = contract(analyse(file))
    rows = answer["top_kernels"] if gpu else answer["top_operators"]
    named = {row["name"]: (row["count"], row["total_ns"]) for row in rows}
    return {n: each for n, each in named.items() if gpu or _is_operator(n)}


def of_torch(told: dict[str, Any]) -> Totals:
    """Return its totals; copies have no name of their own with us."""
    return {
        name: (each["count"], each["ns"])
        for name, each in told["totals"].items()
        if not re.match(r"Mem(cpy|set)\b", name) and (told["device"] != "cpu" or _is_operator(name))
    }


def _is_operator(name: str) -> bool:
    """Tell whether it is an operator: marks, and what only calls operators, are none."""
    return not name.endswith("Backward0") and not name.startswith(("autograd::", "Optimizer."))


def of_jax(told: dict[str, Any], *, gpu: bool) -> Totals:
    """Return what JAX's reader says ran, by name, all lines together."""
    found: Totals = {}
    plane, kind = ("/device:GPU", "Stream #") if gpu else ("/host:CPU", "tf_XLA")
    lines = [
        line
        for name, lines in told["planes"].items()
        if name.startswith(plane)
        for each, line in lines.items()
        if each.startswith(kind)
    ]
    for line in lines:
        for name, total in line["totals"].items():
            if name.startswith(("Memcpy", "Memset")) or not (gpu or name in line["operations"]):
                continue
            count, ns = found.get(name, (0, 0.0))
            found[name] = (count + total["count"], ns + total["ns"])
    return found
