"""The store: one SQLite file that recorders append to and viewers read."""

from whyidle.monitor.store.prune import RunSize, copy, delete_runs, run_sizes, shrink
from whyidle.monitor.store.reader import Reader, UnknownRun
from whyidle.monitor.store.records import (
    Event,
    Gpu,
    GpuProcess,
    Key,
    NewRun,
    Point,
    Process,
    Run,
    Summary,
    Totals,
    Unknown,
    Value,
    check_label,
)
from whyidle.monitor.store.salvage import salvage
from whyidle.monitor.store.writer import SIZE_CAP, Writer

__all__ = [
    "SIZE_CAP",
    "Event",
    "Gpu",
    "GpuProcess",
    "Key",
    "NewRun",
    "Point",
    "Process",
    "Reader",
    "Run",
    "RunSize",
    "Summary",
    "Totals",
    "Unknown",
    "UnknownRun",
    "Value",
    "Writer",
    "check_label",
    "copy",
    "delete_runs",
    "run_sizes",
    "salvage",
    "shrink",
]
