"""A recording that outlives the terminal: started here, ended by `monitor stop`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click

from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.paths import database, state_dir
from whyidle.monitor.processes.target import Target
from whyidle.monitor.render import jsonl
from whyidle.monitor.render.console import say
from whyidle.monitor.store import Writer, check_label

LOG = "background.log"
LONGEST_LOG = 1 << 20


def start(
    target: Target,
    *,
    seconds: float | None,
    hz: float,
    label: str | None,
    require_gpu: bool,
    observe: bool,
    any_user: bool,
    trace_share: float,
    notify: str | None,
    as_json: bool,
) -> None:
    """Start a recorder in a session of its own, and say how it is ended."""
    # Opened once here, so that the person hears of a store that cannot work, not the log.
    check_label(label)
    with Writer.open(database()) as store:
        trouble = store.trouble
    if trouble:
        say(trouble)
    more = ["--hz", str(hz)]
    more += ["--for", str(seconds)] if seconds is not None else []
    more += ["--label", label] if label is not None else []
    more += ["--require-gpu"] if require_gpu else []
    more += ["--observe"] if observe else []
    more += ["--any-user"] if any_user else []
    more += ["--notify", notify] if notify is not None else []
    run, child = record(target, *more, trace_share=trace_share)
    if as_json:
        click.echo(jsonl.line({"run": run, "pid": target.pid, "recorder_pid": child.pid}))
        return
    click.echo(f"Run {run}: recording pid {target.pid} in the background (recorder {child.pid}).")
    click.echo(f"  End it with: monitor stop {run}    Look at it with: monitor runs {run}")


def record(target: Target, *more: str, trace_share: float) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a recorder and return its run, once the first tick is stored."""
    folder = state_dir()
    reader, writer = os.pipe()
    arguments = [sys.executable, "-m", "whyidle.monitor", "attach", str(target.pid), "--quiet"]
    # The process that was checked, whichever has its pid by the time the recorder looks.
    arguments += ["--start-ticks", str(target.key.start_ticks), "--ready-fd", str(writer)]
    arguments += ["--trace-share", str(trace_share), *more]
    log = folder / LOG
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    offset = _tidy(log)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as out:
        child = subprocess.Popen(  # noqa: S603  ourselves
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            pass_fds=(writer,),
            start_new_session=True,
        )
    os.close(writer)
    with os.fdopen(reader) as pipe:
        run = pipe.readline().strip()
    if not run:
        code = child.wait()
        said = log.read_bytes()[offset:].decode(errors="replace").strip().removeprefix("monitor: ")
        what = said or f"The recorder ended at once (exit code {code})."
        raise Problem(what).with_code(code)
    return int(run), child


def announcer(handle: int) -> Callable[[int], None]:
    """Return a function that tells the starter that the first tick is stored."""

    def announce(run: int) -> None:
        os.write(handle, f"{run}\n".encode())
        os.close(handle)

    return announce


def _tidy(log: Path) -> int:
    """Empty a log that grew too long; return where new text will begin."""
    if log.exists() and log.stat().st_size > LONGEST_LOG:
        log.unlink()
    return log.stat().st_size if log.exists() else 0
