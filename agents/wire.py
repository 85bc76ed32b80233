"""What both sides of the link must agree on: names, sizes, records, messages, and moments.

In the job: records go through a bounded ring to one append-only spool file per process; a unix
socket beside it is for control only. Both lie in ``<folder>/whyidle-<uid>/``, named by the job's
own process id, in the first of ``FOLDERS`` (as the job sees them) that works.

A spool is lines of JSON, each an array ``[kind, monotonic_ns, ...]``:

    ["hello", t, {facts}]                       first in each spool, and again after it was emptied
    ["clock", t, realtime_ns, error_ns]         both clocks at one moment, every minute
    ["gauges", t, {name: number or null}]       every second; names below; totals since the start
    ["gc", t, generation, ns, collected]        one long pause of the garbage collector, at its end
    ["stacks", t, span_ns, samples, [[count, leaf, [frame, ...]], ...]]
                                                where the main thread was, every second
    ["probe", t, name, "on"|"off", reason]      a probe began or ended
    ["bye", t, reason]                          the last one

The facts of hello: ``version``, ``method`` (how it came: "ptrace", "remote_exec", "run", "fork"),
``pid``, ``ppid``, ``uid``, ``python`` ("3.11.7"), ``implementation``, ``gil`` (whether this Python
was built with one), ``probes`` (the names of those that are on).

A bye's reason is "detached" (the last client left), "lease" (nobody renewed one), "exit" (the
interpreter ended), "closed" (the job closed our descriptors), "no thread" (none could be started)
or "failed: TYPE" (an exception of ours). A probe goes off with the reason of the bye, with "asked",
or with why it cannot run here. "on" has no reason, and comes again with one when the probe does
less than it could: stack samples slow down when they cost too much.

A frame is ``[file, line, function]``. ``leaf`` is where the thread was; the frames after it are the
user's own, innermost first, at most ``STACK_DEPTH``; none where no user code was on the stack.

Control messages are one JSON object a line, at most ``MESSAGE_BYTES``, each answered by one line
with ``"ok"``; a refusal has ``"why"``. No message carries code.

    {"do": "hello"}                             -> the facts of the hello record, "spool", "epoch"
    {"do": "lease", "read": N}                  -> "size", "epoch"; the lease of this client is new
    {"do": "probe", "name": .., "on": bool}     -> turns a probe on or off
    {"do": "leave"}                             -> this client's lease ends; the last one's ends all

When every client has read all of a spool that is longer than ``SPOOL_TRIM``, the agent empties it
and counts ``epoch`` up: a reader that learns of a new epoch begins at offset 0 again.
"""

from __future__ import annotations

import time
from typing import NamedTuple

VERSION = 1
# The agent's package in the job's ``sys.modules``.
PACKAGE = "_whyidle_agent"
FOLDERS = ("/tmp", "/dev/shm", "/var/tmp")  # noqa: S108  made 0700 and checked before use

SPOOL_CAP = 16 << 20
SPOOL_TRIM = 1 << 20
MESSAGE_BYTES = 4096
STACK_DEPTH = 6
# No record of stacks has more places, and no frame longer names than these.
MOST_PLACES = 30
LONGEST_FILE = 300
LONGEST_NAME = 100
# Without a live client for so long the agent takes itself away: three of the slowest ticks.
LEASE_SECONDS = 30.0
# A single pause of the garbage collector from here on is a record of its own.
LONG_GC_NS = 1_000_000

# The gauges of the agent itself and of the probe ``python``. Totals count from the agent's start.
LOST = "lost"  # records that found no room, total
AGENT_CPU_NS = "agent_cpu_ns"  # CPU time of the agent's thread, total
RSS_BYTES = "rss_bytes"
RSS_PEAK_BYTES = "rss_peak_bytes"
PYTHON_THREADS = "python_threads"
GC_NS = "gc_ns"  # time in the garbage collector, total
GC_COLLECTIONS = "gc_collections"  # total


def folder_name(uid: int) -> str:
    """Return the folder of a user's agents inside one of ``FOLDERS``."""
    return f"whyidle-{uid}"


def spool_name(pid: int) -> str:
    """Return the spool's file name; the pid is the job's own view of it."""
    return f"{pid}.spool"


def socket_name(pid: int) -> str:
    """Return the control socket's file name."""
    return f"{pid}.sock"


class ClockPair(NamedTuple):
    """One moment on both clocks, so that records of either side meet on one time line."""

    monotonic_ns: int
    realtime_ns: int
    error_ns: int


def clock_pair(tries: int = 5) -> ClockPair:
    """Read both clocks as close together as possible: the tightest of a few tries."""
    best: ClockPair | None = None
    for _ in range(tries):
        before = time.monotonic_ns()
        realtime = time.time_ns()
        width = time.monotonic_ns() - before
        if best is None or width < best.error_ns:
            best = ClockPair(before + width // 2, realtime, width)
    assert best is not None  # noqa: S101  tries is at least one
    return best
