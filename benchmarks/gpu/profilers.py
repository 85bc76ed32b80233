"""Our account of a trace beside the profilers' own, and what the notes claim of a GPU."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.jobs import PROGRAMS, check_device, check_installed
from benchmarks.gpu.runner import FRAMEWORKS, Check, Failed, LeftOut, Part, output, parts_of
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

FILES = {"torch": "trace.json", "jax": "trace.xplane.pb"}
PATIENCE = 60.0
NEEDS_GPU = "there is no GPU here to ask"
LONGEST = 400
# Theirs are floating point, in microseconds or of picoseconds.
CLOSE, CLOSE_NS = 1e-6, 2
Totals = dict[str, tuple[int, float]]
# A sentence of the notes: note, claim, whether it holds (``None``: it cannot be said), and why.
Claim = tuple[str, str, bool | None, object]


def profiled(check: Check, framework: str) -> tuple[dict[str, Any], Path]:
    """Return what a framework's profiler says of a run, and its trace; both checks share it."""
    check_installed(framework)
    folder = check.folder.parent / f"profiled-{framework}"
    if not (folder / "facts.json").exists():
        folder.mkdir(exist_ok=True)
        command = [sys.executable, PROGRAMS, "profile", framework, folder]
        output("the program", command, timeout=PATIENCE)
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    check_device(facts["device"], gpu=check.gpu)
    return facts, folder / FILES[framework]


# Totals ------------------------------------------------------------------------------------------
def totals(check: Check) -> None:
    """Compare one trace of each framework, name by name."""
    for framework in FRAMEWORKS:
        check.do(f"{framework}: time by name", partial(compare, check, framework))


def compare(check: Check, framework: str, part: Part) -> None:
    """Compare one trace; a name of which the two say something else fails it."""
    facts, file = profiled(check, framework)
    theirs = of_torch(facts) if framework == "torch" else of_jax(facts, gpu=check.gpu)
    mine = ours(file, gpu=check.gpu)
    different = {
        name: {"ours": mine.get(name), "theirs": theirs[name]}
        for name in theirs
        if not alike(mine.get(name), theirs[name], counted=check.gpu)
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
    if names := [*different, *part.figures["only_ours"]]:
        raise Failed(f"{len(names)} of {len(theirs)} names differ, first of all: {names[0]}")


def alike(mine: tuple[int, float] | None, theirs: tuple[int, float], *, counted: bool) -> bool:
    """Return whether two totals are the same but for rounding."""
    # On the CPU torch counts an operator that calls its like once, and takes the time of both.
    if mine is None or (counted and mine[0] != theirs[0]):
        return False
    # Each event is rounded on its own.
    return abs(mine[1] - theirs[1]) <= CLOSE_NS * theirs[0] + CLOSE * theirs[1]


def ours(file: Path, *, gpu: bool) -> Totals:
    """Return what we say ran, by name."""
    rows = contract(analyse(file))["top_kernels" if gpu else "top_operators"]
    named = {row["name"]: (row["count"], row["total_ns"]) for row in rows}
    return {name: total for name, total in named.items() if gpu or _is_operator(name)}


def of_torch(facts: dict[str, Any]) -> Totals:
    """Return its totals; copies have no name of their own with us."""
    return {
        name: (each["count"], each["ns"])
        for name, each in facts["totals"].items()
        if not re.match(r"Mem(cpy|set)\b", name)
        and (facts["device"] != "cpu" or _is_operator(name))
    }


def _is_operator(name: str) -> bool:
    """Return whether it is an operator: marks, and what only calls operators, are none."""
    return not name.endswith("Backward0") and not name.startswith(("autograd::", "Optimizer."))


def of_jax(facts: dict[str, Any], *, gpu: bool) -> Totals:
    """Return what JAX's reader says ran, by name, all lines together."""
    found: Totals = {}
    plane, prefix = ("/device:GPU", "Stream #") if gpu else ("/host:CPU", "tf_XLA")
    kinds = [kinds for name, kinds in facts["planes"].items() if name.startswith(plane)]
    for kind in (each for all_ in kinds for name, each in all_.items() if name.startswith(prefix)):
        for name, total in kind["totals"].items():
            if not name.startswith(("Memcpy", "Memset")) and (gpu or name in kind["operations"]):
                count, ns = found.get(name, (0, 0.0))
                found[name] = (count + total["count"], ns + total["ns"])
    return found


# Claims ------------------------------------------------------------------------------------------
def claims(check: Check) -> None:
    """Ask each framework; what NVML says of the notes is in the parts of the check ``record``."""
    check.do("nvml", partial(_nvml, check))
    for framework in FRAMEWORKS:
        check.do(framework, partial(ask, check, framework))


def _nvml(check: Check, part: Part) -> None:
    parts = parts_of(check.folder.parent / "record")
    findings = [found for each in parts for found in each["figures"].get("findings", [])]
    if not findings:
        raise LeftOut("the check 'record' has not run before")
    _keep(
        check,
        part,
        [
            (
                "nvml.md",
                f"{found['question']}? {found['note']}",
                None if found["differs"] is None else not found["differs"],
                found["seen"],
            )
            for found in findings
        ],
    )


def ask(check: Check, framework: str, part: Part) -> None:
    """Hold each claim about a framework against what its profiled run shows."""
    facts, file = profiled(check, framework)
    asked = _torch(facts) if framework == "torch" else _jax(facts)
    _keep(check, part, [*asked, *_common(f"{framework}.md", contract(analyse(file)))])


def _keep(check: Check, part: Part, found: list[Claim]) -> None:
    if not check.gpu:
        part.figures = {"asked": len(found)}
        raise LeftOut(NEEDS_GPU)
    part.figures["claims"] = [
        {"note": note, "claim": claim, "holds": holds, "seen": str(seen)[:LONGEST]}
        for note, claim, holds, seen in found
    ]
    part.figures["differs"] = [claim for _, claim, holds, _ in found if holds is False]


def _torch(facts: dict[str, Any]) -> Iterator[Claim]:
    note = "torch.md"
    keys = (
        *("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"),
        *("inactive_split_bytes.all.current", "reserved_bytes.all.current"),
        *("allocated_bytes.all.current", "active_bytes.all.current"),
    )
    yield _has(note, "memory_stats has", keys, facts["memory_stats"])
    before, pinned = facts["memory_stats_before"], facts["pin_memory"]
    yield note, "memory_stats is {} before the GPU is initialised", not before, before[:5]
    yield note, "a loader with pin_memory=True has _pin_memory True", pinned, pinned
    copies = [name for name in facts["totals"] if name.startswith("Memcpy")]
    both = ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)")
    yield note, f"copies to the GPU are named {' and '.join(both)}", {*both} <= {*copies}, copies


def _has(note: str, what: str, keys: tuple[str, ...], found: Any) -> Claim:
    missing = [key for key in keys if key not in found]
    return note, f"{what} {', '.join(keys)}", not missing, f"missing: {missing} of {[*found]}"


def _jax(facts: dict[str, Any]) -> Iterator[Claim]:
    note, planes = "jax.md", facts["planes"]
    device = next((kinds for n, kinds in planes.items() if n.startswith("/device:GPU:")), {})
    yield note, "the GPU's plane is /device:GPU:N", bool(device), f"planes: {[*planes]}"
    lines = [name for kind in device.values() for name in kind["lines"]]
    streams = [name for name in lines if name.startswith("Stream #")]
    yield note, "its work lies on lines 'Stream #k(...)'", bool(streams), lines
    more = [name for name in lines if name.startswith(("XLA Modules", "XLA Ops", "Steps"))]
    yield note, "the file has no lines XLA Modules, XLA Ops, Steps", not more, more
    kinds = [kind for name, kind in device.items() if name.startswith("Stream")]
    keys = ("correlation_id", "kernel_details", "theoretical_occupancy_pct", "hlo_module", "hlo_op")
    yield _has(note, "kernels carry", keys, {name for kind in kinds for name in kind["stats"]})
    some = {name: s for kind in kinds for name, s in kind["some"].items() if "Memcpy" in name}
    details = [s.get("memcpy_details", "") for s in some.values()]
    right = all("size:" in text and "kind_src:" in text for text in details)
    yield note, "memcpy_details has kind_src: and size:", right if details else None, some
    launches = any("CUPTI" in name for name in planes)
    yield note, "launches lie on /host:CUPTI", launches, [*planes]
    stats = facts["memory_stats"] or {}
    keys = ("bytes_in_use", "peak_bytes_in_use", "bytes_limit", "largest_free_block_bytes")
    yield _has(note, "memory_stats has", (*keys, "pool_bytes", "num_allocs"), stats)
    free = stats.get("pool_bytes", 0) - stats.get("bytes_in_use", 0)
    share = 1 - stats.get("largest_free_block_bytes", 0) / free if free > 0 else None
    claim = "1 - largest_free / (pool - in_use) is a share of fragmentation, near 0 in a small job"
    yield note, claim, None if share is None else 0 <= share < 0.5, f"{share}; {stats}"


def _common(note: str, answer: dict[str, Any]) -> Iterator[Claim]:
    """What our own reader must find in a trace of a GPU."""
    gpus = sum(device["kind"] == "gpu" for device in answer["devices"])
    yield "traces.md", f"{note}: the trace has one GPU", gpus == 1, gpus
    launching = answer["launching"] or {}
    names = ("launched", "operations", "started_before_launch")
    launched, all_, early = (launching.get(name) for name in names)
    claim = f"{note}: each operation of the GPU has a launch of the same correlation id"
    yield "budget.md", claim, launched == all_ if all_ else None, f"{launched} of {all_}"
    claim = f"{note}: at most 1 % of the operations start before their launch"
    holds = early <= 0.01 * all_ if all_ and early is not None else None
    yield "budget.md", claim, holds, f"{early} of {all_}"
    yield note, "a short trace has no warnings", not answer["warnings"], answer["warnings"]
