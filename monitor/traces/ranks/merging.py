"""Answers of several files -> one: sums over all of their devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Final, cast

from whyidle.monitor.core.contracts.trace import (
    CopyJson,
    KernelsJson,
    LaunchingJson,
    OwnerJson,
    TraceJson,
    TraceStepsJson,
    Unknown,
)
from whyidle.monitor.traces.activity import LONGEST_LIST
from whyidle.monitor.traces.answer import SCHEMA, total

_NUMBERS: Final = re.compile(r"\d+")


def merged(answers: Sequence[TraceJson], name: str) -> TraceJson:
    """Return one answer for all files."""
    steps = _steps([answer["steps"] for answer in answers])
    devices = [device for answer in answers for device in answer["devices"]]
    budget = total([device["budget"] for device in devices], steps["count"])
    of_steps = [b for device in devices if (b := device["step_budget"])]
    formats = list(dict.fromkeys(answer["format"] for answer in answers))
    return {
        "schema": SCHEMA,
        "file": name,
        "format": formats[0] if len(formats) == 1 else "mixed",
        "events": sum(answer["events"] for answer in answers),
        "window": None,
        "warnings": _warnings(answers),
        "devices": devices,
        "steps": steps,
        "budget": budget,
        "step_budget": total(of_steps, steps["count"]) if of_steps else None,
        "top_kernels": _named(answers, "top_kernels", "name"),
        "kernels": _kernels([found for a in answers if (found := a["kernels"])]),
        "launching": _launching([some for a in answers if (some := a["launching"])]),
        "collectives": _rows(answers, "collectives", "name"),
        "copies": _copies(answers),
        "hlo_modules": _named(answers, "hlo_modules", "name"),
        "hlo_ops": _named(answers, "hlo_ops", "module", "name"),
        "top_operators": _named(answers, "top_operators", "name"),
        "calls": _calls(answers),
        "where": _where(answers, budget["slices"]),
        "missing": {
            "graph_launches": sum(a["missing"]["graph_launches"] for a in answers),
            "graph_launches_shown": sum(a["missing"]["graph_launches_shown"] for a in answers),
            "dropped": sum(a["missing"]["dropped"] for a in answers),
        },
        "gpu_metrics": [one for answer in answers for one in answer.get("gpu_metrics", ())],
        "ranks": None,
        "unknown": _unknown(answers),
    }


def _steps(found: Sequence[TraceStepsJson]) -> TraceStepsJson:
    """Return what most files say of their steps."""
    some = [steps for steps in found if steps["count"]]
    if not some:
        return found[0]
    counts = [steps["count"] for steps in some]
    usual = max(set(counts), key=lambda count: (counts.count(count), count))
    like = next(steps for steps in some if steps["count"] == usual)
    lengths = [ns for steps in some if (ns := steps["median_ns"]) is not None]
    return {**like, "median_ns": int(median(lengths)) if lengths else None}


def _warnings(answers: Sequence[TraceJson]) -> list[str]:
    """Say once what several files have in common."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for answer in answers:
        for text in answer["warnings"]:
            alike.setdefault(_NUMBERS.sub("", text), []).append((answer["file"], text))
    found = []
    for said in alike.values():
        files = list(dict.fromkeys(file for file, _ in said))
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        found.append(f"{files[0].rsplit('/', 1)[-1]}{more}: {said[0][1]}")
    return found


def _rows(answers: Sequence[TraceJson], part: str, *key: str) -> list[Any]:
    """Add up the rows of a list that have the same key, the longest total first."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for answer in answers:
        for row in cast("list[dict[str, Any]]", answer.get(part) or []):
            same = found.setdefault(tuple(row[k] for k in key), {**row, "count": 0, "total_ns": 0})
            same["count"] += row["count"]
            same["total_ns"] += row["total_ns"]
    return sorted(found.values(), key=lambda row: -row["total_ns"])


def _named(answers: Sequence[TraceJson], part: str, *key: str) -> list[Any]:
    """The same with the shares of the whole; lists are cut, so what they share tells the whole."""
    rows = _rows(answers, part, *key)
    whole = sum(
        round(first["total_ns"] / first["share"])
        for answer in answers
        for first in cast("list[dict[str, Any]]", answer.get(part) or [])[:1]
        if first["share"]
    )
    for row in rows:
        row["share"] = min(1.0, row["total_ns"] / whole) if whole else 0.0
    return rows[:LONGEST_LIST]


def _kernels(found: Sequence[KernelsJson]) -> KernelsJson | None:
    if not found:
        return None
    known = [(k["total_ns"], cores) for k in found if (cores := k["tensor_core_share"])]
    weight = sum(ns for ns, _ in known)
    cores = [sum(ns * c[i] for ns, c in known) / weight for i in (0, 1)] if weight else None
    return {
        "count": sum(k["count"] for k in found),
        "total_ns": sum(k["total_ns"] for k in found),
        "short": {
            "below_ns": found[0]["short"]["below_ns"],
            "count": sum(k["short"]["count"] for k in found),
            "total_ns": sum(k["short"]["total_ns"] for k in found),
        },
        "tensor_core_share": cores,
        "dtypes_ns": _sums(k["dtypes_ns"] for k in found),
        "families_ns": _sums(k["families_ns"] for k in found),
        "unknown": {} if cores else found[0]["unknown"],
    }


def _sums(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, ns in part.items():
            found[name] = found.get(name, 0) + ns
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _launching(found: Sequence[LaunchingJson]) -> LaunchingJson | None:
    """Counts add up; rates and delays are those of a rank in the middle."""
    if not found:
        return None

    def middle(part: str) -> Any:
        known = [value for one in found if (value := cast("dict[str, Any]", one)[part]) is not None]
        return None if not known else type(known[0])(median(known))

    rates = {
        part: middle(part)
        for part in (
            *("calls_per_second", "calls_per_step"),
            *("call_median_ns", "delay_median_ns", "delay_p95_ns"),
        )
    }
    counts = {
        part: sum(cast("dict[str, int]", one)[part] for one in found)
        for part in (
            *("operations", "launched", "calls", "graph_operations"),
            "started_before_launch",
        )
    }
    reasons = {k: why for one in found for k, why in one["unknown"].items() if rates[k] is None}
    return cast("LaunchingJson", {**counts, **rates, "unknown": reasons})


def _copies(answers: Sequence[TraceJson]) -> list[CopyJson]:
    rows: list[CopyJson] = _rows(answers, "copies", "direction", "memory")
    for row in rows:
        same = [
            copy
            for answer in answers
            for copy in answer["copies"]
            if (copy["direction"], copy["memory"]) == (row["direction"], row["memory"])
        ]
        sizes = [copy["bytes"] for copy in same]
        known = [size for size in sizes if size is not None]
        row["bytes"] = sum(known) if len(known) == len(sizes) else None
        is_known = row["bytes"] is not None and row["total_ns"] > 0
        row["gb_per_s"] = (row["bytes"] or 0) / row["total_ns"] if is_known else None
        row["unknown"] = next((copy["unknown"] for copy in same if copy["unknown"]), {})
    return rows


def _calls(answers: Sequence[TraceJson]) -> list[Any]:
    """How often a rank calls in a step: on average over all of them."""
    rows = _rows(answers, "calls", "name")
    for row in rows:
        each = [c["per_step"] for a in answers for c in a["calls"] if c["name"] == row["name"]]
        known = [value for value in each if value is not None]
        row["per_step"] = sum(known) / len(answers) if known else None
        row["unknown"] = {} if known else row["unknown"]
    return rows


def _where(answers: Sequence[TraceJson], slices: dict[str, int]) -> list[OwnerJson]:
    """Add up what belongs to one line, on whichever rank."""
    found: dict[tuple[Any, ...], OwnerJson] = {}
    for answer in answers:
        for owner in answer["where"]:
            key = owner["slice"], owner["file"], owner["line"], owner["function"]
            same = found.get(key)
            if same is None:
                found[key] = {**owner, "calls": [{**call} for call in owner["calls"]]}
                continue
            same["ns"] += owner["ns"]
            calls = _sums({c["name"]: c["ns"]} for c in (*same["calls"], *owner["calls"]))
            same["calls"] = [{"name": name, "ns": ns} for name, ns in calls.items()]
    for owner in found.values():
        owner["share"] = min(1.0, owner["ns"] / (slices.get(owner["slice"]) or owner["ns"] or 1))
    return sorted(found.values(), key=lambda owner: -owner["ns"])


def _unknown(answers: Sequence[TraceJson]) -> Unknown:
    """A part is unknown if it is in no file."""
    first, *rest = [answer["unknown"] for answer in answers]
    return {part: why for part, why in first.items() if all(part in other for other in rest)}
