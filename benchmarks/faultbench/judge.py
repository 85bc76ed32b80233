"""What the rules say of a recording, against what the fault cost and where it stands."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from benchmarks.faultbench.cases import HEALTHY, Case
from benchmarks.faultbench.jobs import written
from benchmarks.faultbench.recordings import opened
from benchmarks.faultbench.truth import is_fault, is_harmless
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals.opening import of_run
from whyidle.monitor.store.reader import Reader

LOUD: Final = ("high", "medium")
# A finding points at the fault from so many lines away, or from within the same function.
NEAR: Final = 3
UNKNOWN: Final = 0.15
# The interval score counts what lies outside so: 2/alpha, for ranges that should hold 80%.
OUTSIDE: Final = 2 / 0.2


def judged(
    case: Case, recording: Path, truth: Mapping[str, Any], own: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Return the row of one case.

    ``own``: what the cure of a fault gives that its healthy twin has too, by the rule about it.
    """
    folder, program, lines = written(case)
    with opened(recording) as (store, seen):
        answer = to_builtins(diagnose.as_json(diagnose.diagnose(of_run(store, "last"))))
        first_s = _first_s(store, case, seen)
    gain = truth["gain"]
    costs = case.fault != HEALTHY and is_fault(gain)
    # Who has a larger fault without the one that was put in is told of that first.
    right = [*(case.mutation.faults if case.mutation else ())]
    right += [rule for rule, gives in own.items() if gives[1] >= gain[1]]
    found = answer["findings"]
    timed = [f for f in found if f["speedup"] or f["severity"] != "info"]
    row: dict[str, Any] = {
        "case": case.id,
        "family": case.family,
        "fault": case.fault,
        "framework": program.framework,
        "side": case.side,
        "watched_s": case.watched_s,
        "gain": gain,
        "is_fault": costs,
        # Whether whoever calls it loudly is surely wrong.
        "is_healthy": case.fault == HEALTHY or is_harmless(gain),
        "found": [[f["rule"], f["severity"], f["speedup"]] for f in found],
        "unknown": _unknown(answer["budget"]),
        "unharmed": seen["unharmed"],
        "right": right,
    }
    if not costs:
        return row | {"loud_false": [f["rule"] for f in found if f["severity"] in LOUD]}
    hit = next((f for f in timed if f["rule"] in right), None)
    top = timed[0] if timed else None
    row |= {
        "right_first": top is not None and top["rule"] in right,
        "right_anywhere": hit is not None,
        # Neighbours and settings of the environment stand at no line.
        "right_line": _points_at(top["where"] if top else (), folder, lines) if lines else None,
        "py_spy_line": None if not lines else _points_at(
            [{"file": str(folder / file), "line": n} for file, n, _ in seen["py_spy"][:1]],
            folder, lines,
        ),
        "first_s": first_s,
    }  # fmt: skip
    promised = top["speedup"] if top is not None and row["right_first"] else None
    gives = gain if top is None else own.get(top["rule"], gain)
    return row | {"promised": promised, **_scored(promised, gives)}


def _scored(promised: Sequence[float] | None, gain: Sequence[float]) -> dict[str, Any]:
    """Score a range by what came back: whether it holds, how wide it is, and both in one number."""
    if promised is None:
        return {"covered": None, "width": None, "interval_score": None}
    low, high, true = (math.log(max(1.0, x)) for x in (*promised, gain[1]))
    # Within what the truth itself is sure about.
    covered = promised[0] <= gain[2] and gain[0] <= promised[1]
    missed = 0.0 if covered else max(low - true, true - high, 0.0)
    return {
        "covered": covered,
        "width": round(promised[1] / promised[0], 3),
        "interval_score": round(high - low + OUTSIDE * missed, 4),
    }


def _unknown(budget: Mapping[str, Any] | None) -> float | None:
    total = 0 if budget is None else sum(budget["slices"].values())
    return round(budget["slices"].get("idle_unknown", 0) / total, 4) if budget and total else None


def _first_s(store: Path, case: Case, seen: Mapping[str, Any]) -> float | None:
    """Return how long after attaching the recorder reported the right fault."""
    right = case.mutation.faults if case.mutation else ()
    reader = Reader.open(store)
    run = reader.runs()[0]
    at = [
        event.ts_ms / 1000 - seen["attached_at"]
        for event in reader.events(run.id)
        if event.kind == "finding" and event.data and event.data.get("rule") in right
    ]
    return round(min(at), 1) if at else None


def _points_at(
    where: Sequence[Mapping[str, Any]], folder: Path, lines: list[tuple[str, int]]
) -> bool:
    """Tell whether one of the first places is where the fault stands."""
    near = {(file, line + off) for file, line in lines for off in range(-NEAR, NEAR + 1)}
    spans = [
        (file, node.lineno, node.end_lineno or node.lineno)
        for file in {file for file, _ in lines}
        for node in ast.walk(ast.parse((folder / file).read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    # Within the innermost function that the fault stands in.
    for file, line in lines:
        mine = [span for span in spans if span[0] == file and span[1] <= line <= span[2]]
        if mine:
            _, first, last = min(mine, key=lambda span: span[2] - span[1])
            # A program that is one function says nothing by naming it.
            if last - first <= 40:
                near |= {(file, n) for n in range(first, last + 1)}
    for place in where[:3]:
        path = Path(place["file"])
        name = str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name
        if (name, place["line"]) in near:
            return True
    return False
