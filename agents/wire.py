"""What both sides of the link must agree on: names, sizes, records, messages, and moments.

In the job, records go through a bounded ring to one append-only spool file per process; a unix
socket beside it is for control only. Both lie in ``<folder>/whyidle-<uid>/``, named after the
job's own process id, in the first of ``FOLDERS`` (as the job sees them) that works.

A spool is lines of JSON, each an array ``[kind, monotonic_ns, ...]``:

    ["hello", t, {facts}]                       first in each spool, and again after it was emptied
    ["clock", t, realtime_ns, error_ns]         both clocks at one moment, every minute
    ["gauges", t, {name: number or null}]       every second; names below; totals since the start
    ["gc", t, generation, ns, collected]        one long pause of the garbage collector, at its end
    ["stacks", t, span_ns, samples, [[count, leaf, [frame, ...], called, known, waited], ...]]
                                                where the main thread was, every second
    ["steps", t, source, span_ns, count, [duration_ns, ...], unit]
                                                whole steps that ended during the ``span_ns`` before
                                                t, every second; at most ``MOST_DURATIONS`` of their
                                                durations, picked evenly from the sorted list; steps
                                                of another unit are of another kind, and the first
                                                is left out
    ["compile", t, framework, function, ns, reason, caller, cached]
                                                one compilation, at its end; caller is the user's
                                                own frame or null, cached whether a cache had it
    ["reads", t, kind, [[count, ns, frame], ...]]
                                                where values were read back from the device ("item",
                                                "array", ..), as sampled; every few seconds
    ["state", t, probe, {name: value}]          all facts that seldom change, whenever one did
    ["trace", t, id, state, {facts}]            a requested trace: "begun", "done" or "failed"
    ["pace", t, source, end_ns, each, [ns, ...]]
                                                while a knob is tried: how long the steps took one
                                                after another, up to the one that ended at end_ns;
                                                each value is of ``each`` steps
    ["knob", t, name, state, {facts}]           a knob was turned ("on"), went back ("off"), was
                                                left as the job has set it since ("left"), or stays
                                                ("kept")
    ["probe", t, name, "on"|"off", reason]      a probe began or ended
    ["bye", t, reason]                          the last record

The facts of hello: ``version``, ``method`` (how it got in: "ptrace", "remote_exec", "run", "fork"),
``pid``, ``ppid``, ``uid``, ``python`` ("3.11.7"), ``implementation``, ``gil`` (whether this Python
was built with one), ``probes`` (the names of those that run).

The facts of a knob: ``old`` and ``value``, what was read before and after it was turned, ``now``,
what is read at this moment, and ``why`` it went back.

The source of steps is one of ``STEP_SOURCES``, best first; a worse one is silent while a better one
reports. The facts of a state are numbers, words, and lists and objects of these, at most
``STATE_BYTES``. ``probe.py`` of each framework describes the states of its probe.

A trace that is done has ``{"framework", "file", "bytes", "began_ns", "ended_ns", "realtime_ns",
"held_ns", "events"}``: the file's name beside the spool, when the window began and ended on the
monotonic clock, the wall clock at its beginning, how long the job stood still for it in total, and
the number of events where known. One that failed has ``{"why"}``. The agent removes the file when
told to, or after ``TRACE_FILE_SECONDS``.

A bye's reason is "detached" (the last client left), "lease" (nobody renewed one), "exit" (the
interpreter ended), "closed" (the job closed our descriptors), "no thread" (none could be started)
or "failed: TYPE" (an exception of ours). A probe goes off with the reason of the bye, with "asked",
or with why it cannot run here. "on" has no reason at first; it comes again with one when the probe
does less than it could: stack samples slow down when they cost too much.

A frame is ``[file, line, function]``. ``leaf`` is where the thread was; the frames after it are the
user's own, innermost first, at most ``STACK_DEPTH``; none if no user code was on the stack.
``called`` is the frame that the innermost of them called, null where that is the leaf itself: the
first frame of all without user code. ``known`` of the samples say whether the thread waited for
anything but Python's lock, ``waited`` that it did; agents before 0.1 send neither. Where the thread
is in a phase that the job's own code marks, two zeros follow, of what only the monitor sees, and
the phase's name.

Control messages are one JSON object per line, at most ``MESSAGE_BYTES``, each answered by one line
with ``"ok"``; a refusal has ``"why"``. No message carries code.

    {"do": "hello"}                             -> the facts of the hello record, "spool", "epoch"
    {"do": "lease", "read": N}                  -> "size", "epoch"; the lease of this client is new
    {"do": "probe", "name": .., "on": bool}     -> turns a probe on or off
    {"do": "trace", "seconds": S, "share": X}   -> "id": a trace of at most S seconds begins soon;
                                                or "why" not: the user profiles, a trace is on, too
                                                soon for a share X of the time, nothing to trace
    {"do": "drop", "id": N}                     -> removes the file of a trace
    {"do": "tell", "said": {..}}                -> "heard": what was found so far, for the job's own
                                                code to look at (``marks.py``)
    {"do": "watch", "on": bool}                 -> records of the pace come, first up to now; or not
    {"do": "knob", "name": .., "value": ..}     -> turns a knob of ``knobs.py``; a record says when.
                                                It goes back when this client hangs up, or renews
                                                no lease for ``KNOB_SECONDS``
    {"do": "back"}                              -> "on": the knob goes back, and this is false once
                                                it has
    {"do": "keep"}                              -> the knob stays
    {"do": "leave"}                             -> this client's lease ends; the last one's ends all

When every client has read all of a spool longer than ``SPOOL_TRIM``, the agent empties it and
increments ``epoch``: a reader that learns of a new epoch begins at offset 0 again.
"""

from __future__ import annotations

import time
from typing import NamedTuple

VERSION = 1
# The agent's package in the job's ``sys.modules``.
PACKAGE = "_whyidle_agent"
# What Julia loads before the user's script, beside this file: it writes records of steps alone.
JULIA_MARKS = "julia/whyidle.jl"
FOLDERS = ("/tmp", "/dev/shm", "/var/tmp")  # noqa: S108  made 0700 and checked before use

SPOOL_CAP = 16 << 20
SPOOL_TRIM = 1 << 20
MESSAGE_BYTES = 4096
# Frameworks that are no code of the user's: built from source they may lie anywhere.
FRAMEWORKS = ("torch", "jax", "jaxlib", "flax", "tensorflow", "keras", "numpy", "transformers")
# What TensorFlow makes of a function of the user's, in a file of its own.
AUTOGRAPH = "/__autograph_generated_file"
# Cells of notebooks and lines of a console have no file of their own.
TYPED_IN = ("<ipython-input", "<python-input", "<stdin>")
# Of a thread that waits in one of these, the library that called it says what for.
WAITERS = (
    "/threading.py",
    "/queue.py",
    "/selectors.py",
    "/concurrent/futures/_base.py",
    "/concurrent/futures/thread.py",
    "/multiprocessing/connection.py",
    "/multiprocessing/pool.py",
    "/multiprocessing/queues.py",
    "/multiprocessing/synchronize.py",
)
STACK_DEPTH = 12
# Limits on the places in a record of stacks, and on the length of names in a frame.
MOST_PLACES = 30
LONGEST_FILE = 300
LONGEST_NAME = 100
# Of the text that says which phase the job's own code marks.
PHASE_BYTES = 16
# The agent leaves after this long without a live client: three of the slowest ticks.
LEASE_SECONDS = 30.0
# What a client has turned goes back after this long without a word of it: a few of its seconds.
KNOB_SECONDS = 4.0
# A single garbage collector pause this long gets a record of its own.
LONG_GC_NS = 1_000_000

# The most step durations in one record.
MOST_DURATIONS = 64
# The most durations in one record of the pace.
MOST_PACED = 500
# The sources of steps, best first: the user's own markers, then hooks.
STEP_SOURCES = (
    "whyidle.step",
    "ProfilerStep",
    "StepTraceAnnotation",
    "fit",
    "optimizer",
    "tf.function",
)
# Limits on the free parts of a state, compile or trace record.
STATE_BYTES = 16_384
LONGEST_REASON = 500
# A trace that nobody has fetched after this long is removed.
TRACE_FILE_SECONDS = 60.0
# The largest trace that is kept.
TRACE_FILE_CAP = 256 << 20

# The gauges of the agent itself and of the probe ``python``. Totals count from the agent's start.
LOST = "lost"  # records that found no room, total
AGENT_CPU_NS = "agent_cpu_ns"  # CPU time of the agent's thread, total
RSS_PEAK_BYTES = "rss_peak_bytes"
PYTHON_THREADS = "python_threads"
PHASE_AT = "phase_at"  # where the text of the phase lies that the job marks, an address
GC_NS = "gc_ns"  # time in the garbage collector, total
GC_COLLECTIONS = "gc_collections"  # total
# Of a collector that is read from outside, Julia's; no agent sends them.
GC_FULL = "gc_full"  # collections of all objects, total
ALLOCATED_BYTES = "allocated_bytes"  # total, as of the last collection
HEAP_BYTES = "heap_bytes"  # alive then

# The gauges of the framework probes; an unknown one is left out, or null.
STEPS = "steps"  # steps of the best source, total
OPTIMIZER_STEPS = "optimizer_steps"  # calls of any optimizer, total
OPTIMIZER_NS = "optimizer_ns"  # time inside those that are given no closure, total
LOADER_BATCHES = "loader_batches"  # total, main process
LOADER_WAIT_NS = "loader_wait_ns"  # time that it waited for the next batch, total
SAMPLES = "samples"  # of batches whose size is known, total
SYNCS = "syncs"  # values read back, outside the optimizer's own code, total
SYNC_NS = "sync_ns"  # time that these took, total
READ_BYTES = "read_bytes"  # bytes that these brought, total
MOST_BATCHES = "most_batches"  # of the data that gave most of them, total
CALLBACKS = "callbacks"  # of the callback that compiled programs call most, total
DEVICE_PUTS = "device_puts"  # explicit copies to the device, total
COMPILES = "compiles"  # compilations that no cache had, total
COMPILE_NS = "compile_ns"  # tracing, lowering and compiling, total
COMPILE_HITS = "compile_hits"  # compilations that a cache had, total
AUTOCASTS = "autocasts"  # regions of reduced precision entered, total
DEBUG_MODES = "debug_modes"  # modes that slow each step and are on now, of the whole process
EXECUTABLES = "executables"  # compiled programs alive
LIVE_ARRAYS = "live_arrays"
LIVE_BYTES = "live_bytes"
# From the framework's own allocator, summed over the devices of the process.
POOL_USED_BYTES = "pool_used_bytes"
POOL_PEAK_BYTES = "pool_peak_bytes"
POOL_RESERVED_BYTES = "pool_reserved_bytes"
POOL_LIMIT_BYTES = "pool_limit_bytes"
POOL_SPLIT_BYTES = "pool_split_bytes"  # free, but in pieces between what is used
ALLOC_RETRIES = "alloc_retries"  # total
ALLOC_OOMS = "alloc_ooms"  # total


def folder_name(uid: int) -> str:
    """Return the folder of a user's agents inside one of ``FOLDERS``."""
    return f"whyidle-{uid}"


def spool_name(pid: int) -> str:
    """Return the spool's file name; the pid is the one that the job itself sees."""
    return f"{pid}.spool"


def socket_name(pid: int) -> str:
    """Return the control socket's file name."""
    return f"{pid}.sock"


class ClockPair(NamedTuple):
    """One moment on both clocks, to put the records of both sides on one time line."""

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
