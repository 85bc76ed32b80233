"""What a recording leaves behind: nvml.tape, nvml.json, a line in index.json, and a table."""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.machine import software
from benchmarks.gpu.questions import Finding
from benchmarks.gpu.tape import Phase, Tape
from whyidle.monitor.core.errors import StorageProblem

SCHEMA = 1
LARGEST_BYTES = 300_000


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
    tape, phases = recording.tape, recording.phases
    times = [{**p._asdict(), "start": round(p.start, 3), "end": round(p.end, 3)} for p in phases]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": tape.texts.get("name", "unknown GPU"),
        "driver": tape.settings.get("driver_version"),
        "nvml": tape.settings.get("nvml_version"),
        "cuda": tape.settings.get("cuda_driver_version"),
        **software(),
        "command": recording.command,
        "loaded": recording.loaded,
        "phases": times,
        "functions": _functions(recording.calls),
        "findings": [asdict(finding) for finding in recording.findings],
    }
    made = f"{document['date']}, {recording.command}"
    if not recording.loaded:
        made += "; without any load: no framework here saw the GPU"
    medians = {name: f["all"]["median_us"] for name, f in document["functions"].items()}
    text = "\n".join(tape.lines(phases, medians, made)) + "\n"
    document["tape_bytes"] = len(text)
    folder = out / slug(document["model"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "nvml.tape").write_text(text)
        write_json(folder / "nvml.json", document)
        update_index(out / "index.json", folder.name, document)
    except OSError as error:
        what = f"The recording could not be written: {error}"
        raise StorageProblem(what, "Name another folder: --out FOLDER") from None
    return folder


def slug(model: str) -> str:
    """Return a GPU's name as a folder."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "gpu"


def _functions(calls: Sequence[Call]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted({call.function for call in calls}):
        own = [call for call in calls if call.function == name]
        phases = dict.fromkeys(call.phase for call in own)
        found[name] = {
            "asked_by": sorted({call.asker for call in own}),
            "all": _summary(own),
            "phases": {p: _summary([c for c in own if c.phase == p]) for p in phases},
        }
    return found


def _summary(calls: Sequence[Call]) -> dict[str, Any]:
    """Return how often, how it failed, and how long it took."""
    us = sorted(call.seconds * 1e6 for call in calls)
    errors = Counter(str(call.error) for call in calls if call.error is not None)
    shares = {"p90_us": 0.9, "p99_us": 0.99, "max_us": 1.0}
    last = len(us) - 1
    return {
        "count": len(us),
        "errors": dict(sorted(errors.items())),
        "median_us": round(statistics.median(us), 1),
        **{name: round(us[min(last, int(s * len(us)))], 1) for name, s in shares.items()},
    }


def update_index(path: Path, name: str, document: dict[str, Any]) -> None:
    """Put a recording into the list of all; one of the same model before it goes."""
    before = json.loads(path.read_text())["recordings"] if path.exists() else []
    kept = ("date", "model", "driver", "loaded", "tape_bytes")
    recordings = [e for e in before if e["folder"] != name]
    recordings.append({"folder": name, **{key: document[key] for key in kept}})
    recordings.sort(key=lambda e: str(e["folder"]))
    write_json(path, {"schema": SCHEMA, "recordings": recordings})


def write_json(path: Path, document: object) -> None:
    """Write a document as it lies among the recordings."""
    path.write_text(json.dumps(document, indent=1) + "\n")


def show(folder: Path) -> None:
    """Print the table, the findings, and where it all is."""
    document = json.loads((folder / "nvml.json").read_text())
    print(f"{document['model']}, driver {document['driver']}")
    if not document["loaded"]:
        print("NO LOAD: no framework here sees the GPU, so no phase had one.")
    print(f"\n{'function':<46}{'calls':>7}{'failed':>8}{'median µs':>11}{'p99 µs':>11}")
    for name, function in document["functions"].items():
        found = function["all"]
        row = f"{found['median_us']:>11.0f}{found['p99_us']:>11.0f}"
        print(f"{name:<46}{found['count']:>7}{sum(found['errors'].values()):>8}{row}")
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
