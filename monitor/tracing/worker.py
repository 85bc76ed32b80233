"""Understand one trace, in a process of its own: ``python -m whyidle.monitor.tracing.worker``.

It reads what to do from its input (``parser``), stores what it finds, and answers one JSON object
a line. Neither the job nor the recorder may be slowed down by it, or ended by what is in a file: it
works at the lowest priority, with bounded memory and time, is the first that the kernel ends where
memory is short, and goes with who started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from whyidle.monitor.core.contracts.trace import JsonObject, TakenJson, TraceJson
    from whyidle.monitor.store.traces import NewTrace

MOST_BYTES = 2 << 30
MOST_CPU_SECONDS = 120
LOWEST_PRIORITY = 19
MOST_WARNINGS = 5
LONGEST_WARNING = 500
_PR_SET_PDEATHSIG = 1


class Order(TypedDict):
    """What is to be understood, and what is known of it already."""

    file: str
    store: str
    run: int
    taken: TakenJson


def limit() -> None:
    """Be no burden to anybody."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    most = min(MOST_BYTES, _free_bytes() // 2)
    for what, value in ((resource.RLIMIT_DATA, most), (resource.RLIMIT_CPU, MOST_CPU_SECONDS)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (value, value))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def go_with(parent: int) -> None:
    """Have the kernel end us with the process that started us."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def understand(order: Order) -> JsonObject:
    """Analyse a file, keep what is found, and return what the recorder wants to know of it."""
    made: list[tuple[TraceJson, NewTrace]] = []
    failed: list[BaseException] = []

    def think() -> None:
        # Of this thread and those that it starts: the one that writes must not be kept waiting
        # while it holds the store.
        os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
        try:
            made.append(_analysed(order))
        except BaseException as error:  # noqa: BLE001  told by the other thread
            failed.append(error)

    thread = threading.Thread(target=think)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    answer, new = made[0]
    steps = answer["steps"]
    found: JsonObject = {
        "format": answer["format"],
        "budget": answer["budget"],
        "step_budget": answer["step_budget"],
        "steps": {
            "count": steps["count"],
            "median_ns": steps["median_ns"],
            "source": steps["source"],
            "how": steps["how"],
        },
        "window": answer["window"],
        "kinds": sorted({device["kind"] for device in answer["devices"]}),
        "warnings": [text[:LONGEST_WARNING] for text in answer["warnings"][:MOST_WARNINGS]],
        "trace": None,
        "trouble": None,
    }
    from whyidle.monitor.core.errors import Problem  # noqa: PLC0415  when it is asked for
    from whyidle.monitor.store.traces import put  # noqa: PLC0415

    try:
        found["trace"] = put(Path(order["store"]), new)
    except Problem as problem:
        # What was found out is worth telling all the same.
        found["trouble"] = problem.what
    return found


def _analysed(order: Order) -> tuple[TraceJson, NewTrace]:
    # Heavy, and only now: at this thread's priority, below the limit of memory.
    from whyidle.monitor.store.timeline_rows import whole  # noqa: PLC0415
    from whyidle.monitor.traces.analysis import analyse  # noqa: PLC0415
    from whyidle.monitor.traces.answer import contract  # noqa: PLC0415
    from whyidle.monitor.traces.window import TraceWindow  # noqa: PLC0415

    window = TraceWindow.from_taken(order["taken"])
    step_ns = None if window is None else window.step_ns
    analysis = analyse(Path(order["file"]), step_ns=step_ns)
    answer = contract(analysis, ours=True, window=window)
    new = whole(
        analysis.trace,
        answer,
        file=analysis.path,
        segments=[report.budget.segments for report in analysis.devices],
        steps=(analysis.steps.start, analysis.steps.end),
        run=order["run"],
        taken=order["taken"],
    )
    return answer, new


def _free_bytes() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return int(fields["MemAvailable"].split()[0]) << 10
    return MOST_BYTES


def main() -> None:
    """Do what the input says."""
    order = json.loads(sys.stdin.readline())
    go_with(order["parent"])
    limit()
    try:
        told = understand(order)
    except MemoryError:
        told = {"failed": "it needs more memory than it may have"}
    except BaseException as error:  # noqa: BLE001  all of it is told in a sentence
        told = {"failed": getattr(error, "what", None) or f"{type(error).__name__}: {error}"}
    print(json.dumps(told), flush=True)  # noqa: T201  the answer


if __name__ == "__main__":
    main()
