"""Snapshots of a job, made by hand."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from whyidle.monitor.attach.answers import OUTSIDE, PTRACE, Refusal
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.snapshot import Member, Snapshot
from whyidle.monitor.recording.stats.agent_stats import MEASURED
from whyidle.monitor.render.live import LiveView
from whyidle.monitor.sources.ownership import Owned

LOAD = SourceLine("/home/someone/project/data/loading.py", 1108, "Tokens.__getitem__", 0.61)
STEP = SourceLine("/home/someone/project/train.py", 42, "step", 0.2)
STOPPED = Refusal(
    "Process 4002 is stopped (Ctrl-Z or kill -STOP).",
    "Let it go on: kill -CONT 4002   then: monitor attach 4002",
)

NO_PROBE = "no probe tells it"


def inside(pid: int = 4001, rank: int | None = None, **known: Any) -> Member:
    values = {
        m.PROCESS_GC_PAUSE: 0.013,
        m.PROCESS_PYTHON_THREADS: 12.0,
        m.PROCESS_AGENT_CPU: 0.0021,
        m.PROCESS_RSS_PEAK: 3e9,
        m.PROCESS_GC_COLLECTIONS: 4.0,
        m.PROCESS_AGENT_LOST: 0.0,
    }
    given = {
        "method": PTRACE,
        "stops_ms": (0.3, 0.1),
        "reading": Reading(values, dict.fromkeys(set(MEASURED) - values.keys(), NO_PROBE)),
        "where": (LOAD, STEP),
        "looks": 150,
        **known,
    }
    return Member(ProcessKey(pid, 1), rank, **given)


def outside(pid: int = 4002, refusal: Refusal | None = STOPPED, **known: Any) -> Member:
    reading = Reading(unknown=dict.fromkeys(MEASURED, "no agent in the process"))
    return Member(
        ProcessKey(pid, 1),
        None,
        **{"method": OUTSIDE, "refusal": refusal, "reading": reading, **known},
    )


def drawn(shown: Snapshot, width: int, height: int = 60, ticks: int = 1, keys: str = "") -> str:
    """Return the live view of this moment after so many ticks and these keys."""
    console = Console(width=width, height=height, file=io.StringIO(), highlight=False)
    view = LiveView(everything=False, console=console)
    for _ in range(ticks):
        view.tick(shown)
    view.close()
    for key in keys:
        view._press(key)
    with console.capture() as captured:
        console.print(view.page())
    return captured.get()


def snapshot(*members: Member, **known: Any) -> Snapshot:
    given = {
        "run": 1,
        "ts_ms": 1_700_000_000_000,
        "elapsed": 12.0,
        "ticks": 13,
        "identity": None,
        "facts": (),
        "gpus": {},
        "owned": Owned(frozenset(), "no GPU is known", sure=False),
        "gpu_problem": "There is no NVIDIA driver library here.",
        "job_pids": frozenset(member.key.pid for member in members),
        "job": Reading({m.JOB_CPU: 1.5}),
        "host": Reading({m.HOST_CPU: 0.5, m.HOST_CORES: 8}),
        "monitor": Reading(),
        "period": 1.0,
        "members": members,
        **known,
    }
    return Snapshot(**given)
