"""A program as its authors left it, in a folder of its own, with the edits of its case.

Line numbers stay those of the commit: what a case puts in place of some lines takes as many. The
edits of a change are made last, by the same numbers.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from benchmarks.strangers import inputs
from benchmarks.strangers.cases import Case, Change, Edit, MalformedError

# The programs lie at the same place in each run: a recording names their lines.
JOBS: Final = Path(tempfile.gettempdir()) / "whyidle-strangers"
HOST: Final = "https://github.com/{}"
HOME: Final = ".home"


class NotAtHand(Exception):  # noqa: N818  what happened to the repository
    """The repository can not be had here."""


def written(
    case: Case, mirrors: Path | None, change: Change | None = None, *, counting: bool = False
) -> Path:
    """Write the source of a case; return the folder in which it runs."""
    root = JOBS / (case.name if change is None else f"{case.name}.{change.name}")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    _unpack(_repository(case, mirrors), case, root)
    folder = root / case.folder
    for path in [folder / each for each in case.command if each.endswith(".ipynb")]:
        path.with_suffix(".py").write_text(_code_of(path))
    _edit(folder, case.edits, in_place=True)
    if counting and not case.tick.startswith("call:"):
        _count(folder, case.tick, 0)
    if counting and case.step:
        _count(folder, case.step, 1)
    if change is not None:
        _edit(folder, change.edits, in_place=False)
    return folder.resolve()


def furnish(case: Case, folder: Path) -> None:
    """Write the data that it reads."""
    (folder / HOME).mkdir(exist_ok=True)
    for each in case.inputs:
        maker, _, place = each.partition(":")
        inputs.MAKERS[maker](folder / place)


def _repository(case: Case, mirrors: Path | None) -> Path:
    """Return the git directory of a clone at hand; without one it is cloned from its host."""
    owner, _, name = case.repository.partition("/")
    if mirrors is not None:
        places = (mirrors / f"{owner}+{name}" / "repo", mirrors / owner / name, mirrors / name)
        for place in places:
            if (place / "HEAD").exists() or (place / ".git").exists():
                return place
    clone = JOBS / "clones" / f"{owner}+{name}"
    if not clone.exists():
        line = ["git", "clone", "--quiet", "--bare", "--filter=blob:none"]
        done = subprocess.run([*line, HOST.format(case.repository), str(clone)], check=False)
        if done.returncode:
            raise NotAtHand(f"{case.repository} could not be cloned; name a folder: --mirrors DIR")
    return clone


def _unpack(repository: Path, case: Case, root: Path) -> None:
    line = ["git", "-C", str(repository), "archive", case.commit, "--", *case.paths]
    done = subprocess.run(line, capture_output=True, check=False)
    if done.returncode:
        raise NotAtHand(f"{case.repository} at {case.commit}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(root, filter="data")


def _code_of(notebook: Path) -> str:
    """Return the code of a notebook, without what only a notebook understands."""
    cells = json.loads(notebook.read_text())["cells"]
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    magic = ("%", "!", "?")
    lines = (f"# {x}" if x.lstrip().startswith(magic) else x for x in text.splitlines())
    return "\n".join(lines) + "\n"


def _edit(folder: Path, edits: Iterable[Edit], *, in_place: bool) -> None:
    """Put our lines in the place of theirs, the last ones first."""
    for edit in sorted(edits, key=lambda each: -each.first):
        path = folder / edit.file
        lines = path.read_text().split("\n")
        if edit.last > len(lines):
            raise MalformedError(f"{edit.file} has {len(lines)} lines, not {edit.last}")
        put = edit.put.rstrip("\n").split("\n")
        room = edit.last - edit.first + 1
        if in_place and len(put) > room:
            raise MalformedError(
                f"{edit.file}:{edit.first}: {len(put)} lines in the place of {room}"
            )
        lines[edit.first - 1 : edit.last] = put + [""] * (room - len(put)) * in_place
        path.write_text("\n".join(lines))


def _count(folder: Path, tick: str, place: int) -> None:
    """Have a line count each time that it runs."""
    file, _, number = tick.rpartition(":")
    path = folder / file
    lines = path.read_text().split("\n")
    line = lines[int(number) - 1]
    bare = line.lstrip()
    if not bare:
        raise MalformedError(f"{tick} is an empty line")
    lines[int(number) - 1] = f"{line[: len(line) - len(bare)]}__tick__[{place}] += 1; {bare}"
    path.write_text("\n".join(lines))
    compile(path.read_text(), str(path), "exec")
