"""A store of hostile jobs: each of their texts tries to run something in the page."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.dashboard import chains, timelines
from tests.dashboard.stores import make
from whyidle.dashboard import sample

# To be found as text, and nowhere as what it pretends to be.
MARK: Final = "<b data-evil=1>evil</b>"
EVIL: Final = (
    f"{MARK}<img src=x onerror='window.ran=1'></script><script>window.ran=1</script>"
    "<a href='javascript:window.ran=1'>a</a><style>*{display:none}</style>"
    "[evil](javascript:window.ran=1)![evil](http://evil.example/x.png)"
    "\x1b[31m\u202e:material/home: $\\href{javascript:window.ran=1}{x}$ `x` \"'"
)
# Of a run and its processes: what a job says of itself, and what stands around it.
_COLUMNS: Final = {
    "run": ("label", "command", "script", "framework", "user", "host", "container", "end_reason"),
    "process": ("name", "command"),
    "gpu": ("name", "uuid"),
    "event": ("text",),
    "unknown": ("reason",),
    "trace_slice": ("detail",),
    "trace_kernel": ("name",),
}
_DOCUMENTS: Final = {"event": "data", "finding": "data", "trace": "header", "run": "info"}
# Words that programs use as identifiers; a job does not choose them.
_OURS: Final = frozenset(
    {
        "kind",
        "framework",
        "method",
        "rule",
        "severity",
        "slice",
        "format",
        "source",
        "unit",
        "probe",
    }
    | {"paced_by", "state", "gpus", "budget_source", "bye", "schema"}
)


def make_hostile(path: Path) -> int:
    """Write it; returns the run that has GPUs and the trace of a GPU."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(sample.STORE, path)
    made = make(path, seconds=120, gpus=2, label="gpus")
    for kind in ("compile", "gc_pause", "xid", "trouble"):
        made.writer.event(
            made.run, kind, "something", severity="warning", ts_ms=made.ts_ms - 30_000
        )
    rank = made.writer.add_process(made.run, pid=100, start_ticks=1000, name="train.py")
    lines = chains.packed(chains.samples("/job/train.py"))
    chains.put(made.writer, made.run, rank, made.ts_ms - 10_000, lines)
    made.end()
    timelines.kept(path, _trace(path.parent / "trace.json"), made.run)
    with closing(sqlite3.connect(path)) as store, store:
        for table, columns in _COLUMNS.items():
            for column in columns:
                store.execute(
                    f"UPDATE {table} SET {column} = {column} || ? WHERE {column} IS NOT NULL",
                    (EVIL,),
                )
        for table, column in _DOCUMENTS.items():
            rows = store.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            for row, text in rows:
                poisoned = json.dumps(_poisoned(json.loads(text))) if text else text
                store.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (poisoned, row))
    return made.run


def _trace(path: Path) -> Path:
    """Write a trace whose kernels and spans have hostile names."""
    timelines.write(path)
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        if event.get("cat") in {"kernel", "cpu_op"}:
            event["name"] += EVIL
    path.write_text(json.dumps(document))
    return path


def _poisoned(content: Any, name: str = "") -> Any:
    if isinstance(content, dict):
        return {key: _poisoned(value, key) for key, value in content.items()}
    if isinstance(content, list):
        return [_poisoned(value, name) for value in content]
    return content + EVIL if isinstance(content, str) and name not in _OURS else content
