"""A program of its own that enters one job: `python -m whyidle.monitor.attach.tracer`.

It reads one JSON object, ``{"pid", "start_ticks", "source", "timeout"}``, and answers one line:
``{"stops": [ms, ...], "mode", "done"}`` or ``{"what", "next_step"}``. It is separate from the
monitor so that neither the monitor's end nor a wait of the monitor's falls into a stop of the job.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from whyidle.monitor.attach.ptrace.inject import inject
from whyidle.monitor.attach.ptrace.refused import Refused


def main() -> None:
    """Answer one request, then end at once: that detaches us from what has not stopped in time."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # It tells us of a stop at once, and the parent of the monitor may have ignored it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answer = _answer(json.loads(sys.stdin.readline()))
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    os._exit(0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        done = inject(
            int(request["pid"]),
            int(request["start_ticks"]),
            str(request["source"]).encode(),
            float(request["timeout"]),
            _priority_boost,
        )
    except Refused as refused:
        return {"what": refused.refusal.what, "next_step": refused.refusal.next_step}
    except OSError as error:
        return {"what": f"The system did not let us in: {error}.", "next_step": ""}
    return {"stops": done.stops, "mode": done.mode, "done": done.done}


@contextlib.contextmanager
def _priority_boost() -> Iterator[None]:
    """Run before others where permitted: a thread stands still while we wait for a core."""
    gc.disable()
    _schedule(os.SCHED_FIFO, 1)
    try:
        yield
    finally:
        _schedule(os.SCHED_OTHER, 0)
        gc.enable()


def _schedule(policy: int, priority: int) -> None:
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))


if __name__ == "__main__":
    main()
