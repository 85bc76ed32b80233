"""``monitor trace view``: a trace in XProf, or as a file for Perfetto."""

from __future__ import annotations

import os
from pathlib import Path

import click

from whyidle.monitor.app import xprof
from whyidle.monitor.app.files import check, writing
from whyidle.monitor.app.trace import analysis_of, the_file
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.render.escape import printable
from whyidle.monitor.store import Reader, UnknownRun
from whyidle.monitor.store.stored_traces import Kept
from whyidle.monitor.traces import perfetto
from whyidle.monitor.traces.opening import identify


def run(*, file: str, out: Path | None, force: bool, port: int | None, no_browser: bool) -> None:
    """Write the trace for Perfetto, or open it in XProf."""
    path = _kept(file) or file
    if out is None:
        _in_xprof(path, port=port, browser=not no_browser)
    else:
        _for_perfetto(path, out, force=force)


def _kept(name: str) -> str | None:
    """Return the file of the last trace that a run has; none if a file is meant."""
    if os.path.exists(name):  # noqa: PTH110  a name may be too long
        return None
    if not database().exists():
        _check_no_number(name)
        return None

    with Reader.open(database()) as reader:
        try:
            run = reader.find(name).id
        except UnknownRun:
            _check_no_number(name)
            return None
    with Kept.open(database()) as kept:
        # Ranks that were put together are no file.
        traces = [trace for trace in kept.traces(run) if trace.format != "ranks"]
    if not traces:
        what = f"No trace is kept with run {run}, and there is no file named {name}."
        raise UsageProblem(what, f"Keep one: monitor trace FILE --run {run}")
    path = traces[-1].path
    if not path.exists():
        raise UsageProblem(
            f"The trace kept with run {run} was read from {printable(str(path))}, which is gone.",
            f"Its figures are still there: monitor runs {run} --json",
        )
    return str(path)


def _check_no_number(name: str) -> None:
    """Take it for a file, unless it is a number: no file is named like this."""
    if name.isdecimal():
        what = f"There is no recording {name}, and no file named so."
        raise UsageProblem(what, "List them: monitor runs")


def _for_perfetto(file: str, out: Path, *, force: bool) -> None:

    # Said before a long file is read, not after.
    check(out, force=force)
    if out.exists() and os.path.exists(file) and out.samefile(file):  # noqa: PTH110
        raise UsageProblem(
            f"{printable(str(out))} is the trace itself: it is not overwritten.",
            "Choose another name.",
        )
    analysis = analysis_of(file)
    with writing(out, force=force) as text:
        perfetto.write(text, analysis)
    click.echo(f"Written: {printable(str(out))}")
    click.echo("To look at it: open https://ui.perfetto.dev and drop the file on the page.")
    click.echo("The page works in the browser: the trace does not leave this machine.")


def _in_xprof(file: str, *, port: int | None, browser: bool) -> None:

    source = identify(the_file(file))
    if source.format != "xplane":
        raise UsageProblem(
            "XProf opens only XPlane files, and this one is another profiler's.",
            f"For Perfetto: monitor trace view {file} --perfetto trace.json.gz",
        )

    def opened(link: str) -> None:
        click.echo(f"XProf shows it: {link}")
        click.echo("Everybody on this machine can open it while it runs. Ctrl-C ends it.")
        if browser:
            xprof.browse(link)

    xprof.xprof(source, port, opened)
