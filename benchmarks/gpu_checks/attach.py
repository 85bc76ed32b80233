"""Entering jobs that use the GPU: every way in, how long they stand still, what they lose."""

from __future__ import annotations

import importlib.util
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from attach_stress import BAR_MEDIAN_MS, BAR_P99_MS, Tally, cycle

from gpu_checks.jobs import (
    FRAMEWORKS,
    Running,
    check_device,
    check_installed,
    line,
    running,
)
from gpu_checks.room import Failed, LeftOut, Part, Room, environment, tail
from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import AGENT, OUTSIDE, PTRACE, REMOTE_EXEC, RUN
from whyidle.monitor.attach.target import Target
from whyidle.monitor.link.link import Link
from whyidle.monitor.processes.procfs import ProcFs

SECONDS = 170
CYCLES, QUICK_CYCLES = 100, 3
ALONE_ROUNDS = 5
RUN_ROUNDS = "400"
# Long enough for a tick of each source, and for the agent's first word of the steps.
WATCH_SECONDS, QUICK_WATCH_SECONDS = 6.0, 5.0
CYCLE_SECONDS = 45.0
LEAVE_SECONDS = 5.0
PATIENCE = 90.0


def run(room: Room) -> None:
    """Enter one job of each framework in every way, and see at the end what it has lost."""
    for framework in ("jax",) if room.quick else FRAMEWORKS:
        _one_job(room, framework)
    if not room.quick:
        room.do("jax: its own profiler server", partial(_server, room))


def _one_job(room: Room, framework: str) -> None:
    alone: dict[str, Any] = {}
    jobs: list[Running] = []
    with ExitStack() as stack:
        room.do(f"{framework}: alone", partial(_alone, room, framework, alone))
        room.do(
            f"{framework}: starts",
            lambda _: jobs.append(stack.enter_context(running(framework, room.folder))),
        )
        for job in jobs:
            room.do(f"{framework}: every way in", partial(_ways, job))
            room.do(f"{framework}: in and out", partial(_cycles, room, job))
            room.do(f"{framework}: monitor attach", partial(_attach, room, job))
            if not room.quick:
                room.do(f"{framework}: from outside", partial(_observe, room, job))
            room.do(f"{framework}: lost the same", partial(_ends, job, alone))
    if not room.quick:
        room.do(f"{framework}: monitor run", partial(_run, room, framework, alone))


def _alone(room: Room, framework: str, alone: dict[str, Any], part: Part) -> None:
    """Two jobs that nobody enters must lose the same: else the others prove nothing."""
    check_installed(framework)
    command = line(framework, "--rounds", str(ALONE_ROUNDS))
    pipe = subprocess.PIPE
    jobs = [
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        for _ in range(1 if room.quick else 2)
    ]
    said = [job.communicate(timeout=PATIENCE) for job in jobs]
    for job, (_, err) in zip(jobs, said, strict=True):
        if job.returncode:
            raise Failed(f"the job died with code {job.returncode}: {tail(err)}")
    told = [json.loads(out.splitlines()[-1]) for out, _ in said]
    part.figures = told[0]
    check_device(told[0], gpu=room.gpu)
    if len({each["losses"] for each in told}) > 1 or any(each["wrong"] for each in told):
        raise Failed("two runs of the job, which nobody entered, did not lose the same")
    alone.update(told[0])


def _same(told: dict[str, Any], alone: dict[str, Any]) -> None:
    """Fail where a job did not do what it does alone."""
    if not alone:
        raise LeftOut("it is not known what the job does alone")
    if told["wrong"]:
        raise Failed(f"{told['wrong']} of {told['rounds']} rounds lost something else")
    if told["losses"] != alone["losses"]:
        raise Failed("the job lost something else than alone, from its first round on")


def _ends(job: Running, alone: dict[str, Any], part: Part) -> None:
    """End the job that was entered so often."""
    part.figures = told = job.end()
    _same(told, alone)


def _cycles(room: Room, job: Running, part: Part) -> None:
    tally = Tally()
    # The rest of the time is for the other ways in.
    until = time.monotonic() + min(CYCLE_SECONDS, room.left)
    for _ in range(QUICK_CYCLES if room.quick else CYCLES):
        if job.process.poll() is not None or time.monotonic() > until:
            break
        cycle(job.key, tally)
    part.figures = {**_stops(tally.stops), "cycles": tally.cycles}
    part.figures["not_entered"] = tally.not_entered
    part.figures["cycle_median_s"] = round(statistics.median(tally.seconds or [0.0]), 3)
    if tally.not_entered:
        raise Failed(f"{tally.not_entered} of {tally.cycles} not entered: {'; '.join(tally.why)}")
    if not room.quick and tally.cycles < CYCLES:
        raise Failed(f"only {tally.cycles} of {CYCLES} times in the time that there was")
    median, p99 = part.figures["stop_median_ms"], part.figures["stop_p99_ms"]
    # Of a few stops on a busy machine nothing is known.
    if not room.quick and (median > BAR_MEDIAN_MS or p99 > BAR_P99_MS):
        raise Failed(f"stops of {median:.2f} ms (median), {p99:.2f} ms (p99) are too long")


def _stops(stops: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(stops) or [0.0]
    return {
        "stops": len(stops),
        "stop_median_ms": round(statistics.median(ordered), 3),
        "stop_p99_ms": round(ordered[int(len(ordered) * 0.99)], 3),
        "stop_max_ms": round(ordered[-1], 3),
    }


def _ways(job: Running, part: Part) -> None:
    """Come in by the ladder, once more while the agent is there, and look at every other rung."""
    target = Target(job.key, ProcFs())
    rungs = {r.name: r.refused and r.refused.what for r in ladder.rungs(target)}
    first, second = ladder.enter(target), ladder.enter(target)
    _leave(job)
    part.figures = {
        "refused": {name: why for name, why in rungs.items() if why},
        "first": {"method": first.method, **_stops(first.stops_ms)},
        "again": {"method": second.method, **_stops(second.stops_ms)},
    }
    best = REMOTE_EXEC if sys.version_info >= (3, 14) else PTRACE
    if (first.method, second.method) != (best, AGENT) or second.stops_ms:
        raise Failed(f"entered by {first.method}, then by {second.method}: {first.refusal}")


def _leave(job: Running) -> None:
    link = Link.open(job.key, ProcFs())
    if link is not None:
        link.leave(LEAVE_SECONDS)
        link.close()


def _watch(room: Room, job: Running, *more: str) -> dict[str, Any]:
    """Have the command watch a job; return its summary."""
    seconds = QUICK_WATCH_SECONDS if room.quick else WATCH_SECONDS
    line = ["attach", str(job.process.pid), "--json", "--for", f"{seconds:g}", *more]
    return _monitor(room, line)


def _monitor(room: Room, line: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "whyidle.monitor", *line],
        env=environment(WHYIDLE_STATE_DIR=str(room.folder / "state")),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    print(done.stderr)
    if done.returncode:
        raise Failed(f"monitor {line[0]} ended with {done.returncode}: {tail(done.stderr)}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**told, "_said": done.stderr}


def _brief(summary: dict[str, Any]) -> dict[str, Any]:
    found = [each["rule"] for each in summary.get("findings", [])]
    return {n: summary.get(n) for n in ("attached", "method", "steps")} | {"findings": found}


def _attach(room: Room, job: Running, part: Part) -> None:
    summary = _watch(room, job)
    part.figures = {**_brief(summary), "gpus": [_gpu(gpu) for gpu in summary["gpus"] or ()]}
    part.figures["monitor_cpu_cores"] = (summary["monitor"] or {}).get("cpu_cores")
    if summary["attached"] != "agent":
        why = [each["refused"] for each in summary["agents"] or () if each["refused"]]
        raise Failed(f"the agent did not come in: {'; '.join(why) or 'it was not its turn yet'}")
    if room.gpu and not any(gpu["job"] for gpu in part.figures["gpus"]):
        raise Failed(f"no GPU was told to be the job's: {summary['gpu_problem']}")


def _gpu(told: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a GPU, as means, and why the rest is not; nothing that is its own."""
    means = {
        n: each["mean"] for n, each in told.items() if isinstance(each, dict) and "mean" in each
    }
    return {"job": told["job"], "means": means, "unknown": told.get("unknown")}


def _observe(room: Room, job: Running, part: Part) -> None:
    summary = _watch(room, job, "--observe")
    part.figures = _brief(summary)
    if summary["attached"] != OUTSIDE:
        raise Failed(f"attached: {summary['attached']}")


def _run(room: Room, framework: str, alone: dict[str, Any], part: Part) -> None:
    check_installed(framework)
    job = line(framework, "--rounds", RUN_ROUNDS)
    summary = _monitor(room, ["run", "--json", "--", *job])
    said = [x for x in summary["_said"].splitlines() if x.startswith('{"rounds"')]
    if not said:
        raise Failed(f"the job told nothing: {tail(summary['_said'])}")
    told = json.loads(said[-1])
    part.figures = {**_brief(summary), "job": told}
    if (summary["attached"], summary["method"]) != ("agent", RUN):
        raise Failed(f"attached: {summary['attached']} by {summary['method']}")
    _same(told, alone)


def _server(room: Room, part: Part) -> None:
    """Take a trace by the job's own server: nothing of ours goes in."""
    if importlib.util.find_spec("grpc") is None:
        raise LeftOut("grpcio is not installed here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running("jax", room.folder, "--server", str(port)) as job:
        command = ["trace", str(job.process.pid), "--server", str(port), "--json"]
        told = _monitor(room, command)
        how = job.end()
    part.figures = {"events": told["events"], "devices": len(told["devices"]), "job": how}
    if not told["devices"] or how["wrong"]:
        raise Failed(f"devices: {len(told['devices'])}; wrong rounds: {how['wrong']}")
