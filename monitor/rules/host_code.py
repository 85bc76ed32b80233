"""Code of the job's own on the host takes the time.

## What it sees
The account of the host: the lines of the user's at which the main thread was found while it ran
Python or a library's code, or slept, and nothing of a framework. It names the function where most
of that is. What is due only now and then counts whole, the framework's part included: validation,
checkpoints, and what stands behind `if step % 100 == 0`. It stands behind every rule that explains
the same lines: those know a cure. Where the thread waits for threads or processes that it started,
their lines stand behind its own. Where the main thread only waits for requests or orders, the
threads that work are judged, and no gain is named: nothing is known of how many requests there are.
Of a program in which no framework is seen to compute, and no step or GPU is known, a wait counts
only so long as others of the job run, or the disk works for it: for a request, a message, a timer
or a person it may wait as long as it likes.

## Why it costs
What the main thread does between two launches the device waits for, unless it has work ahead.
Python takes some ten nanoseconds for each operation; writing to a file, a sleep or another program
take milliseconds.

## How to fix
Do it less often, do it elsewhere, or do it at once: log and save every hundred steps, give it to a
thread or process of its own, put NumPy in place of a loop of Python, or the framework in place of
both. What the code computes may not be needed in each step at all.

## When it is wrong
The gain is what comes back if these lines cost nothing, which is more than any change of them can
give. A job that has nothing to do on the device but little may be made of such code.

## Documents
Beyond the documents: they speak of frameworks, and this is your own code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from whyidle.monitor.core.finding import (
    Confidence,
    Evidence,
    Fix,
    Found,
    Gain,
    Knows,
    Place,
    Severity,
    Verdict,
)
from whyidle.monitor.core.host_class import HOST_LOOKS, HostClass
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals import serving
from whyidle.monitor.signals.account import HOST_WORK, HostAccount, HostRow, by_line
from whyidle.monitor.signals.asides import is_aside
from whyidle.monitor.signals.cores import RUNNERS, Runner
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.phases import WORDS, Phase
from whyidle.monitor.signals.recorded import Helper
from whyidle.monitor.signals.user_lines import own
from whyidle.monitor.signals.window import Window

# Every program has some code around its steps: less is not worth a person's time.
LEAST: Final = 0.05
MOST_PLACES: Final = 3


def detect(window: Window) -> Verdict:
    """Judge the function of the user's that most of the host's own work is in."""
    account = window.sampled
    account = serving.own(window, account)
    rows = _of_one_place(account)
    surely = sum(row.share for row in rows if _is_own(account, row))
    if surely < LEAST:
        return None
    unclear = sum(row.share for row in rows if not _is_own(account, row))
    if window.serves:
        return _of_server(window, account, rows, surely)
    gain = _gain(window, account, surely, unclear)
    if gain.high < LEAST:
        return None
    helpers = _helpers(window, rows)
    return Found(
        gain=gain,
        evidence=(*_evidence(window, rows), *_of_helpers(window, helpers)),
        where=(*_where(account, rows), *_in_helpers(helpers)),
        slice=Slice.IDLE_UNKNOWN if window.device == "gpu" else None,
        confidence=Confidence.INFERRED,
        title=_title(account, rows, surely),
        knows=Knows.LINES,
        rows=_named(account, rows),
    )


def _of_server(
    window: Window, account: HostAccount, rows: Sequence[HostRow], surely: float
) -> Found:
    """Say what takes the time of requests or orders: nothing is known of how many there are."""
    return Found(
        gain=None,
        evidence=tuple(_evidence(window, rows, "at work")),
        where=_where(account, rows),
        confidence=Confidence.INFERRED,
        severity=Severity.INFO,
        title=_title(account, rows, surely, "the time at work"),
        knows=Knows.LINES,
        fixes={},
    )


def _is_own(account: HostAccount, row: HostRow) -> bool:
    return row.doing in HOST_WORK or is_aside(account, row)


def _place(account: HostAccount, row: HostRow) -> CodeLine | None:
    """Return the line that answers for a row."""
    if row.begins is not None and is_aside(account, row):
        return row.begins
    return row.innermost


def _of_one_place(account: HostAccount) -> list[HostRow]:
    """Return the rows of the user's function, or of the phase, with most of such work."""
    sums: dict[tuple[str, str, Phase], float] = {}
    rows: dict[tuple[str, str, Phase], list[HostRow]] = {}
    for row in account.rows:
        place = _place(account, row)
        own = _is_own(account, row)
        if place is None or not (own or row.doing is HostClass.UNCLEAR):
            continue
        phase = row.phase if is_aside(account, row) else Phase.STEP
        key = place.file, place.function, phase
        rows.setdefault(key, []).append(row)
        sums[key] = sums.get(key, 0.0) + (row.share if own else 0.0)
    return rows[max(sums, key=lambda key: sums[key])] if sums else []


def _title(
    account: HostAccount, rows: Sequence[HostRow], share: float, of: str = "the main thread's time"
) -> str:
    worst = next(row for row in rows if _is_own(account, row))
    takes = f"takes {share:.0%} of {of}"
    if is_aside(account, worst):
        return f"{WORDS[worst.phase].capitalize()} {takes}"
    return f"{worst.frames[0].function}() {takes}: {HOST_LOOKS[worst.doing].words}"


def _gain(window: Window, account: HostAccount, surely: float, unclear: float) -> Gain:
    low, high = (surely - account.error(surely), surely + unclear + account.error(surely + unclear))
    return comes_back(window, low, high, Side.HOST)


def _evidence(
    window: Window, rows: Sequence[HostRow], who: str = "main thread"
) -> tuple[Evidence, ...]:
    sums: dict[HostClass, float] = {}
    for row in rows:
        sums[row.doing] = sums.get(row.doing, 0.0) + row.share
    return tuple(
        Evidence.of(f"{who}: {HOST_LOOKS[doing].words}", window.job.sampled(share))
        for doing, share in sums.items()
    )


def _where(account: HostAccount, rows: Sequence[HostRow]) -> tuple[Place, ...]:
    mine = (row for row in rows if _is_own(account, row))
    return by_line(mine, lambda row: _place(account, row))[:MOST_PLACES]


def _named(account: HostAccount, rows: Sequence[HostRow]) -> frozenset[HostRow]:
    """Return the rows whose lines are named."""
    lines = {(place.file, place.line) for place in _where(account, rows)}
    mine = (row for row in rows if _is_own(account, row))
    return frozenset(
        row for row in mine if (at := _place(account, row)) and (at.file, at.line) in lines
    )


def _helpers(window: Window, rows: Sequence[HostRow]) -> dict[Runner, list[Helper]]:
    """Return whom the thread may wait for there, if that is what it does."""
    waits = sum(row.share for row in rows if row.doing is HostClass.WAIT)
    if 2 * waits < sum(row.share for row in rows):
        return {}
    job, account = window.job, window.core_account
    threads = 0.0 if account is None else account.runs[Runner.THREADS]
    found = {
        Runner.THREADS: [Helper(threads, job.threads)],
        Runner.HELPERS: list(job.helpers),
    }
    return {who: [x for x in some if x.cores >= LEAST] for who, some in found.items()}


def _of_helpers(window: Window, helpers: Mapping[Runner, Sequence[Helper]]) -> Iterator[Evidence]:
    for who, some in helpers.items():
        if some:
            cores = window.job.measure(sum(each.cores for each in some), "cores", "procfs")
            yield Evidence.of(f"{RUNNERS[who]}, meanwhile", cores)


def _in_helpers(helpers: Mapping[Runner, Sequence[Helper]]) -> tuple[Place, ...]:
    """Return the lines of the user's at which these are found most, with shares of their time."""
    shares: dict[CodeLine, float] = {}
    for each in chain.from_iterable(helpers.values()):
        for line in each.lines:
            at = CodeLine(line.file, line.line, line.function)
            shares[at] = max(shares.get(at, 0.0), line.share)
    most = sorted(shares.items(), key=lambda item: -item[1])
    return own(Place(*line, share) for line, share in most)[:MOST_PLACES]


_TEXT: Final = (
    "Do it less often, in a thread or process of its own, or with arrays at once. The gain is what"
    " comes back if it cost nothing."
)
_CODE: Final = """\
if step % 100 == 0:
    background.submit(report, step)  # concurrent.futures.ThreadPoolExecutor(1)"""

rule = Rule(
    title="Code of the job's own on the host takes the time",
    documents=("beyond the documents",),
    fixes={"pytorch": Fix(_TEXT, _CODE), "jax": Fix(_TEXT, _CODE)},
    detect=detect,
)
