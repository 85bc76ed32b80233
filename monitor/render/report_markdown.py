"""A report as Markdown, for an issue: the diagnosis, and what else a reader asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from whyidle.monitor.render import markdown
from whyidle.monitor.render.findings import code_lines, phases
from whyidle.monitor.render.markdown import code, fenced, plain
from whyidle.monitor.render.report import Excerpt, Report

# An issue of GitHub takes so many characters; what stands last is left out.
LONGEST: Final = 65_000
CUT: Final = "\n\n*The rest is left out: `monitor report` has all of it in a page.*"


def page(report: Report) -> str:
    """Return the report."""
    text = "\n".join(_page(report))
    return text if len(text) <= LONGEST else text[:LONGEST].rpartition("\n<details>")[0] + CUT


def _page(report: Report) -> Iterator[str]:
    yield from markdown.lines(report.answer, report.repository)
    shown = code_lines(report.answer.host)
    if shown:
        yield "\n**Where the main thread was**\n"
        rows = [(code(name), plain(doing), f"{share:.0%}") for name, doing, share in shown]
        yield from markdown.table(("your line", "what it did", "share"), rows)
    if beside := phases(report.answer):
        yield f"Besides the steps: {plain(beside)}.\n"
    yield "\n**Environment**\n"
    yield from markdown.table(
        ("", ""), [(plain(name), code(value)) for name, value in report.environment.items()]
    )
    for (file, _), found in report.code.items():
        yield f"<details><summary>{code(f'{report.path(file)}:{found.line}')}</summary>"
        yield from fenced("\n".join(_numbered(found)))
        yield "\n</details>\n"


def _numbered(found: Excerpt) -> Iterator[str]:
    for number, line in enumerate(found.lines, found.first):
        yield f"{'>' if number == found.line else ' '} {number:>4}  {line}"
