"""Which files of a folder are the ranks of one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.traces.opening import show, traces_in

_XPLANE = (".xplane.pb", ".xplane.pb.gz")


@dataclass(slots=True)
class Files:
    """The files to read, and what was left out."""

    paths: list[Path]
    # Named one by one, so that each must be a trace.
    named: bool = False
    said: list[str] = field(default_factory=list)


def files_of(names: Sequence[str]) -> Files:
    """Return the traces that are meant: files, or those in folders."""
    paths: list[Path] = []
    said: list[str] = []
    for path in map(Path, dict.fromkeys(names)):
        if not path.is_dir():
            paths.append(path)
            continue
        inside = sorted((Path(found), changed) for changed, found in traces_in(path))
        if not inside:
            what = "No trace was seen in it; name the files: *.xplane.pb, *.json.gz"
            raise UsageProblem(f"{show(path)} is a folder.", what)
        paths += _of_one_job(inside, said)
    return Files(list(dict.fromkeys(paths)), not any(map(Path.is_dir, map(Path, names))), said)


def _of_one_job(inside: list[tuple[Path, float]], said: list[str]) -> list[Path]:
    """Leave out what else a profiler writes beside XPlane files, and older sessions of it."""
    planes = [(path, changed) for path, changed in inside if path.name.endswith(_XPLANE)]
    folders = {path.parent for path, _ in planes}
    newest = max(planes, key=lambda one: one[1])[0].parent if planes else None
    if len(folders) > 1 and len({folder.parent for folder in folders}) == 1:
        said.append(f"{len(folders)} sessions of the profiler: read is the newest, {newest}.")
        folders = {newest} if newest else folders
        planes = [(path, changed) for path, changed in planes if path.parent in folders]
    kept = {path for path, _ in planes}
    beside = {path.parent for path, _ in inside if path.name.endswith(_XPLANE)}
    return [path for path, _ in inside if path in kept or path.parent not in beside]
