"""What is believed of NVML without proof: asked once, under load, beside the tape."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.gpu.tape import (
    TYPES,
    UINT,
    Points,
    Tape,
    field_key,
    number,
    unwrapped,
)
from whyidle.monitor.sources.fields import FIELDS
from whyidle.monitor.sources.nvml import NOT_SUPPORTED, SENTINELS, Nvml, Unknown

MS = 1000.0
REPEATS = 5
GPM_GAPS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.25)
GPM_SM, GPM_PCIE_RX = 2, 21
POLL_SECONDS, POLL_EVERY = 1.5, 0.002
POLLED = {83: "energy", 185: "average power", 186: "instant power", 197: "PCIe TX", 198: "PCIe RX"}
SAMPLE_KINDS = {0: "power", 1: "GPU utilisation", 2: "memory utilisation"}


@dataclass(frozen=True)
class Finding:
    """What was seen; ``differs`` from ``note``, or None where the note did not know."""

    question: str
    note: str
    seen: str
    differs: bool | None


def ask_driver(nvml: Nvml, handle: Any, phase: str) -> Iterator[Finding]:
    """Ask the driver itself what this phase's load can show."""
    asked = {"h2d": (_pcie_throughput, _refresh),
             "two_processes": (_samples, _gpm_interval, _history, _memory_versions)}  # fmt: skip
    for ask in asked.get(phase, ()):
        yield from ask(nvml, handle)


def _pcie_throughput(nvml: Nvml, handle: Any) -> Iterator[Finding]:
    for counter, name in enumerate(("TX", "RX")):
        function = "nvmlDeviceGetPcieThroughput"
        took = [_timed(nvml, function, handle, counter) for _ in range(REPEATS)]
        ms = statistics.median(t for t, _ in took)
        seen = f"median of {REPEATS}: {ms:.2f} ms; last answer: {took[-1][1]}"
        question = f"what does {function} ({name}) cost"
        yield Finding(question, "about 20 ms", seen, not 10 <= ms <= 40)


def _samples(nvml: Nvml, handle: Any) -> Iterator[Finding]:
    for kind, name in SAMPLE_KINDS.items():
        ms, answer = _timed(nvml, "nvmlDeviceGetSamples", handle, kind, 0)
        is_known, seen = isinstance(answer, tuple), f"{ms:.2f} ms; {answer}"
        if is_known:
            stamps = [s.timeStamp for s in answer[1] if s.timeStamp]
            gap = statistics.median(b - a for a, b in pairwise(stamps)) if len(stamps) > 1 else 0
            each = f"one per {gap / MS:.1f} ms, of type {TYPES[answer[0]]}"
            seen = f"{ms:.2f} ms; {len(stamps)} samples, {each}"
        note = "returns the driver's own buffer of finer samples"
        yield Finding(f"what does nvmlDeviceGetSamples ({name}) give", note, seen, not is_known)


def _gpm_interval(nvml: Nvml, handle: Any) -> Iterator[Finding]:
    note, question = "more than 100 ms between two samples", "how close may two GPM samples be"
    try:
        said = {gap: _gpm_pair(nvml, handle, gap) for gap in GPM_GAPS}
    except Unknown as unknown:
        yield Finding(question, note, unknown.reason, None)
        return
    seen = "; ".join(f"{gap * MS:.0f} ms: {answer}" for gap, answer in said.items())
    close = any(a.startswith("SM") for gap, a in said.items() if gap < 0.1)
    far = all(a.startswith("SM") for gap, a in said.items() if gap > 0.1)
    yield Finding(question, note, seen, close or not far)


def _gpm_pair(nvml: Nvml, handle: Any, gap: float) -> str:
    first, second = nvml.call("nvmlGpmSampleAlloc"), nvml.call("nvmlGpmSampleAlloc")
    request = nvml.gpm_request((GPM_SM, GPM_PCIE_RX))
    try:
        nvml.call("nvmlGpmSampleGet", handle, first)
        time.sleep(gap)
        nvml.call("nvmlGpmSampleGet", handle, second)
        request.sample1, request.sample2 = first, second
        nvml.call("nvmlGpmMetricsGet", request)
    except Unknown as unknown:
        return unknown.reason
    finally:
        nvml.get("nvmlGpmSampleFree", first)
        nvml.get("nvmlGpmSampleFree", second)
    sm, pcie = request.metrics[0], request.metrics[1]
    if sm.nvmlReturn or not math.isfinite(sm.value):
        return f"no value (code {sm.nvmlReturn}, {sm.value})"
    return f"SM {sm.value:.1f} %, PCIe RX {pcie.value:.0f} MiB/s"


def _history(nvml: Nvml, handle: Any) -> Iterator[Finding]:
    question = "does nvmlDeviceGetProcessUtilization list history"
    note = "unknown: give back the last timestamp; NOT_FOUND is no new sample; values over 100 leak"
    ms, samples = _timed(nvml, "nvmlDeviceGetProcessUtilization", handle, 0)
    if not isinstance(samples, list) or not samples:
        yield Finding(question, note, f"no sample: {samples}", None)
        return
    stamps = sorted(s.timeStamp for s in samples)
    _, again = _timed(nvml, "nvmlDeviceGetProcessUtilization", handle, stamps[-1])
    words = (
        f"{len(samples)} samples of {len({s.pid for s in samples})} processes",
        f"over {(stamps[-1] - stamps[0]) / 1e6:.1f} s",
        f"the newest {time.time() - stamps[-1] / 1e6:.2f} s old by this machine's clock",
        f"{sum(s.smUtil > 100 for s in samples)} over 100 %",
        f"{sum(not t for t in stamps)} without a time",
        f"with the newest timestamp: {again if isinstance(again, str) else len(again)}",
        f"{ms:.2f} ms",
    )
    yield Finding(question, note, ", ".join(words), None)


def _memory_versions(nvml: Nvml, handle: Any) -> Iterator[Finding]:
    first = nvml.get("nvmlDeviceGetMemoryInfo", handle)
    second = nvml.get("nvmlDeviceGetMemoryInfo", handle, 0x02000028)
    seen, differs = "one of the two versions is missing", True
    if first is not None and second is not None:
        more = first.used - second.used
        seen = f"version 1 says {more} bytes more; reserved are {second.reserved}"
        differs = abs(more - second.reserved) > 1 << 20
    question = "does version 1 of MemoryInfo count what is reserved as used"
    yield Finding(question, "yes, version 2 does not", seen, differs)


def _refresh(nvml: Nvml, handle: Any) -> Iterator[Finding]:
    """Look at the counters as fast as possible, to see how often the driver renews them."""
    changes: dict[int, list[float]] = {field_id: [] for field_id in POLLED}
    last: dict[int, float] = {}
    deadline = time.monotonic() + POLL_SECONDS
    while time.monotonic() < deadline:
        for answer in nvml.get("nvmlDeviceGetFieldValues", handle, list(POLLED)) or ():
            value = None if answer.nvmlReturn else number(answer)
            if value is not None and value != last.get(answer.fieldId):
                last[answer.fieldId] = value
                changes[answer.fieldId].append(time.monotonic())
        time.sleep(POLL_EVERY)
    words = []
    for field_id, name in POLLED.items():
        gaps = [b - a for a, b in pairwise(changes[field_id])]
        every = f"{statistics.median(gaps) * MS:.0f} ms" if gaps else "not in this time"
        words.append(f"{name} ({field_id}): {every}")
    seen = f"looked every {POLL_EVERY * MS:.0f} ms for {POLL_SECONDS:g} s; renewed "
    question = "how often does the driver renew its counters"
    yield Finding(question, "unknown", seen + ", ".join(words), None)


def look_at_tape(
    tape: Tape, copied: Sequence[tuple[float, int]], pids: Sequence[int]
) -> Iterator[Finding]:
    """Yield what the recording itself shows."""
    yield from (_wrap(tape, *which) for which in ((197, "TX"), (198, "RX")))
    if copied:
        yield _bytes_match(tape, copied)
    if pids:
        yield _pids(tape, pids)
    yield from (_missing_fields(tape), _sentinels(tape))


def _numbers(points: Points) -> list[tuple[float, int | float]]:
    return [(t, value) for t, value in points if not isinstance(value, str)]


def _wrap(tape: Tape, field_id: int, name: str) -> Finding:
    seen = "it has no value here"
    if values := [value for _, value in _numbers(tape.points.get(f"field.{field_id}", []))]:
        falls = sum(b < a for a, b in pairwise(values))
        ends = f"from {values[0]} to {values[-1]}, highest {max(values)}"
        seen = f"{TYPES[tape.field_types[field_id]]}; {ends}, fell {falls} times"
    question = f"field {field_id} (PCIe {name} bytes): which type, does it wrap"
    return Finding(question, "unknown type; may wrap", seen, None)


def _bytes_match(tape: Tape, copied: Sequence[tuple[float, int]]) -> Finding:
    """Compare the counter with what the load says that it copied."""
    question = "does field 198 count the bytes that a job copies to the GPU"
    note = "yes: bytes, RX is host to device"
    start, end = (t - tape.zero for t in (copied[0][0], copied[-1][0]))
    points = tape.points.get("field.198", [])
    whole = _numbers(unwrapped(points) if tape.field_types.get(198) == UINT else points)
    inside = [(t, value) for t, value in whole if start <= t <= end]
    if len(inside) < 2 or end <= start:
        return Finding(question, note, "too few values to say", None)
    rate = (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
    real = (copied[-1][1] - copied[0][1]) / (end - start)
    seen = f"it grew by {rate / 1e9:.3f} GB/s while the job copied {real / 1e9:.3f} GB/s"
    return Finding(question, note, seen, not 0.8 <= rate / max(real, 1.0) <= 1.3)


def _missing_fields(tape: Tape) -> Finding:
    errors: dict[str, list[str]] = {}
    for field in FIELDS:
        for _, value in tape.points.get(field_key(field.field_id, field.scope), [])[-1:]:
            if isinstance(value, str):
                errors.setdefault(value, []).append(str(field.field_id))
    seen = "; ".join(f"code {code[1:]}: {', '.join(ids)}" for code, ids in errors.items())
    note = "202 and 204 are for NVLink 5 alone; the others answer from Hopper on"
    unexpected = {i for ids in errors.values() for i in ids} - {"202", "204"}
    odd_code = any(code != f"!{NOT_SUPPORTED}" for code in errors)
    question = "which fields of the batch have no value"
    return Finding(question, note, seen or "none", bool(unexpected) or odd_code)


def _sentinels(tape: Tape) -> Finding:
    keys = sorted(
        key
        for key, points in tape.points.items()
        if any(v in SENTINELS or math.isnan(v) for _, v in _numbers(points))
    )
    leaked = f"process shares over 100: {tape.shares_above_100}"
    seen = f"tracks: {', '.join(keys) or 'none'}; {leaked}"
    return Finding("where do sentinels or NaN appear", "anywhere", seen, None)


def _pids(tape: Tape, pids: Sequence[int]) -> Finding:
    named = {pid for moment in tape.moments for pid in moment.memory}
    seen, strangers = sum(pid in named for pid in pids), len(named - set(tape.roles))
    said = f"of {len(pids)} loads NVML named {seen}; it named {strangers} pids that are not ours"
    note = "yes, but in containers it may name host pids, or none"
    return Finding("does NVML name processes by our pids", note, said, seen < len(pids))


def _timed(nvml: Nvml, function: str, *arguments: Any) -> tuple[float, Any]:
    """Return how many ms a call took, and its answer or why there is none."""
    started = time.perf_counter()
    try:
        answer = nvml.call(function, *arguments)
    except Unknown as unknown:
        answer = unknown.reason
    return (time.perf_counter() - started) * MS, answer
