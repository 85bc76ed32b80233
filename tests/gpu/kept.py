"""What is kept of real GPUs, and what must hold of every such recording."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from benchmarks import gpu_keep
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

MODELS = sorted(path.parent for path in gpu_keep.RECORDINGS.glob(f"*/{gpu_keep.INDEX}"))
NONE_YET = "nothing is recorded of a real GPU yet: run benchmarks/gpu_check.py on one"
LARGEST_FILE = 1_300_000
# Folders of a person or of a check, and a GPU's own number.
NAMING = re.compile(r"/home/(?!user/)|/Users/|/tmp/gpu-check-|GPU-(?!0{8})[0-9a-f]{8}-[0-9a-f]{4}-")


def index(model: Path) -> Any:
    """Return what stands in the index of a model."""
    return json.loads((model / gpu_keep.INDEX).read_text())


def files(model: Path) -> list[Any]:
    """Return what the index says of the files of every part."""
    parts = [part for run in index(model)["runs"] for _, part in gpu_keep.parts(run)]
    return [file for part in parts for file in part["files"]]


def check_files(model: Path) -> None:
    """Every file is in the index as it lies there, and every one that lies there is in it."""
    told = {file["path"]: file for file in files(model)}
    own = {gpu_keep.INDEX, gpu_keep.FINDINGS, gpu_keep.ENDS, gpu_keep.CONSTANTS}
    there = {p.relative_to(model).as_posix() for p in model.rglob("*") if p.is_file()} - own
    assert there == set(told)
    for name, file in told.items():
        content = (model / name).read_bytes()
        assert len(content) == file["bytes"] < LARGEST_FILE
        assert hashlib.sha256(content).hexdigest() == file["sha256"]


def check_trace(path: Path) -> dict[str, Any]:
    """Whatever is in a trace, its budget adds up and has every slice; returns the answer."""
    answer = contract(analyse(path), ours=True)
    assert answer["devices"]
    for budget in (answer["budget"], *(device["budget"] for device in answer["devices"])):
        assert set(budget["slices"]) == set(Slice)
        assert sum(budget["slices"].values()) == budget["total_ns"]
    return answer


def check_findings(model: Path) -> None:
    """The rules say what they said when the snapshot was made."""
    snapshot = json.loads((model / gpu_keep.FINDINGS).read_text())
    told = gpu_keep.findings(model)
    assert told == snapshot, "if that is meant: benchmarks/gpu_keep.py"
