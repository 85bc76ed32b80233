"""What is brought back to be replayed: NVML on tape, and the demo pairs."""

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
from pathlib import Path

from msgspec import to_builtins

from benchmarks.gpu.runner import Check, Failed, LeftOut, Result, answer, monitor, need
from benchmarks.gpu.story import JOB, PAIRS
from benchmarks.record_pairs import FOLDER, ROOT
from tests import fake_nvml
from whyidle.monitor.core.paths import database
from whyidle.monitor.demo import answer as demo_answer
from whyidle.monitor.demo.outcome import Half, of_runs
from whyidle.monitor.demo.pairs import CURATED, SIDES, Pair, all_pairs, made_in
from whyidle.monitor.demo.watched import watch
from whyidle.monitor.signals import portable
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.tracing.space import Space

PHASE_SECONDS, QUICK_PHASE_SECONDS = 8.0, 0.5
TAPE = ROOT / "tests" / "data" / "tapes" / "one_gpu.tape"
SIDE_SECONDS, QUICK_SIDE_SECONDS = 12.0, 4.0
TRACES = ("--first-trace", "2", "--trace-share", "0.1")
# Both sides, with what they need to start.
NEEDS = 42.0
# What fits into a repository, of each side of about ten pairs.
LARGEST_TRACE = 700_000
# One GPU has nothing to say of them: they are about several devices, or about cores.
NOT_HERE = ("idle_devices", "misaligned_shards", "cpu_starved")
# A trace that is taken by hand: its seconds, and for how long it is tried after the start.
TRACE_SECONDS, LEAST_SECONDS = 0.5, 0.02
PATIENCE, TRACE_PATIENCE = 25.0, 20.0
# The checkout may be imported through its links. Root's home names no person.
PLACES = [(f"{ROOT}/{links}".encode(), FOLDER.encode()) for links in ("whyidle/", "")]
PLACES += [(f"{home}/".encode(), b"/user/") for home in {str(Path.home())} - {"/root"}]
_UUID = re.compile(rb"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_UUID = b"GPU-00000000-0000-4000-8000-000000000000"


# NVML on tape ------------------------------------------------------------------------------------
def record(check: Check) -> None:
    """Run gpu_record.py, and keep its tape."""
    check.do("NVML tape", _record)


def _record(check: Check, part: Result) -> None:
    seconds = QUICK_PHASE_SECONDS if check.quick else PHASE_SECONDS
    command = [sys.executable, f"{ROOT}/benchmarks/gpu_record.py", "--out", f"{check.work}"]
    command += ["--pids", f"{check.work}", "--seconds-per-phase", f"{seconds:g}"]
    if not check.gpu:
        command += ["--allow-idle", "--hz", "5"]
        library, trainer, neighbour = check.work, check.work / "TRAINER", check.work / "NEIGHBOUR"
        fake_nvml.build(library)
        os.environ |= fake_nvml.environment(library, TAPE, TRAINER=trainer, NEIGHBOUR=neighbour)
    made, _ = answer("gpu_record.py", command, timeout=max(check.left, 1.0))
    for name in ("nvml.tape", "nvml.json"):
        check.keep(part, name, (Path(made["folder"]) / name).read_bytes())
    document = json.loads((check.folder / "nvml.json").read_text())
    part.figures = {name: document[name] for name in ("loaded", "tape_bytes", "claims")}
    if check.gpu and not document["loaded"]:
        raise Failed("torch does not see the GPU, so the tape has no load")


# The demo pairs ----------------------------------------------------------------------------------
def pairs(check: Check) -> None:
    """Run one pair after the other, as `monitor demo` does, as long as there is time."""
    os.environ["WHYIDLE_STATE_DIR"] = str(check.work / "state")
    only_here = [*all_pairs(PAIRS)]
    found = {f"{pair.name}_{pair.framework}": pair for pair in (*only_here, *all_pairs())}
    # What shows on a GPU alone comes first, then one of each kind of idle time.
    curated = [f"{name}_{framework}" for name, framework in CURATED]
    first = [f"{pair.name}_{pair.framework}" for pair in only_here if pair.name != JOB] + curated
    names = curated[:1] if check.quick else dict.fromkeys((*first, *sorted(found)))
    for name in check.wanted or names:
        check.do(name, _pair, found[name], needs=0.0 if check.quick else NEEDS)


def _pair(check: Check, part: Result, pair: Pair) -> None:
    """Keep the figures, the windows that the rules judge, and a trace of each side."""
    if pair.name in NOT_HERE and not check.wanted:
        raise LeftOut("one GPU has nothing to say of it")
    need(pair.framework)
    seconds = QUICK_SIDE_SECONDS if check.quick else SIDE_SECONDS
    before, after = (watch(pair.script(side), seconds, part.name, traces=TRACES) for side in SIDES)
    outcome = of_runs(database(), pair, [(before, after)])
    part.figures = to_builtins(demo_answer.as_json(outcome)) | {"unknown_traces": {}}
    for side, half in zip(SIDES, (outcome.before, outcome.after), strict=True):
        document = {
            "window": portable.dump(half.window),
            "findings": to_builtins(half.findings),
            "step_ms": half.watched.step_ms,
            "samples_per_s": half.watched.samples_per_s,
        }
        window = gzip.compress(without_places(json.dumps(document).encode()), mtime=0)
        check.keep(part, f"windows/{part.name}_{side}.json.gz", window)
        if found := _trace(check, half):
            suffix = "json" if found[1].endswith(".json") else "xplane.pb"
            check.keep(part, f"traces/{part.name}_{side}.{suffix}.gz", found[0])
        else:
            part.figures["unknown_traces"][side] = "none that is small enough came in time"
    top = outcome.top(outcome.before)
    part.figures["right"] = top in pair.faults
    # On a busy CPU another fault may be as large.
    if not part.figures["right"] and check.gpu:
        raise Failed(f"{top or 'nothing'} stands first before the fix")


def _trace(check: Check, half: Half) -> tuple[bytes, str] | None:
    """Return the largest trace that is small enough, or take one."""
    files = [file.path for file in Space(database()).files() if file.run == half.watched.run]
    # A window may have met nothing but a compilation.
    packed = [(_blanked(path), path.name) for path in files if analyse(path).devices]
    fit = [each for each in packed if len(each[0]) <= LARGEST_TRACE]
    if fit or check.left <= NEEDS or check.quick:
        return max(fit, key=lambda each: len(each[0]), default=None)
    command = [sys.executable, str(half.watched.script), "--seconds", "70"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as job:
        try:
            return until_small(job, _blanked, LARGEST_TRACE)
        finally:
            # With what it has started: workers of a loader.
            os.killpg(job.pid, signal.SIGKILL)


def until_small(
    job: subprocess.Popen[bytes], packed: Callable[[Path], bytes], most: int
) -> tuple[bytes, str] | None:
    """Trace a warm program again and again, for less time where the last one was too large."""
    until, seconds, is_warm = time.monotonic() + PATIENCE, TRACE_SECONDS, False
    while job.poll() is None and time.monotonic() < until and seconds > LEAST_SECONDS:
        path = taken(job.pid, seconds)
        if path is None:
            continue
        text = packed(path)
        if len(text) > most:
            seconds *= 0.8 * most / len(text)
        elif is_warm:
            return text, path.name
        # The first one that comes may be of a program that still compiles.
        is_warm = True
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
def _places() -> list[tuple[bytes, bytes]]:
    """Return the folders of this machine, and what stands for them; the longer first."""
    return [(f"{made_in()}/".encode(), FOLDER.encode()), *PLACES]


def without_places(text: bytes) -> bytes:
    """Return a text in which the project lies in a folder that means no machine."""
    for name, other in _places():
        text = text.replace(name, other)
    return _UUID.sub(_NO_UUID, text)


def blanked(trace: bytes) -> bytes:
    """Return a trace without this machine's names, each place in it as long as it was.

    In a binary file what follows must stay where it is; more slashes than one mean one.
    """
    for name, other in _places():
        trace = trace.replace(name, other.rstrip(b"/")[: len(name) - 1].ljust(len(name), b"/"))
    host = platform.node().encode()
    # A shorter name may stand for something else.
    trace = trace.replace(host, b"x" * len(host)) if len(host) >= 5 else trace
    return re.sub(rb'("host_name"\s*:\s*)"[^"]*"', rb'\1"host"', _UUID.sub(_NO_UUID, trace))


def _blanked(path: Path) -> bytes:
    return gzip.compress(blanked(path.read_bytes()), mtime=0)
