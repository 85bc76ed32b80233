"""What is believed of NVML without proof: asked once, under load, beside the tape."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from benchmarks.gpu.runner import Claim
from benchmarks.gpu.tape import PROCESSES, USE, Call, field_key, field_value, tracks
from whyidle.monitor.core.reading import IDLE
from whyidle.monitor.sources.fields import FIELDS
from whyidle.monitor.sources.nvml import Nvml, Unknown

MS = 1000.0
REPEATS = 5
GPM_GAPS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.25)
GPM_SM, GPM_PCIE_RX = 2, 21
ZEROS = "SM 0.0 %"
POLL_SECONDS, POLL_EVERY = 1.5, 0.002
POLLED = {83: "energy", 185: "average power", 186: "instant power", 197: "PCIe TX", 198: "PCIe RX"}


PCIE, SAMPLES = "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetSamples"
# Phase, function, its arguments; a claim, and whether an answer and its ms bear it out.
Question = tuple[str, str, tuple[int, ...], str, Callable[[Any, float], bool | None]]
QUESTIONS: tuple[Question, ...] = (
    ("h2d", PCIE, (0,), "TX costs about 20 ms", lambda _, ms: 10 <= ms <= 40),
    ("h2d", PCIE, (1,), "RX costs about 20 ms", lambda _, ms: 10 <= ms <= 40),
    ("two_processes", SAMPLES, (0, 0), "has finer power", lambda a, _: isinstance(a, tuple)),
    ("two_processes", SAMPLES, (1, 0), "has finer GPU use", lambda a, _: isinstance(a, tuple)),
    ("two_processes", SAMPLES, (2, 0), "has finer memory use", lambda a, _: isinstance(a, tuple)),
    ("two_processes", USE, (0,), "lists history; values over 100 leak", lambda *_: None),
    ("two_processes", USE, (1 << 62,), "NOT_FOUND is no new sample", lambda a, _: a == IDLE),
)


def ask_driver(nvml: Nvml, handle: Any, phase: str) -> Iterator[Claim]:
    """Ask the driver itself what this phase's load can show."""
    for _, function, arguments, claim, holds in [q for q in QUESTIONS if q[0] == phase]:
        took = [_timed(nvml, function, handle, *arguments) for _ in range(REPEATS)]
        ms, answer = statistics.median(ms for _, ms in took), took[-1][0]
        seen = f"median of {REPEATS}: {ms:.2f} ms; last answer: {_shown(answer)}"
        yield Claim(f"{function}: {claim}", holds(answer, ms), seen)
    for special in {"h2d": (_refresh,), "two_processes": (_gpm_interval, _memory)}.get(phase, ()):
        yield special(nvml, handle)


def _shown(answer: Any) -> str:
    """Return what there is of the driver's samples, or its answer as it is."""
    samples = answer[-1] if isinstance(answer, tuple) else answer
    if not isinstance(samples, list):
        return str(answer)
    stamps = sorted(s.timeStamp / 1e6 for s in samples if s.timeStamp) or [math.nan]
    shares = [s.smUtil for s in samples if hasattr(s, "smUtil")]
    return (
        f"{len(samples)} samples over {stamps[-1] - stamps[0]:.3f} s, the newest"
        f" {time.time() - stamps[-1]:.2f} s old, {len({*stamps})} times,"
        f" {sum(share > 100 for share in shares)} over 100 %"
    )


def _gpm_interval(nvml: Nvml, handle: Any) -> Claim:
    said = {gap: _gpm_pair(nvml, handle, gap) for gap in GPM_GAPS}
    seen = "; ".join(f"{gap * MS:.0f} ms: {answer}" for gap, answer in said.items())
    known = {gap for gap, answer in said.items() if answer.startswith("SM")}
    holds = known >= {0.15, 0.25} and any(said[gap].startswith(ZEROS) for gap in known if gap < 0.1)
    claim = "GPM samples less than 100 ms apart may be answered with zeros, others are not"
    return Claim(claim, holds if known else None, seen)


def _gpm_pair(nvml: Nvml, handle: Any, gap: float) -> str:
    request = nvml.gpm_request((GPM_SM, GPM_PCIE_RX))
    try:
        samples = [nvml.call("nvmlGpmSampleAlloc") for _ in range(2)]
        for sample in samples:
            nvml.call("nvmlGpmSampleGet", handle, sample)
            time.sleep(gap)
        request.sample1, request.sample2 = samples
        nvml.call("nvmlGpmMetricsGet", request)
    except Unknown as unknown:
        return unknown.reason
    sm, pcie = request.metrics[0], request.metrics[1]
    if sm.nvmlReturn or not math.isfinite(sm.value):
        return f"no value (code {sm.nvmlReturn}, {sm.value})"
    return f"SM {sm.value:.1f} %, PCIe RX {pcie.value:.0f} MiB/s"


def _memory(nvml: Nvml, handle: Any) -> Claim:
    claim = "version 1 of MemoryInfo counts what is reserved as used, version 2 does not"
    first = nvml.get("nvmlDeviceGetMemoryInfo", handle)
    second = nvml.get("nvmlDeviceGetMemoryInfo", handle, 0x02000028)
    if first is None or second is None:
        return Claim(claim, False, "one of the two versions is missing")
    more = first.used - second.used
    seen = f"version 1 says {more} bytes more; reserved are {second.reserved}"
    return Claim(claim, abs(more - second.reserved) <= 1 << 20, seen)


def _refresh(nvml: Nvml, handle: Any) -> Claim:
    """Look at the counters as fast as possible, to see how often the driver renews them."""
    changes: dict[int, list[float]] = defaultdict(list)
    last: dict[int, object] = {}
    deadline = time.monotonic() + POLL_SECONDS
    while time.monotonic() < deadline:
        for answer in nvml.get("nvmlDeviceGetFieldValues", handle, list(POLLED)) or ():
            if not answer.nvmlReturn and (value := field_value(answer)) != last.get(answer.fieldId):
                last[answer.fieldId] = value
                changes[answer.fieldId].append(time.monotonic())
        time.sleep(POLL_EVERY)
    every = {field: statistics.median([b - a for a, b in pairwise(changes[field])] or [math.nan])
             for field in POLLED}  # fmt: skip
    seen = ", ".join(
        f"{POLLED[field]} ({field}): {gap * MS:.0f} ms" for field, gap in every.items()
    )
    return Claim("it is unknown how often the driver renews its counters", None, seen)


# Of the recording itself -------------------------------------------------------------------------
def bytes_match(calls: list[Call], start: float, end: float, copied: int) -> Claim:
    """Compare the counter with what a load says that it copied between two times of the tape."""
    points = [(t, v) for t, v in tracks(calls)["field.198"] if not isinstance(v, str)]
    inside = [(t, v) for t, v in points if start <= t <= end]
    claim, real = "field 198 counts the bytes that a job copies to the GPU", copied / (end - start)
    if len(inside) < 2:
        return Claim(claim, None, "too few values to say")
    grown = sum(max(0, b - a) for (_, a), (_, b) in pairwise(inside))
    rate = grown / (inside[-1][0] - inside[0][0])
    seen = f"it grew by {rate / 1e9:.3f} GB/s while the job copied {real / 1e9:.3f} GB/s"
    return Claim(claim, 0.8 <= rate / max(real, 1.0) <= 1.3, seen)


def look_at_calls(calls: list[Call], roles: dict[int, str]) -> Iterator[Claim]:
    """Yield what the recording shows of fields, and of our own loads."""
    points = tracks(calls)
    last = {f.field_id: points[field_key(f.field_id, f.scope)][-1:] for f in FIELDS}
    missing = {each: v for each, found in last.items() for _, v in found if isinstance(v, str)}
    claim = (
        "fields 202 and 204 are for NVLink 5 alone, 138 and 139 for Hopper's; none without links"
    )
    holds = {*missing.items()} <= {(field, "!3") for field in (138, 139, 202, 204)}
    yield Claim(claim, holds, f"errors: {missing}")
    named = {p.pid for c in calls if c.name == PROCESSES and not c.error for p in c.outcome}
    ours = named & roles.keys()
    seen = f"of {len(roles)} loads NVML named {len(ours)}, and {len(named - ours)} others"
    claim = "NVML names processes by our pids; in containers it may name host pids, or none"
    yield Claim(claim, len(ours) == len(roles), seen)


def _timed(nvml: Nvml, function: str, *arguments: Any) -> tuple[Any, float]:
    """Return the answer of a call, or why there is none, and how many ms it took."""
    started = time.perf_counter()
    try:
        answer = nvml.call(function, *arguments)
    except Unknown as unknown:
        answer = unknown.reason
    return answer, (time.perf_counter() - started) * MS
