"""The user's code around a line, only from files that the job itself could read."""

from __future__ import annotations

import ast
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.dashboard import settings
from whyidle.monitor.code.source import LARGEST
from whyidle.monitor.core.contracts.diagnosis import PlaceJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.demo import pairs
from whyidle.monitor.processes import open_as
from whyidle.monitor.processes.open_as import NotAllowed, User
from whyidle.monitor.store import Run
from whyidle.monitor.store.identity import host

# Lines shown before and after the one in question.
AROUND: Final = 5
LONGEST_LINE: Final = 200
_DEMOS: Final = "demo_workloads/"
NO_LINE: Final = "its line is not known"
NO_SOURCE: Final = "it is not a Python file with an absolute path"
NOT_A_FILE: Final = "it is not an ordinary file, or too large for source code"
NOT_THE_JOBS: Final = "the user of the job may not read it"
SHORTER: Final = "it no longer has this line"


@dataclass(frozen=True, slots=True)
class Code:
    """Some lines of a file, with reasons why they may not be the ones that ran."""

    first: int
    lines: tuple[str, ...]
    line: int
    caveats: tuple[str, ...] = ()


def around(place: PlaceJson, run: Run) -> Code | str:
    """Return the code at a location, or why it cannot be shown."""
    line = place.line
    if not line:
        return NO_LINE
    try:
        path = Path(place.file)
        demo = None if path.exists() else _demo(place.file)
        if path.suffix != ".py" or not (demo or path.is_absolute()):
            return NO_SOURCE
        text, changed_ms = (demo, 0.0) if demo else _read(path, _reader(run))
    except NotAllowed:
        return NOT_THE_JOBS
    except (OSError, ValueError) as error:
        return str(error.strerror or error) if isinstance(error, OSError) else str(error)
    lines = text.splitlines()
    if line > len(lines):
        return SHORTER
    first = max(1, line - AROUND)
    shown = tuple(each[:LONGEST_LINE] for each in lines[first - 1 : line + AROUND])
    caveats = [] if demo else list(_of_the_file(run, changed_ms))
    if not _is_inside(text, line, place.function):
        caveats.append(f"{place.function} is not at this line")
    return Code(first, shown, line, tuple(caveats))


def _read(path: Path, user: User) -> tuple[str, float]:
    """Return the text of a file, and when it was last changed."""
    # A job may name anything: a pipe would block, a device or a link could do worse.
    with os.fdopen(open_as.open_as(path, user), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
            raise ValueError(NOT_A_FILE)
        return file.read(LARGEST).decode(errors="replace"), info.st_mtime * 1000


def _reader(run: Run) -> User:
    """Return whose rights count: ours if the job's user is unknown."""
    return User.ourselves() if run.user is None else User.named(run.user)


def _demo(file: str) -> str | None:
    """Return the text of a demo program: the recording may be from another machine."""
    _, found, rest = file.rpartition(_DEMOS)
    if not found and settings.current().is_sample:
        # The sample's jobs were demos in another folder.
        rest = "/".join(Path(file).parts[-2:])
    if not rest or rest == file or {"..", "/"} & {*Path(rest).parts}:
        return None
    try:
        return pairs.text_of(pairs.folder() / rest)
    except (OSError, Problem):
        return None


def _of_the_file(run: Run, changed_ms: float) -> list[str]:
    """Return why the file may not be the one that ran."""
    caveats = []
    if run.host not in {None, host()}:
        caveats.append(f"recorded on {run.host}: this is the file of that name here")
    elif run.container:
        caveats.append("the job ran in a container: this is the file of that name outside of it")
    if changed_ms > run.started_ms:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(changed_ms / 1000))
        caveats.append(f"changed since the run began, on {when}: lines may have moved")
    return caveats


def _is_inside(text: str, line: int, function: str) -> bool:
    """Return whether the function is, or is called, at the line; in doubt, yes."""
    name = function.rpartition(".")[2]
    if not name.isidentifier() or name in text.splitlines()[line - 1]:
        return True
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(
        node.name == name and _begins(node) <= line <= (node.end_lineno or 0)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


def _begins(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])
