"""``monitor trace``: where the time of a trace went, of a file or of a process right now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from whyidle.monitor.app.take import Shot, take
from whyidle.monitor.app.take_ranks import take_ranks
from whyidle.monitor.core.contracts.trace import TakenJson, TraceJson, cut_off
from whyidle.monitor.core.defaults import TRACE_SECONDS
from whyidle.monitor.core.errors import Exit, StorageProblem, UsageProblem, answered
from whyidle.monitor.core.paths import database
from whyidle.monitor.render.console import say
from whyidle.monitor.render.jsonl import line
from whyidle.monitor.render.progress import Progress
from whyidle.monitor.render.trace import screen
from whyidle.monitor.store import Reader
from whyidle.monitor.store.stored_traces import Kept, keep
from whyidle.monitor.store.traces import forget
from whyidle.monitor.traces.analysis import Analysis, analyse
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.ranks.answer import JobRead, of_one_file, read_ranks
from whyidle.monitor.traces.window import TraceWindow
from whyidle.monitor.tracing.space import MOST_FILES, Space

# Names the page, and where one is known the run.
_SIDE_BY_SIDE: Final = "Under each other at one step: monitor dashboard{} (page Timeline)"


def run(  # the options, by name
    *,
    files: tuple[str, ...],
    top: int,
    run: str | None,
    seconds: float | None,
    server: int | None,
    all_ranks: bool,
    as_json: bool,
) -> None:
    """Account for a trace file, or for a trace that is taken now; keep it where asked for."""
    file = files[0]
    if all_ranks:
        _now_of_ranks(files, TRACE_SECONDS if seconds is None else seconds, top, as_json=as_json)
        return
    if len(files) > 1 or (os.path.isdir(file) and not _is_process(file)):  # noqa: PTH112  too long
        _of_ranks(files, top, run, alone=(seconds, server), as_json=as_json)
        return
    # Said before a long file is read, not after.
    number = None if run is None else _number_of(run)
    shot = None
    if _is_process(file):
        shot = take(file, TRACE_SECONDS if seconds is None else seconds, server, number)
        number = shot.run
        file = str(shot.taken.path)
    elif seconds is not None or server is not None:
        raise UsageProblem(
            "--seconds and --server are for a running process, and this is a file.",
            "Leave them out, or name a process: monitor trace PID",
        )
    ours = shot is not None or _is_ours(Path(file))
    window = shot.window if shot is not None else _window_of(Path(file)) if ours else None
    analysis = analysis_of(file, None if window is None else window.step_ns)

    answer = contract(analysis, ours=ours, window=window)
    answer["ranks"] = of_one_file(analysis, answer)
    _show(answer, Path(file).name, top, as_json=as_json)
    # Last: a full disk must not cost the answer.
    if number is not None or shot is not None:
        with answered():
            _keep(analysis, answer, number, shot)
    if cut_off(answer["warnings"]):
        raise SystemExit(Exit.PARTIAL)


def _of_ranks(
    files: tuple[str, ...],
    top: int,
    run: str | None,
    *,
    alone: tuple[object, ...],
    as_json: bool,
) -> None:
    if any(option is not None for option in alone):
        raise UsageProblem(
            "--seconds and --server are for one process, and these are several files.",
            "Leave them out, or name a process: monitor trace PID",
        )
    number = None if run is None else _number_of(run)
    read = _read_ranks(files)
    _show(read.answer, Path(files[0]).name, top, as_json=as_json)
    if number is not None:
        with answered():
            _keep_ranks(read, Path(files[0]), number)
        say(f"The ranks are kept with run {number}.", _SIDE_BY_SIDE.format(f" {number}"))


def answer_of_ranks(files: Sequence[str]) -> TraceJson:
    """Read the files of a job, or its folder, and show how far it is where that takes long."""
    return _read_ranks(files).answer


def _read_ranks(files: Sequence[str]) -> JobRead:
    with Progress(Path(files[0]).name) as progress:
        return read_ranks(files, progress)


def _keep_ranks(read: JobRead, file: Path, run: int | None, taken: TakenJson | None = None) -> None:
    kept = read.side_by_side()
    keep(
        database(),
        kept.trace,
        kept.answer,
        file=file,
        segments=kept.segments,
        steps=kept.steps,
        run=run,
        taken=taken,
    )


def _now_of_ranks(files: tuple[str, ...], seconds: float, top: int, *, as_json: bool) -> None:
    """Take a trace of each rank at once, and account for them as for a folder of files."""
    if len(files) > 1 or not _is_process(files[0]):
        step = "Name who started the ranks: monitor trace PID --all-ranks"
        raise UsageProblem("--all-ranks is for a running process, and this is a file.", step)
    found = take_ranks(files[0], seconds)
    read = _read_ranks([str(found.folder)])
    lost = [f"No trace of {each.name}: {each.why}." for each in found.ranks if each.why]
    if (ranks := read.answer.get("ranks")) is not None:
        ranks["warnings"] += lost
    if as_json:
        click.echo(line({**read.answer, "taken": found.as_json()}))
    else:
        _show(read.answer, found.folder.name, top, as_json=False)
    with answered():
        _keep_ranks(read, found.folder, found.run, found.facts())
        forget(database(), found.dropped)
    where = "" if found.run is None else f" {found.run}"
    look = _SIDE_BY_SIDE.format(where)
    with Reader.open(database()) as reader:
        if not reader.runs():
            # The page shows them beside a recording, whichever it is.
            look = f"{look}, once there is a recording: monitor attach {files[0]}"
    say(f"Traces of {found.count} of {len(found.ranks)} ranks, in {found.folder}.", look)


def _is_ours(path: Path) -> bool:

    return Space(database()).holds(path)


def _window_of(path: Path) -> TraceWindow | None:
    """Return what is known of the window of a trace that we took once."""
    if not database().exists():
        return None
    try:
        with Kept.open(database()) as kept:
            takes = [trace.taken for trace in kept.traces() if trace.path.name == path.name]
    except StorageProblem:
        # The account is worth showing without.
        return None
    return next((window for taken in takes if (window := TraceWindow.from_taken(taken))), None)


def _show(answer: TraceJson, name: str, top: int, *, as_json: bool) -> None:

    if as_json:
        click.echo(line(answer))
    else:
        click.echo(screen(answer, name=name, top=top), color=True)


def _number_of(run: str) -> int:

    with Reader.open(database()) as reader:
        return reader.find(run).id


def _keep(analysis: Analysis, answer: TraceJson, run: int | None, shot: Shot | None) -> None:

    segments = [report.budget.segments for report in analysis.devices]
    steps = (analysis.steps.start, analysis.steps.end)
    keep(
        database(),
        analysis.trace,
        answer,
        file=analysis.path,
        segments=segments,
        steps=steps,
        run=run,
        taken=shot.facts() if shot is not None else None,
    )
    if shot is not None:
        forget(database(), Space(database()).tidy())
    where, name = ("", str(analysis.path)) if run is None else (f" with run {run}", str(run))
    kept = f"The trace is kept{where}" if shot is None else _kept(shot, where)
    say(f"{kept}.", f"Look at it with: monitor trace view {name}")


def _kept(shot: Shot, where: str) -> str:

    held = shot.taken.held_ns
    stood = f"The job paused for {held / 1e6:.0f} ms. " if held is not None else ""
    others = "those taken without a run" if shot.run is None else "a run's own"
    return f"{stood}The trace is kept{where}; of {others} the last {MOST_FILES} are"


def analysis_of(file: str, step_ns: int | None = None) -> Analysis:
    """Read and understand a file, and show how far it is where that takes long."""
    path = the_file(file)

    with Progress(path.name) as progress:
        return analyse(path, progress, step_ns)


def _is_process(name: str) -> bool:
    """Tell whether a process is meant: a number that names no file."""
    return name.isdecimal() and not os.path.exists(name)  # noqa: PTH110  it may be too long


def the_file(file: str) -> Path:
    """Return the path; a number that names no file may be meant as a process."""
    if _is_process(file):
        raise UsageProblem(
            f"There is no file named {file}.",
            f"To take a trace of the process: monitor trace {file}",
        )
    return Path(file)
