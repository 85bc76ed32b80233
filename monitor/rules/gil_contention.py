"""Another thread of the job holds the Python lock that training needs.

## What it sees
Samples in which the main thread waits for Python's lock (the GIL), and the line of the thread that
holds it. Loader threads are `input_starved`.

## Why it costs
Each wait for the lock takes up to 5 ms.

## How to fix
Code that releases the lock also helps (NumPy on large arrays, a tokenizer in Rust).
`sys.setswitchinterval` shortens each wait, not their number.

## When it is wrong
If a step needs the other thread's result anyway, moving the work gains nothing.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.rules import Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.user_lines import own


def detect(window: Window) -> Verdict:
    """Judge the waits for Python's lock."""
    account = window.sampled
    locked = account.share(HostClass.LOCK)
    error = account.error(locked)
    # Each thread that now and then runs Python takes the lock for moments.
    if locked - error < Severity.MEDIUM.least:
        return None
    # Who gets the lock still has to get a core.
    delay = window.job.means.get(m.JOB_MAIN_THREAD_WAIT, 0.0)
    # The lines at which other threads had it; else those that waited for it.
    lines = window.job.holders.lines()
    held = own(Place(x.file, x.line, x.function, x.share * locked) for x in lines)
    return Found(
        gain=comes_back(window, locked - error, locked + error + delay, Side.HOST),
        evidence=(Evidence.of("main thread waits for Python's lock", window.job.sampled(locked)),),
        where=held or own(account.lines(lambda row: row.doing is HostClass.LOCK)),
        slice=Slice.IDLE_DISPATCH,
        confidence=Confidence.INFERRED,
    )


rule = Rule(
    title="Another thread holds the GIL that the training needs",
    fixes=both(
        "Move that work to a separate process, which has its own lock.",
        """\
spawn = multiprocessing.get_context("spawn")
worker = spawn.Process(target=prepare, args=(queue,), daemon=True)
worker.start()  # not: threading.Thread(target=prepare, ...)""",
    ),
)
