"""What is brought back to be replayed: NVML on tape, the demo pairs, and the dashboard's sample."""

from __future__ import annotations

import gzip
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import record_sample
from benchmarks.gpu.jobs import check_installed
from benchmarks.gpu.runner import Check, Failed, LeftOut, Part, monitor, output
from benchmarks.record_pairs import FOLDER, ROOT
from tests import fake_nvml
from whyidle.monitor.core.paths import DATABASE, database
from whyidle.monitor.demo import answer
from whyidle.monitor.demo.outcome import Half, of_runs
from whyidle.monitor.demo.pairs import SIDES, Pair, all_pairs
from whyidle.monitor.demo.watched import watch
from whyidle.monitor.signals import portable
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.tracing.space import Space

PHASE_SECONDS, QUICK_PHASE_SECONDS = 8.0, 0.5
TAPE = ROOT / "tests" / "data" / "tapes" / "one_gpu.tape"
SAMPLE_SECONDS, QUICK_SAMPLE_SECONDS = 45.0, 12.0
SIDE_SECONDS, QUICK_SIDE_SECONDS, FIRST_TRACE = 6.0, 4.0, 2.0
# Both sides, with what they need to start.
NEEDS = 30.0
# Of one trace, and of all of one run of the checks: what fits into a repository.
LARGEST_TRACE, LARGEST_ALL = 1_200_000, 14_000_000
# They show what needs several devices, or too few cores: one GPU has nothing to say of it.
NOT_HERE = {
    "idle_devices": "it is about several devices",
    "misaligned_shards": "it is about several devices",
    "cpu_starved": "it is about cores",
}
# One of each kind of idle time comes first.
FIRST = (
    *("input_starved_torch", "unjitted_step_jax", "per_step_sync_torch", "retracing_jax"),
    *("eager_launch_bound_torch", "large_readback_jax", "host_resident_data_jax"),
    "allocation_churn_torch",
)
QUICK = ("retracing_jax",)
# A trace that is taken by hand: its seconds, and for how long it is tried after the start.
TRACE_SECONDS, LEAST_SECONDS = 0.5, 0.02
PATIENCE, TRACE_PATIENCE = 40.0, 30.0
# The first one that comes may be of a program that still compiles.
WARM = 1
Packed = Callable[[Path], bytes]
# The longer first: the checkout may be imported through its links.
PREFIXES = (f"{ROOT}/.typing/whyidle/", f"{ROOT}/")
# Not root's, which names no person.
HOME = "" if Path.home() == Path("/root") else f"{Path.home()}/"
_UUID = re.compile(rb"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_UUID = b"GPU-00000000-0000-4000-8000-000000000000"


# NVML on tape ------------------------------------------------------------------------------------
def record(check: Check) -> None:
    """Run gpu_record.py, and keep its tape."""
    check.do("NVML tape", partial(_record, check))


def _record(check: Check, part: Part) -> None:
    seconds = QUICK_PHASE_SECONDS if check.quick else PHASE_SECONDS
    out, pids, env = check.folder / "nvml", check.folder / "pids", dict(os.environ)
    pids.mkdir()
    command = [sys.executable, ROOT / "benchmarks" / "gpu_record.py", "--out", out, "--pids", pids]
    command += ["--seconds-per-phase", f"{seconds:g}"]
    if not check.gpu:
        command += ["--allow-idle", "--hz", "5"]
        files = {name: pids / name for name in ("TRAINER", "NEIGHBOUR")}
        try:
            env |= fake_nvml.environment(fake_nvml.build(pids), TAPE, **files)
        except RuntimeError as missing:
            raise LeftOut(str(missing)) from None
    output("gpu_record.py", command, env=env, timeout=max(check.left, 1.0))
    (made,) = out.glob("*/nvml.json")
    document = json.loads(made.read_text())
    # What waits for an event is on a thread of its own.
    costs = {name: f["all"]["median_us"] for name, f in document["functions"].items()
             if "Wait" not in name}  # fmt: skip
    slowest = max(costs, key=lambda name: float(costs[name]))
    part.figures = {
        **{name: document[name] for name in ("loaded", "tape_bytes", "findings")},
        "slowest_call": slowest,
        "slowest_call_median_us": costs[slowest],
        "differs": [f["question"] for f in document["findings"] if f["differs"]],
    }
    kept = (made.with_suffix(".tape"), made)
    part.files = [str(path.relative_to(check.folder)) for path in kept]
    if check.gpu and not document["loaded"]:
        raise Failed("no framework here sees the GPU, so the tape has no load")


# The dashboard's sample --------------------------------------------------------------------------
def sample(check: Check) -> None:
    """Record all runs into one store."""
    check.do("the dashboard's sample", partial(_sample, check))


def _sample(check: Check, part: Part) -> None:
    for framework in ("jax", "torch"):
        check_installed(framework)
    store = check.folder / DATABASE
    try:
        record_sample.record_all(QUICK_SAMPLE_SECONDS if check.quick else SAMPLE_SECONDS, store)
    except FileExistsError:
        here = record_sample.AT
        raise LeftOut(f"{here} is there already, and is not ours: remove it") from None
    part.figures = {"runs": [run for run, _ in record_sample.RUNS], "bytes": store.stat().st_size}
    part.files = [DATABASE]
    if not part.figures["bytes"]:
        raise Failed("the store is empty")


# The demo pairs ----------------------------------------------------------------------------------
def pairs(check: Check) -> None:
    """Run one pair after the other, as `monitor demo` does, as long as there is time."""
    os.environ["WHYIDLE_STATE_DIR"] = str(check.folder / "state")
    space = LARGEST_ALL
    for name, pair in _chosen(check).items():
        needs = 0.0 if check.quick else NEEDS
        part = check.do(name, partial(_pair, check, pair, space), needs)
        space -= sum((check.folder / file).stat().st_size for file in part.files)


def _chosen(check: Check) -> dict[str, Pair]:
    """Return the pairs that are asked for, the ones that show most first."""

    def place(name: str) -> int:
        # Those that are not for here take no time, and come first.
        is_here = found[name].name not in NOT_HERE
        return -1 if not is_here else FIRST.index(name) if name in FIRST else len(FIRST)

    found = {f"{pair.name}_{pair.framework}": pair for pair in all_pairs()}
    wanted = check.wanted or (QUICK if check.quick else sorted(found, key=place))
    return {name: found[name] for name in wanted if name in found}


def _pair(check: Check, pair: Pair, space: int, part: Part) -> None:
    """Keep the figures, the windows that the rules judge, and a trace of each side."""
    if pair.name in NOT_HERE and not check.wanted:
        raise LeftOut(NOT_HERE[pair.name])
    check_installed(pair.framework)
    seconds = QUICK_SIDE_SECONDS if check.quick else SIDE_SECONDS
    options = ("--first-trace", f"{FIRST_TRACE:g}", "--trace-share", "0.1")
    seen = [watch(pair.script(side), seconds, part.name, traces=options) for side in SIDES]
    outcome = of_runs(database(), pair, [(seen[0], seen[1])])
    part.figures = answer.as_json(outcome) | {"unknown_traces": {}}
    for side, half in zip(SIDES, (outcome.before, outcome.after), strict=True):
        document = {
            "window": portable.dump(half.window),
            "findings": half.findings,
            "step_ms": half.watched.step_ms,
            "samples_per_s": half.watched.samples_per_s,
        }
        text = _packed(without_places(json.dumps(document).encode()))
        part.files.append(_write(check, f"windows/{part.name}_{side}.json.gz", text))
        found = _trace(check, half, min(LARGEST_TRACE, space))
        if found is None:
            why = "none that is small enough came in the time that there was"
            part.figures["unknown_traces"][side] = why
        else:
            suffix = "json" if found[1].endswith(".json") else "xplane.pb"
            path = f"traces/{part.name}_{side}.{suffix}.gz"
            part.files.append(_write(check, path, found[0]))
    top = outcome.top(outcome.before)
    part.figures["right"] = top in pair.faults
    # On a busy CPU another fault may be as large.
    if not part.figures["right"] and check.gpu:
        raise Failed(f"{top or 'nothing'} stands first before the fix")


def _write(check: Check, name: str, packed: bytes) -> str:
    (check.folder / name).parent.mkdir(exist_ok=True)
    (check.folder / name).write_bytes(packed)
    return name


def _trace(check: Check, half: Half, most: int) -> tuple[bytes, str] | None:
    """Return the largest trace that is small enough, or take one."""
    files = [file.path for file in Space(database()).files() if file.run == half.watched.run]
    # A window may have met nothing but a compilation.
    packed = [(_blanked(path), path.name) for path in files if analyse(path).devices]
    if fit := [each for each in packed if len(each[0]) <= most]:
        return max(fit, key=lambda each: len(each[0]))
    if check.left <= NEEDS or check.quick:
        return None
    seconds = f"{PATIENCE + TRACE_PATIENCE:g}"
    command = [sys.executable, half.watched.script, "--seconds", seconds]
    none = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=none, stdout=none, stderr=none, start_new_session=True
    ) as job:
        try:
            return until_small(job, _blanked, most)
        finally:
            # With what it has started: workers of a loader.
            os.killpg(job.pid, signal.SIGKILL)


def until_small(
    job: subprocess.Popen[bytes], packed: Packed, most: int
) -> tuple[bytes, str] | None:
    """Trace a warm program again and again, for less time where the last one was too large."""
    until, seconds, seen = time.monotonic() + PATIENCE, TRACE_SECONDS, 0
    while job.poll() is None and time.monotonic() < until and seconds > LEAST_SECONDS:
        path = taken(job.pid, seconds)
        if path is None:
            continue
        seen += 1
        text = packed(path)
        if len(text) > most:
            seconds *= 0.8 * most / len(text)
        elif seen > WARM:
            return text, path.name
    return None


def taken(pid: int, seconds: float) -> Path | None:
    """Take one trace; ``None``: its framework is not there yet, or nothing ran."""
    words = ("trace", str(pid), "--seconds", f"{seconds:g}", "--json")
    try:
        found, _ = monitor(*words, timeout=TRACE_PATIENCE)
    except Failed:
        return None
    files = [f.path for f in Space(database()).files() if f.path.name.startswith(f"pid-{pid}-")]
    return files[-1] if found["devices"] and files else None


# A recording names nobody ------------------------------------------------------------------------
def without_places(text: bytes) -> bytes:
    """Return a text in which the project lies in a folder that means no machine."""
    for prefix in PREFIXES:
        text = text.replace(prefix.encode(), FOLDER.encode())
    return _UUID.sub(_NO_UUID, text.replace(HOME.encode(), b"/home/user/") if HOME else text)


def blanked(trace: bytes) -> bytes:
    """Return a trace without this machine's names, each place in it as long as it was.

    In a binary file what follows must stay where it is; more slashes than one mean one.
    """
    for name, other in (*((prefix, FOLDER) for prefix in PREFIXES), (HOME, "/user/")):
        if name:
            as_long = other.rstrip("/")[: len(name) - 1].ljust(len(name), "/")
            trace = trace.replace(name.encode(), as_long.encode())
    host = platform.node().encode()
    # A shorter name may stand for something else.
    trace = trace.replace(host, b"x" * len(host)) if len(host) >= 5 else trace
    return re.sub(rb'("host_name"\s*:\s*)"[^"]*"', rb'\1"host"', _UUID.sub(_NO_UUID, trace))


def _blanked(path: Path) -> bytes:
    return _packed(blanked(path.read_bytes()))


def _packed(text: bytes) -> bytes:
    return gzip.compress(text, 9, mtime=0)
