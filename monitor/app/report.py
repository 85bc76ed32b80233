"""``monitor report``: one file about a recording, to send to someone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from whyidle.monitor.app import windows
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.render import flame, report_html, report_markdown
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.numbers import size
from whyidle.monitor.render.places import homeless
from whyidle.monitor.render.report import Report
from whyidle.monitor.runs.summary import RunSummary, summarise
from whyidle.monitor.signals import opening
from whyidle.monitor.signals.window import Window

_Write = Callable[[Report], str | bytes]
WRITERS: Final[dict[str, tuple[str, _Write]]] = {
    "html": (".html", report_html.page),
    "markdown": (".md", report_markdown.page),
}
# These hold stacks, and nothing where there are none.
OF_STACKS: Final[dict[str, tuple[str, _Write]]] = {
    "speedscope": (".speedscope.json", flame.speedscope),
    "collapsed": (".collapsed.txt", flame.collapsed),
    "pprof": (".pprof.gz", flame.pprof),
}


def run(*, target: str, written: str, out: Path | None, force: bool, no_code: bool) -> None:
    """Write the report, and say where it is."""
    suffix, write = (WRITERS | OF_STACKS)[written]
    ref = windows.run_of(target)
    window = windows.of(target) if ref is None else opening.of_run(database(), ref)
    if written in OF_STACKS and window.host is None:
        raise UsageProblem(
            f"{printable(window.target)} has no stacks: its main thread was not sampled.",
            f"For Perfetto: monitor trace view {printable(target)} --perfetto OUT.json.gz"
            if ref is None
            else "Record the job again: monitor attach PID",
        )
    named = re.sub(r"[^\w.-]+", "-", window.target)
    path = out or Path(f"whyidle-{named}{suffix}")
    summary = None if ref is None else summarise(database(), ref)
    text = write(_report(window, summary, code=not no_code))
    # Evidence and code may name a home folder, too.
    text = text if isinstance(text, bytes) else homeless(text)
    if str(path) == "-":
        click.echo(text, nl=isinstance(text, str) and not text.endswith("\n"))
        return
    data = text if isinstance(text, bytes) else text.encode(errors="backslashreplace")
    _write(path, data, force=force)
    written_to = f"Wrote {path} ({size(len(data))})."
    click.echo(f"{printable(written_to)} Look at it before you send it.")


def page(store: Path, ref: str) -> str:
    """Return a recording as one HTML page."""
    return homeless(report_html.page(_report(opening.of_run(store, ref), summarise(store, ref))))


def _report(window: Window, summary: RunSummary | None, *, code: bool = True) -> Report:
    answer = diagnose.as_json(diagnose.diagnose(window))
    return Report.of(window, answer, summary, code=code)


def _write(path: Path, data: bytes, *, force: bool) -> None:
    """Write it for ourselves alone: whom it concerns, a person decides."""
    how = os.O_TRUNC if force else os.O_EXCL
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except FileExistsError:
        raise UsageProblem(f"{path} is there already.", "Overwrite it: --force") from None
    except OSError as error:
        raise StorageProblem(
            f"{path} cannot be written: {error.strerror}.", "Name another place: --out PATH"
        ) from None
