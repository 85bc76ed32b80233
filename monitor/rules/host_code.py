"""The job's own code on the host takes the time.

## What it sees
Your lines at which the main thread works or sleeps outside the framework. Rules that know a fix for
them come first. Without framework, steps or GPU, a wait counts only while other processes of the
job run or the disk works.

## Why it costs
The device waits for work between two launches.

## How to fix
Log and save every hundred steps; replace Python loops by NumPy, or both by the framework.

## When it is wrong
A job with little device work may consist of such code.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from whyidle.monitor.code.source import calls, dotted, in_loop, nodes_at
from whyidle.monitor.core.amounts import MOST_SHOWN, MOSTLY, NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Knows, Place
from whyidle.monitor.core.host_class import (
    ELSEWHERE,
    HOST_LOOKS,
    HOST_WORK,
    OF_FRAMEWORK,
    HostClass,
)
from whyidle.monitor.libraries.frames import kind_of, package_of
from whyidle.monitor.libraries.table import Kind
from whyidle.monitor.rules import Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.runs.stacks import CodeLine, summed
from whyidle.monitor.signals import serving
from whyidle.monitor.signals.account import HostAccount, HostRow, by_line, ranked
from whyidle.monitor.signals.asides import LONGEST_NAME, is_aside
from whyidle.monitor.signals.cores import RUNNERS, Runner
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.phases import WORDS, Phase
from whyidle.monitor.signals.recorded import Helper
from whyidle.monitor.signals.user_lines import leaves, own

# The first of them, in a title; the second, if it takes so much of what the first takes.
MOST_PACKAGES: Final = 2
MUCH_OF_MOST: Final = 0.25
# What hands an array on as it is.
_VIEWS: Final = frozenset(("array", "asarray"))
LESS: Final = (
    "{} less often, elsewhere, or for many at once. Use a separate process, or whole arrays. The"
    " gain is what you would recover if it cost nothing."
)
# Of a step that a library makes, such as a trainer's, no line is the user's.
IN_LIBRARY: Final = both(
    "Give the library more per call: larger batches, fewer updates. The gain is what you would"
    " recover if its own code cost nothing."
)


def detect(window: Window) -> Verdict:
    """Judge the function of the user's that most of the host's own work is in."""
    job, account = window.job, serving.own(window, window.sampled)
    if job.role is not None:
        # What a part waits for is the work of the others, and no line of its own ends it.
        account = account.without(HostClass.PEER_WAIT)
    framework, loops = _framework_lines(account), _of_the_loop(account)
    rows, mine, surely = _worst(account, framework, loops)
    if loops and surely < Severity.MEDIUM.least:
        # What is spread over the loop is no less than what stands in one place.
        rows, mine, surely = _worst(account, framework, set())
    # Every program has some code around its steps: less is not worth a person's time.
    if surely < Severity.MEDIUM.least:
        return None
    who, of = "main thread", "the main thread's time"
    if window.serves:
        who, of = "at work", "the time at work"
    title = f"{_name(account, mine, loops)} {surely:.0%} of {of}"
    sums: dict[HostClass, float] = {}
    for row in rows:
        sums[row.doing] = sums.get(row.doing, 0.0) + row.share
    found = Found(
        gain=None,
        evidence=tuple(
            Evidence.of(f"{who}: {_words(window, doing, mine)}", job.sampled(share))
            for doing, share in sums.items()
        ),
        where=by_line(mine, lambda row: _place(account, row))[:MOST_SHOWN],
        confidence=Confidence.INFERRED,
        title=title,
        knows=Knows.LINES,
    )
    if window.serves:
        # Nothing is known of how many requests or orders there are.
        return replace(found, severity=Severity.INFO, fixes={})
    most = surely + sum(row.share for row in rows if not _is_own(account, row))
    low, high = surely - account.error(surely), most + account.error(most)
    gain = comes_back(window, low, high, Side.HOST)
    if gain.high < Severity.MEDIUM.least:
        return None
    helpers = _awaited(window, rows)
    cores = {
        f"{RUNNERS[who]}, meanwhile": job.measure(sum(x.cores for x in some), "cores", "procfs")
        for who, some in helpers.items()
        if some
    }
    named = {(place.file, place.line) for place in found.where}
    # A step as a library makes it: that its Python takes a part is no code of the job's.
    is_step = named <= framework and not is_aside(account, mine[0])
    packages = _packages(window, found.where) if is_step else {}
    if (part := sum(packages.values())) > MOSTLY:
        verb = "takes" if len(packages) == 1 else "take"
        title = f"{' and '.join(packages)} {verb} {part * surely:.0%} of {of}"
        found = replace(found, title=title, fixes=IN_LIBRARY)
    elif work := _work(account, mine[0], loops):
        found = replace(found, fixes=both(LESS.format(work), rule.fixes["jax"].code))
    return replace(
        found,
        severity=Severity.LOW if is_step else None,
        gain=gain,
        evidence=(*found.evidence, *Evidence.known(cores)),
        where=(*found.where, *_in_helpers(chain.from_iterable(helpers.values()))),
        slice=Slice.IDLE_UNKNOWN if window.device == "gpu" else None,
        rows=frozenset(
            row for row in mine if (at := _place(account, row)) and (at.file, at.line) in named
        ),
    )


def _words(window: Window, doing: HostClass, rows: Sequence[HostRow]) -> str:
    """Say what the thread does, and in which libraries."""
    words = HOST_LOOKS[doing].words
    if doing is not HostClass.LIBRARY:
        return words
    names = _packages(window, (row.innermost for row in rows if row.innermost is not None))
    return f"{words} ({', '.join(names)})" if names else words


def _packages(window: Window, where: Iterable[Place | CodeLine]) -> dict[str, float]:
    """Return the packages whose own work it is most there, each with its part of such work."""
    lines = dict.fromkeys((place.file, place.line) for place in where)
    found = (each for at in lines for each in leaves(window.job, *at))
    shares = summed(
        (package_of(leaf.file) or "", share)
        for leaf, share in found
        if kind_of(leaf.file) is not Kind.DEVICE
    )
    whole, most = sum(shares.values()), max(shares.values(), default=0.0)
    much = [name for name, share in shares.items() if name and share >= MUCH_OF_MOST * most]
    return {name: shares[name] / whole for name in much[:MOST_PACKAGES]}


def _is_own(account: HostAccount, row: HostRow) -> bool:
    return row.doing in HOST_WORK or is_aside(account, row)


def _place(account: HostAccount, row: HostRow) -> CodeLine | None:
    """Return the line that answers for a row."""
    if row.begins is not None and is_aside(account, row):
        return row.begins
    return row.innermost


def _name(account: HostAccount, mine: Sequence[HostRow], loops: set[tuple[str, str]]) -> str:
    """Return what takes the time: a phase, a function, or lines of the one that has the loop."""
    worst = mine[0]
    if is_aside(account, worst):
        return f"{WORDS[worst.phase].capitalize()} takes"
    function = worst.frames[0].function
    if (worst.frames[0].file, function) not in loops:
        return f"{function}() takes"
    lines = {row.frames[0].line for row in mine}
    if len(lines) == 1:
        name = _called(worst.frames[0])
        return f"{name}() takes" if name else f"Line {min(lines)} takes"
    return f"Lines {min(lines)} to {max(lines)} take"


def _work(account: HostAccount, worst: HostRow, loops: set[tuple[str, str]]) -> str:
    """Return what to do less often, as a sentence begins; empty where that has no one name."""
    if is_aside(account, worst):
        return ""
    at = worst.frames[0]
    if (at.file, at.function) in loops:
        name = _called(at)
        return f"Call {name}()" if name else ""
    # What the framework does below it are steps.
    has_steps = any(
        row.doing in OF_FRAMEWORK
        and any((x.file, x.function) == (at.file, at.function) for x in row.frames)
        for row in account.rows
    )
    return "" if has_steps or not at.function.isidentifier() else f"Do what {at.function}() does"


def _called(line: CodeLine) -> str:
    """Return what a line calls, where a statement is that and calls nothing else of note."""
    here = calls(line.file, line.line)
    whole = [
        node.value
        for node in nodes_at(line.file, line.line)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)
        and node.lineno == line.line
    ]
    others = {dotted(each.func) for each in here if each not in whole}
    if any(not hasattr(builtins, x) and x.rpartition(".")[2] not in _VIEWS for x in others):
        return ""
    names = [dotted(each.func).removeprefix("self.") for each in here if each in whole]
    return names[0] if len(names) == 1 and len(names[0]) <= LONGEST_NAME else ""


def _worst(
    account: HostAccount, framework: set[tuple[str, int]], divided: set[tuple[str, str]]
) -> tuple[list[HostRow], list[HostRow], float]:
    """Return the rows of one place, those that are its own work, and what these take."""
    rows = _of_one_place(account, framework, divided)
    mine = [row for row in rows if _is_own(account, row)]
    return rows, mine, sum(row.share for row in mine)


def _of_one_place(
    account: HostAccount, framework: set[tuple[str, int]], divided: set[tuple[str, str]]
) -> list[HostRow]:
    """Return the rows of the user's function, or phase, with most of such work.

    Of functions that are ``divided`` it is those of lines that stand together.
    """
    sums: dict[tuple[object, ...], float] = {}
    rows: dict[tuple[object, ...], list[HostRow]] = {}
    for row in account.rows:
        place, own = _place(account, row), _is_own(account, row)
        if place is None or not (own or row.doing is HostClass.UNCLEAR):
            continue
        aside = is_aside(account, row)
        key: tuple[object, ...] = place.file, place.function, row.phase if aside else Phase.STEP
        if not aside and (place.file, place.function) in divided:
            # What stands before a line of the framework's, and what stands after it, are two.
            before = sum(file == place.file and line < place.line for file, line in framework)
            key = (*key, before)
        rows.setdefault(key, []).append(row)
        sums[key] = sums.get(key, 0.0) + (row.share if own else 0.0)
    return rows[max(sums, key=lambda key: sums[key])] if sums else []


def _framework_lines(account: HostAccount) -> set[tuple[str, int]]:
    """Return the lines at which the framework takes more than all else."""
    shares: dict[tuple[str, int], float] = {}
    for row in account.rows:
        if row.innermost is not None:
            at = row.innermost.file, row.innermost.line
            sign = -1 if row.doing in HOST_WORK else row.doing in OF_FRAMEWORK
            shares[at] = shares.get(at, 0.0) + sign * row.share
    return {at for at, share in shares.items() if share > 0}


def _of_the_loop(account: HostAccount) -> set[tuple[str, str]]:
    """Return the functions with the loop: nearly all that the thread does is in one, below them."""
    shares: dict[tuple[str, str], float] = {}
    loops: set[tuple[str, str]] = set()
    for row in account.rows:
        for function in {(frame.file, frame.function) for frame in row.frames}:
            shares[function] = shares.get(function, 0.0) + row.share
        loops |= {
            (each.file, each.function) for each in row.frames if in_loop(each.file, each.line)
        }
    whole = sum(row.share for row in account.rows if row.frames)
    return {each for each in loops if shares[each] >= NEARLY_ALL * whole}


def _awaited(window: Window, rows: Sequence[HostRow]) -> dict[Runner, list[Helper]]:
    """Return whom the thread may wait for there, if that is what it does."""
    waits = sum(row.share for row in rows if row.doing in ELSEWHERE)
    if 2 * waits < sum(row.share for row in rows):
        return {}
    job, account = window.job, window.core_account
    threads = 0.0 if account is None else account.runs[Runner.THREADS]
    found = {Runner.THREADS: [Helper(threads, job.threads)], Runner.HELPERS: list(job.helpers)}
    least = Severity.MEDIUM.least
    return {who: [x for x in some if x.cores >= least] for who, some in found.items()}


def _in_helpers(helpers: Iterable[Helper]) -> tuple[Place, ...]:
    """Return the lines of the user's at which these are found most, with shares of their time."""
    shares: dict[CodeLine, float] = {}
    for line in chain.from_iterable(each.lines for each in helpers):
        at = CodeLine(line.file, line.line, line.function)
        shares[at] = max(shares.get(at, 0.0), line.share)
    return own(ranked(shares.items()))


rule = Rule(
    title="The job's own code on the host takes the time",
    fixes=both(
        LESS.format("Do it"),
        """\
if step % 100 == 0:
    # background = concurrent.futures.ThreadPoolExecutor(1)
    background.submit(report, step)""",
    ),
)
