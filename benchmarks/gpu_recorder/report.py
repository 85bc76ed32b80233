"""What a recording leaves behind: nvml.tape, nvml.json, a line in index.json, and a table."""

from __future__ import annotations

import json
import platform
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from gpu_recorder.questions import Finding
from gpu_recorder.tape import Tape
from gpu_recorder.tape_text import Phase, lines
from whyidle.monitor.core.errors import StorageProblem

SCHEMA = 1
US = 1e6
LARGEST_BYTES = 300_000
PACKAGES = ("nvidia-ml-py", "torch", "jax", "jaxlib", "numpy", "psutil")


class Call(NamedTuple):
    """One call of NVML: its name in the library, who asked, and what became of it."""

    function: str
    asker: str
    phase: str
    seconds: float
    error: int | None


class Recording(NamedTuple):
    """All that was recorded."""

    tape: Tape
    phases: Sequence[Phase]
    calls: Sequence[Call]
    findings: Sequence[Finding]
    loaded: bool
    command: str


def write(out: Path, recording: Recording) -> Path:
    """Write the recording below ``out``; return its folder."""
    document = _document(recording)
    folder = out / slug(document["model"])
    made = f"{document['date']}, {recording.command}"
    if not recording.loaded:
        made += "; without any load: no framework here saw the GPU"
    medians = {name: f["all"]["median_us"] for name, f in document["functions"].items()}
    tape = "\n".join(lines(recording.tape, recording.phases, medians, made)) + "\n"
    document["tape_bytes"] = len(tape)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "nvml.tape").write_text(tape)
        _write_json(folder / "nvml.json", document)
        update_index(out / "index.json", folder.name, document)
    except OSError as error:
        what = f"The recording could not be written: {error}"
        raise StorageProblem(what, "Name another folder: --out FOLDER") from None
    return folder


def slug(model: str) -> str:
    """Return a GPU's name as a folder."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "gpu"


def _document(recording: Recording) -> dict[str, Any]:
    tape = recording.tape
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": tape.texts.get("name", "unknown GPU"),
        "driver": tape.settings.get("driver_version"),
        "nvml": tape.settings.get("nvml_version"),
        "cuda": tape.settings.get("cuda_driver_version"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        # Its number alone: what follows names who built it.
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "machine": platform.machine(),
        "command": recording.command,
        "loaded": recording.loaded,
        "phases": [_plain(phase) for phase in recording.phases],
        "functions": _functions(recording.calls),
        "findings": [finding.plain() for finding in recording.findings],
    }


def _plain(phase: Phase) -> dict[str, Any]:
    times = {"start": round(phase.start, 3), "end": round(phase.end, 3)}
    return {**phase._asdict(), **times}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _functions(calls: Sequence[Call]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted({call.function for call in calls}):
        own = [call for call in calls if call.function == name]
        phases = list(dict.fromkeys(call.phase for call in own))
        found[name] = {
            "asked_by": sorted({call.asker for call in own}),
            "all": summary(own),
            "phases": {p: summary([c for c in own if c.phase == p]) for p in phases},
        }
    return found


def summary(calls: Sequence[Call]) -> dict[str, Any]:
    """Return how often, how it failed, and how long it took."""
    us = sorted(call.seconds * US for call in calls)
    errors = Counter(str(call.error) for call in calls if call.error is not None)
    return {
        "count": len(us),
        "errors": dict(sorted(errors.items())),
        "median_us": round(statistics.median(us), 1),
        "p90_us": round(_quantile(us, 0.9), 1),
        "p99_us": round(_quantile(us, 0.99), 1),
        "max_us": round(us[-1], 1),
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def update_index(path: Path, name: str, document: dict[str, Any]) -> None:
    """Put a recording into the list of all; one of the same model before it goes."""
    before = json.loads(path.read_text())["recordings"] if path.exists() else []
    kept = ("date", "model", "driver", "loaded", "tape_bytes")
    entry = {"folder": name, **{key: document[key] for key in kept}}
    others = [e for e in before if e["folder"] != name]
    recordings = sorted([*others, entry], key=lambda e: str(e["folder"]))
    _write_json(path, {"schema": SCHEMA, "recordings": recordings})


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def show(document: dict[str, Any], folder: Path) -> None:
    """Print the table, the findings, and where it all is."""
    print(f"{document['model']}, driver {document['driver']}")
    if not document["loaded"]:
        print("NO LOAD: no framework here sees the GPU, so no phase had one.")
    print(f"\n{'function':<46}{'calls':>7}{'failed':>8}{'median µs':>11}{'p99 µs':>11}")
    for name, function in document["functions"].items():
        told = function["all"]
        failed = sum(told["errors"].values())
        row = f"{told['median_us']:>11.0f}{told['p99_us']:>11.0f}"
        print(f"{name:<46}{told['count']:>7}{failed:>8}{row}")
    for title, differs in (
        ("What differs from the notes", True),
        ("What the notes did not know", None),
        ("What is as the notes say", False),
    ):
        print(f"\n{title}")
        for finding in [f for f in document["findings"] if f["differs"] is differs]:
            said = f"{finding['question']}? {finding['seen']}. Note: {finding['note']}."
            print(textwrap.fill(said, 100, initial_indent="- ", subsequent_indent="  "))
    print(f"\nWritten: {folder}/nvml.tape ({document['tape_bytes']} bytes), nvml.json")
    if document["tape_bytes"] > LARGEST_BYTES:
        print(f"The tape is over {LARGEST_BYTES} bytes: record with a lower --hz.")
