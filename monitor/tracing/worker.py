"""Analyse one trace, in a process of its own: ``python -m whyidle.monitor.tracing.worker``.

It reads its order from stdin (see ``parser``), stores the results, and prints its answer as one
line of JSON. It must not slow down the job or the recorder, and no file may crash them: it works at
a low priority with bounded memory and time, is the first that the kernel kills if memory is short,
and ends with its parent.
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

from whyidle.monitor.core.pace import insist, niceness

if TYPE_CHECKING:
    from whyidle.monitor.core.contracts.trace import JsonObject, TakenJson, TraceJson
    from whyidle.monitor.store.traces import NewTrace

MOST_BYTES = 2 << 30
MOST_CPU_SECONDS = 120
MOST_WARNINGS = 5
LONGEST_WARNING = 500
_PR_SET_PDEATHSIG = 1


class Order(TypedDict):
    """The trace to analyse, and what is known about it already."""

    file: str
    store: str
    run: int
    taken: TakenJson


def limit() -> None:
    """Limit our priority and memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    most = min(MOST_BYTES, _free_bytes() // 2)
    for what, value in ((resource.RLIMIT_DATA, most), (resource.RLIMIT_CPU, MOST_CPU_SECONDS)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (value, value))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def go_with(parent: int) -> None:
    """Have the kernel end us together with our parent."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def understand(order: Order) -> JsonObject:
    """Analyse a file, store the results, and return the recorder's summary."""
    made: list[tuple[TraceJson, NewTrace]] = []
    failed: list[BaseException] = []

    def think() -> None:
        # For this thread and those that it starts: the thread that writes must not be delayed
        # while it holds the store.
        try:
            # Never back to more than we were started with: that takes a right.
            mine = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, 0, max(mine, niceness()))
            made.append(_analysed(order))
        except BaseException as error:  # noqa: BLE001  raised in the other thread
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
            "repeats_ns": steps.get("repeats_ns"),
        },
        "window": answer["window"],
        "kinds": sorted({device["kind"] for device in answer["devices"]}),
        "warnings": [text[:LONGEST_WARNING] for text in answer["warnings"][:MOST_WARNINGS]],
        "trace": None,
        "trouble": None,
    }
    from whyidle.monitor.core.errors import Problem  # noqa: PLC0415  when it is asked for
    from whyidle.monitor.store.traces import put  # noqa: PLC0415

    insist(os.getpid())
    try:
        found["trace"] = put(Path(order["store"]), new)
    except Problem as problem:
        # The results are worth reporting even if they could not be stored.
        found["trouble"] = problem.what
    return found


def _analysed(order: Order) -> tuple[TraceJson, NewTrace]:
    # Heavy, so only now: at this thread's priority, within the memory limit.
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
    """Carry out the order on stdin."""
    order = json.loads(sys.stdin.readline())
    go_with(order["parent"])
    limit()
    try:
        answer = understand(order)
    except MemoryError:
        answer = {"failed": "it needs more memory than it may have"}
    except BaseException as error:  # noqa: BLE001  reported in a sentence
        answer = {"failed": getattr(error, "what", None) or f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)  # noqa: T201  the answer


if __name__ == "__main__":
    main()
