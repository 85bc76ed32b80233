"""What works here and what does not, with the line to type: for the machine, and for one job."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from whyidle.monitor.app import access
from whyidle.monitor.app.jobs import check_is_a_job
from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import OUTSIDE, Refusal
from whyidle.monitor.attach.stack_reader.owner import CodeOwner
from whyidle.monitor.attach.stack_reader.reader import StackReader
from whyidle.monitor.attach.stack_reader.unreadable import Unreadable
from whyidle.monitor.core import paths
from whyidle.monitor.core.defects import LOG, logged
from whyidle.monitor.core.errors import Exit, NoGpu, Problem, StorageProblem, UsageProblem
from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.core.paths import database
from whyidle.monitor.core.reading import by_reason
from whyidle.monitor.processes.process import Identity
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target
from whyidle.monitor.render import jsonl, numbers
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.numbers import size
from whyidle.monitor.sources.gpm import SHORTEST_INTERVAL
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.ownership import owned_gpus
from whyidle.monitor.store import Reader, salvage

State = Literal["ok", "warn", "fail"]
GPU_SECONDS = 10.0
TAKEN = "would be taken"
CLOSED = "closed: "
ANSWER = "attach"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's page."""

    name: str
    state: State
    detail: str
    next_step: str = ""


def run(*, pid: str | None, require_gpu: bool, damaged: str | None, as_json: bool) -> None:
    """Check this machine, and one process if asked for; salvage a store."""
    if damaged is not None:
        _salvage(damaged, as_json=as_json)
        return
    target = Target.named(pid) if pid is not None else None
    checks = []
    for check in examine(target):
        checks.append(check)
        if not as_json:
            # That one way in is closed is no fault where another is open.
            spared = check.state == "ok" and check.detail.startswith(CLOSED)
            mark = numbers.DASH if spared else check.state
            if check.name == ANSWER:
                click.echo(f"\nYou can attach: {printable(check.detail)}")
            else:
                click.echo(f"{mark:<4}  {check.name:<18} {printable(check.detail)}")
            for line in check.next_step.splitlines():
                click.echo(f"{'':<25}-> {printable(line)}")
    if as_json:
        click.echo(jsonl.listing("doctors", [asdict(c) for c in checks]))
    failed = {c.name for c in checks if c.state == "fail"}
    if "store" in failed:
        sys.exit(Exit.STORAGE)
    if require_gpu and "gpu driver" in failed:
        sys.exit(Exit.NO_GPU)


def _salvage(damaged: str, *, as_json: bool) -> None:
    copied = salvage(Path(damaged), database())
    if as_json:
        click.echo(jsonl.line({"salvaged": copied}))
        return
    rows = sum(copied.values())
    click.echo(f"Copied {copied.get('run', 0)} recordings ({rows} rows) into {database()}.")
    click.echo("  Look at them with: monitor runs")


def examine(target: Target | None, fs: ProcFs | None = None) -> Iterator[Check]:
    """Look at everything, one after the other."""
    fs = fs or ProcFs()
    shut = access.closed(fs, "PID" if target is None else str(target.pid))
    if shut is not None:
        yield Check("running jobs", "warn", shut.what, shut.next_step)
    yield Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    yield from _store()
    yield from _recorder_log()
    yield _proc(fs)
    probe = GpuProbe()
    yield from _driver(probe)
    yield from _gpus(probe)
    if target is not None:
        yield from _job(target, probe)
    probe.close()
    yield _may_attach(target, shut)


def _store() -> Iterator[Check]:
    """Look without changing anything, not even by making the store."""
    try:
        path = paths.database()
        folder = next(f for f in path.parents if f.exists())
        room = f"{size(_free(folder))} free on its disk"
        if not os.access(folder, os.W_OK) or os.statvfs(folder).f_blocks == 0:
            raise StorageProblem(
                f"{folder} cannot be written.", f"Name another: export {paths.VARIABLE}=DIR"
            )
        if not path.exists():
            yield Check("store", "ok", f"nothing recorded yet in {path}, {room}")
            return
        with Reader.open(path) as reader:
            detail = f"{path}: {len(reader.runs())} recordings, {size(reader.size())}, {room}"
            damage = reader.check()
    except Problem as problem:
        yield Check("store", "fail", problem.what, problem.next_step)
        return
    if damage:
        next_step = f"Move {path} away, then: monitor doctor --salvage FILE"
        yield Check("store", "fail", f"{detail}; damaged: {damage}", next_step)
    else:
        yield Check("store", "ok", detail)


def _recorder_log() -> Iterator[Check]:
    """Say how many defects of ours recorders have caught, and where."""
    try:
        folder = paths.state_dir()
    except Problem:
        # The store has said so.
        return
    counts = logged(folder)
    if not counts:
        yield Check("recorder log", "ok", "no recorder has caught a defect of whyidle")
        return
    where = ", ".join(f"{name} {count}" for name, count in counts.items())
    detail = f"{sum(counts.values())} defects of whyidle caught: {where}"
    yield Check("recorder log", "warn", detail, f"Please report them: {folder / LOG}")


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _proc(fs: ProcFs) -> Check:
    others = [p for p in fs.pids() if fs.owner(p) not in {None, os.geteuid()}]
    if os.geteuid() == 0:
        return Check("processes", "ok", "root: every process can be watched")
    hidden = "" if others else " (other users' processes are hidden)"
    return Check(
        "processes",
        "ok",
        f"your own processes can be watched{hidden}",
        f"Those of others: {paths.as_root('attach PID')}",
    )


def _driver(probe: GpuProbe) -> Iterator[Check]:
    try:
        probe.open(GPU_SECONDS)
    except NoGpu as problem:
        yield Check("gpu driver", "fail", problem.what, problem.next_step)
        return
    facts = probe.gpus[0].facts
    yield Check("gpu driver", "ok", f"version {facts.driver}, {len(probe.gpus)} GPUs")


def _gpus(probe: GpuProbe) -> Iterator[Check]:
    if not probe.gpus:
        return
    first = probe.read(GPU_SECONDS)
    # Rates and activity need two samples that are not too close.
    time.sleep(2 * SHORTEST_INTERVAL)
    second = probe.read(GPU_SECONDS)
    for gpu in probe.gpus:
        result = second[gpu.facts.index]
        before = first[gpu.facts.index].reading
        result.reading.values = before.values | result.reading.values
        known_now = result.reading.values
        unknown = before.unknown | result.reading.unknown
        missing = ((k, r) for k, r in unknown.items() if k not in known_now)
        known = [k for k in metrics_of(Scope.GPU) if k in known_now]
        detail = f"{gpu.facts.name}: {len(known)} of {len(metrics_of(Scope.GPU))} metrics"
        why = "; ".join(by_reason(missing))
        judged: State = "fail" if result.lost else "ok" if known else "warn"
        yield Check(f"gpu {gpu.facts.index}", judged, f"{detail}{f'; {why}' if why else ''}")


def _job(target: Target, probe: GpuProbe) -> Iterator[Check]:
    fs, who = target.fs, target.identity
    if who is None:
        yield Check("job", "fail", f"process {target.pid} has ended meanwhile")
        return
    yield Check("job", "ok", f"{who.script}, user {who.user}, state {who.state}: {who.command}")
    yield _framework(who)
    for name, readable in _readable(fs, target.pid).items():
        detail = "readable" if readable() else "not readable: its metrics stay unknown"
        yield Check(f"job {name}", "ok" if readable() else "warn", detail)
    readings = probe.read(GPU_SECONDS) if probe.gpus else {}
    facts = [g.facts for g in probe.gpus]
    owned = owned_gpus(facts, readings, {target.pid}, {who.visible_gpus}, fs)
    shown = ", ".join(sorted(owned.indices)) or "none"
    yield Check("job gpus", "ok" if owned.sure else "warn", f"{shown} ({owned.how})")
    yield from _ways_in(target)


def _may_attach(target: Target | None, shut: Refusal | None) -> Check:
    """Return the answer that all of this is for, or the one thing to do."""
    if target is None:
        whose = "to every job" if os.geteuid() == 0 else "to your own jobs"
        refused, yes = shut, f"yes, {whose} (monitor attach PID)"
    else:
        try:
            check_is_a_job(target)
        except UsageProblem as problem:
            return Check(ANSWER, "warn", f"no. {problem.what}", problem.next_step)
        rungs = ladder.rungs(target)
        barred = [rung.refused for rung in rungs if rung.refused is not None]
        refused = barred[-1] if ladder.best(rungs).name == OUTSIDE else None
        yes = f"yes (monitor attach {target.pid})"
    if refused is None:
        return Check(ANSWER, "ok", yes)
    how = "with sudo" if refused.next_step.startswith("sudo") else "from outside only"
    return Check(ANSWER, "warn", f"{how}. {refused.what}", refused.next_step)


def _ways_in(target: Target) -> Iterator[Check]:
    """One line for each rung of the ladder: taken, open, or why it is closed."""
    rungs = ladder.rungs(target)
    taken = ladder.best(rungs)
    judged: State = "warn" if taken.name == OUTSIDE else "ok"
    for rung in rungs:
        if rung.refused is not None:
            detail, next_step = rung.refused.what, rung.refused.next_step
            yield Check(f"attach {rung.name}", judged, f"{CLOSED}{detail}", next_step)
        elif rung.name == OUTSIDE:
            yield _from_outside(target, taken=taken is rung)
        else:
            yield Check(f"attach {rung.name}", "ok", TAKEN if rung is taken else "open, not needed")


def _from_outside(target: Target, *, taken: bool) -> Check:
    detail = f"{TAKEN}: the job is only watched" if taken else "open"
    try:
        StackReader(target, CodeOwner(target).is_users).close()
    except Unreadable as why:
        return Check(f"attach {OUTSIDE}", "ok", f"{detail}. {why.what}", why.next_step)
    return Check(f"attach {OUTSIDE}", "ok", f"{detail}; its stack is read from outside")


def _framework(who: Identity) -> Check:
    if who.frameworks is None:
        return Check("job framework", "warn", "unknown: its mapped files are not readable")
    if who.framework:
        return Check("job framework", "ok", f"{who.framework}, Python {who.python or '?'}")
    return Check(
        "job framework",
        "warn",
        "none loaded (yet): neither JAX nor PyTorch nor TensorFlow is mapped",
    )


def _readable(fs: ProcFs, pid: int) -> dict[str, Callable[[], bool]]:
    return {
        "disk I/O": lambda: fs.read(f"{pid}/io") is not None,
        "scheduling": lambda: fs.read(f"{pid}/schedstat") is not None,
        "cgroup": lambda: bool(fs.read(f"{pid}/cgroup")) and Path("/sys/fs/cgroup").is_dir(),
    }
