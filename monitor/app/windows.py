"""What a command is asked about: a recording, a trace file, or a process that is watched first."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from whyidle.monitor.app.jobs import check_is_a_job
from whyidle.monitor.core.amounts import A_MINUTE_S
from whyidle.monitor.core.defaults import WATCH_SECONDS
from whyidle.monitor.core.errors import Problem, TargetGone, UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.processes import job
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording.requests import Wanted
from whyidle.monitor.recording.session import Session
from whyidle.monitor.render.console import say
from whyidle.monitor.render.screens import Quiet
from whyidle.monitor.signals import opening
from whyidle.monitor.signals.dumped import of_dumps
from whyidle.monitor.signals.window import Window
from whyidle.monitor.sources.debug_server import Server
from whyidle.monitor.sources.flight_recorder import dumps_of
from whyidle.monitor.store import Reader, UnknownRun


def of(target: str, seconds: float | None = None) -> Window:
    """Return the window over what is meant: a file where there is one of that name."""
    if looks_like_an_address(target):
        if seconds is not None:
            raise _only_of_processes()
        return _of_server(target)
    # A number is rather a process or a recording.
    is_path = seconds is None and not target.isdecimal() and Path(target).exists()
    if is_path and (dumps := dumps_of(Path(target))):
        return of_dumps(dumps, Path(target).name)
    run = run_of(target, seconds)
    if run is not None:
        return opening.of_run(database(), run)

    # Only a trace file needs them, and numpy with them.
    from whyidle.monitor.app.trace import analysis_of, answer_of_ranks  # noqa: PLC0415
    from whyidle.monitor.traces.answer import contract  # noqa: PLC0415
    from whyidle.monitor.traces.ranks.answer import of_one_file  # noqa: PLC0415

    if Path(target).is_dir():
        return opening.of_answer(answer_of_ranks([target]), Path(target).name)
    analysis = analysis_of(target)
    answer = contract(analysis)
    answer["ranks"] = of_one_file(analysis, answer)
    return opening.of_answer(answer, Path(target).name)


def _of_server(url: str) -> Window:
    """Return the window over the ranks as PyTorch's debug server knows them."""
    server = Server.named(url)
    found = server.ask()
    window = of_dumps(found.dumps, server.url, found.silent)
    still = window.job.standstill
    if still is not None and still.seconds < A_MINUTE_S:
        say(
            f"A rank began its last collective {still.seconds:.0f} s ago: that is no standstill.",
            f"Ask again once it stands for {A_MINUTE_S:.0f} s.",
        )
    elif not found.silent:
        with contextlib.suppress(TargetGone):
            return of_dumps(server.with_stacks(found.dumps), server.url)
    return window


def of_process(pid: str) -> Window:
    """Return the window over a process that runs: of what records it now, else watched first."""
    run = None
    if database().exists():
        with Reader.open(database()) as reader:
            run = _recording_now(reader, pid)
    return opening.of_run(database(), run or _watched(pid, WATCH_SECONDS))


def _recording_now(reader: Reader, pid: str) -> str | None:
    """Return the run that records the job of a process; ``None``: none does."""
    began = int(pid)
    with contextlib.suppress(Problem):
        # Where it is a part of a job; itself where it has ended.
        began = job.whole(Target.named(pid)).pid
    mine = [run for run in reader.runs() if run.target_pid == began and run.is_recording]
    return str(mine[-1].id) if mine else None


def run_of(target: str, seconds: float | None = None) -> str | None:
    """Return the number of the recording that is meant; ``None`` for a file."""
    if looks_like_a_file(target) and not Path(target).exists():
        raise UsageProblem(
            f"There is no file '{target}'.", "Say where it is: monitor diagnose PATH"
        )
    is_file = Path(target).is_file() or _is_folder(target)
    run = None if is_file else recorded(target)
    is_process = run is None and not is_file
    if seconds is not None and not is_process:
        raise _only_of_processes()
    if is_process:
        run = _watched(target, WATCH_SECONDS if seconds is None else seconds)
    return run


def _only_of_processes() -> UsageProblem:
    return UsageProblem(
        "--seconds is for a running process that is not being recorded.",
        "Leave it out, or name a process: monitor diagnose PID --seconds 30",
    )


def _is_folder(target: str) -> bool:
    """Tell whether a folder of traces is meant; a number is rather a process or a recording."""
    return not target.isdecimal() and Path(target).is_dir()


def looks_like_a_file(target: str) -> bool:
    """Tell whether a name can only be meant as a file's."""
    return "/" in target or target.endswith((".gz", ".json", ".pb", ".sqlite"))


def looks_like_an_address(target: str) -> bool:
    """Tell whether a server is meant."""
    return target.startswith(("http://", "https://"))


def recorded(target: str) -> str | None:
    """Return the run that is meant; ``None`` for a process of which there is no recording."""
    if not database().exists():
        return None if target.isdecimal() else target
    with Reader.open(database()) as reader:
        if not target.isdecimal():
            return _named(reader, target)
        if (run := _recording_now(reader, target)) is not None:
            return run
        try:
            return str(reader.find(target).id)
        except UnknownRun:
            return None


def _named(reader: Reader, target: str) -> str:

    try:
        return str(reader.find(target).id)
    except UnknownRun:
        what = f"There is no recording and no file '{target}'."
        raise UsageProblem(what, "List the recordings: monitor runs") from None


def _watched(pid: str, seconds: float) -> str:
    """Watch a process for a while, and return the run that this has made."""
    try:
        target = job.whole(Target.named(pid))
    except TargetGone:
        raise TargetGone(
            f"There is no recording and no process {pid}.",
            "List them: monitor runs    monitor ps",
        ) from None
    check_is_a_job(target)
    say(
        f"Process {pid} is not being recorded: watching it for {seconds:g} s.",
        "Ctrl-C ends that early.",
    )
    session = Session(database(), Quiet())
    session.open_gpus()
    summary = session.record(
        Wanted(target), seconds, stop_on=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    )
    return str(summary.run.id)
