"""Windows over phases of a loop, made by hand: chains of a program, and how often each was seen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.rules.windows import window
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

LIB = "/venv/lib/python3.11/site-packages"
STDLIB = "/usr/lib/python3.11"
TORCH = (f"{LIB}/torch/nn/modules/module.py", "_call_impl")
LOOKS = 30
# The user's line; the file and the function of a library that it is in, if it is in any; how often.
Row = tuple[int, tuple[str, str] | None, float]


def of_rows(
    file: Path, rows: Iterable[Row], looks: dict[int, int] | None = None, backend: str = "cpu"
) -> Window:
    """Return the window of a program; ``looks``: by line, in which seconds it was seen."""
    samples = StackSamples()
    samples.looks = LOOKS if looks is not None else 0
    for line, library, count in rows:
        samples.samples += count
        frame = CodeLine(str(file), line, "<module>")
        inside = frame if library is None else CodeLine(library[0], 9, library[1])
        when = 0 if looks is None else looks.get(line, (1 << LOOKS) - 1)
        called = None if library is None else inside
        samples.count(Chain((frame,), inside, called), count, count, 0, when=when)
    lines = samples.lines()
    facts = {"torch": {"backend": backend}}
    return window(stacks=samples, lines=lines, facts=facts, inside=True)


def written(folder: Path, source: str, name: str = "train.py") -> Path:
    """Write a program."""
    file = folder / name
    file.write_text(source)
    return file
