"""Lines of code that belong to a fault: the user's own, and only where something ties them to it.

Where the main thread was found says what a job does, and not what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from whyidle.monitor.code.kept import adding, registers
from whyidle.monitor.code.source import called, function_at, goes_through, text_of
from whyidle.monitor.core.amounts import MOST_SHOWN
from whyidle.monitor.core.finding import Place, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.window import Window

# Words in quotes and comments are no code of Julia's.
_NO_CODE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|#.*')
# Methods of a data set or a loader, and what makes a batch of samples.
_LOADS: Final = re.compile(r"__(next|iter|getitem|getitems)__|.*collate.*")
# Such a loop does not fetch anything.
_COUNTS: Final = re.compile(r"(itertools\.)?(range|count)")


def own(places: Iterable[Place], most: int | None = MOST_SHOWN) -> tuple[Place, ...]:
    """Leave out the lines of frameworks, of installed packages, and of generated code."""
    return tuple(place for place in places if is_users(place.file))[:most]


def of_slice(
    window: Window, part: Slice, calls: re.Pattern[str] | None = None
) -> tuple[Place, ...]:
    """Return the user's lines that a trace gives to a slice, of those that make such calls."""
    places = () if window.trace is None else window.trace.places(part)
    return own(
        Place(p["file"], p["line"] or 0, p["function"], p["share"])
        for p in places
        if calls is None or any(calls.search(call["name"]) for call in p.get("calls", ()))
    )


def seen(job: Recorded, does: Callable[[SourceLine], bool]) -> tuple[Place, ...]:
    """Return the lines that the main thread was found at, of those that do something."""
    return own(Place.at(x) for x in job.lines if does(x))


def at(job: Recorded, places: Iterable[Place]) -> tuple[Place, ...]:
    """Return places as the main thread was found there; as they are where it was not."""
    places = tuple(places)
    wanted = {(place.file, place.line) for place in places}
    return seen(job, lambda line: (line.file, line.line) in wanted) or own(places)


def leaves(job: Recorded, file: str, line: int) -> list[tuple[CodeLine, float]]:
    """Return the lines of libraries that a line of the user's was found in, and how much."""
    if not job.stacks.samples:
        return []
    return [
        (chain.leaf, counts.samples / job.stacks.samples)
        for chain, counts in job.stacks.chains.items()
        if chain.user is not None
        and chain.user[:2] == (file, line)
        and chain.leaf is not None
        and chain.leaf != chain.user
    ]


def of_main(job: Recorded, places: Iterable[Place]) -> tuple[Place, ...]:
    """Return places with their shares of the main thread's time; none where it never was."""
    main = {(line.file, line.line): line.share for line in job.lines}
    return tuple(replace(place, share=main.get((place.file, place.line))) for place in places)


def files(job: Recorded) -> tuple[str, ...]:
    """Return the user's files that the main thread was found in, the innermost first.

    Those from which these were called come last: most options are set where a program begins.
    """
    outer = (line.file for chain in job.stacks.chains for line in chain.frames)
    return tuple(filter(is_users, dict.fromkeys((*(line.file for line in job.lines), *outer))))


def asking(
    job: Recorded,
    pattern: re.Pattern[str],
    most: int | None = MOST_SHOWN,
    *,
    if_: Callable[[re.Match[str]], bool] = bool,
) -> tuple[Place, ...]:
    """Return the lines that ask for something, in the files that the main thread was found in."""
    found = (
        Place(file, number, function_at(file, number))
        for file in files(job)
        for number, text in enumerate((text_of(file) or "").splitlines(), 1)
        if (asked := pattern.search(text.partition("#")[0])) and if_(asked)
    )
    return own(found, most)


def making(job: Recorded, kinds: Iterable[str]) -> tuple[Place, ...]:
    """Return the lines that make things of these classes; of functions it is in first."""
    pattern = re.compile("|".join(rf"\b{re.escape(kind)}\(" for kind in kinds))
    found = asking(job, pattern, None)
    within = {(line.file, line.function) for chain in job.stacks.chains for line in chain.frames}
    return own(sorted(found, key=lambda x: (x.file, x.function) not in within), MOST_SHOWN)


def fetches(line: SourceLine) -> bool:
    """Tell whether a line is a loader's, asks one for a batch, or goes through one."""
    if _LOADS.fullmatch(line.function) or "next" in called(line.file, line.line):
        return True
    return any(not _COUNTS.fullmatch(name) for name in goes_through(line.file, line.line))


def kept(job: Recorded) -> tuple[Place, ...]:
    """Return the lines that add to what was there before a loop, where the main thread is in it."""
    where = dict.fromkeys((line.file, line.function) for line in job.lines)
    found = (Place(file, number, name) for file, name in where for number in adding(file, name))
    return own(dict.fromkeys(found))


def registering(job: Recorded) -> tuple[Place, ...]:
    """Return the lines at which the main thread was found while it registered what stays."""
    some = (line for line in job.lines if registers(line.file, line.line))
    return own(Place(line.file, line.line, line.function) for line in some)


# Julia: no stack of it is sampled, so its lines have no shares ------------------------------
def is_julia(window: Window) -> bool:
    """Tell whether the job runs Julia, and nothing else that we know."""
    return window.frameworks == ("flux",)


def in_script(window: Window, like: re.Pattern[str]) -> tuple[Place, ...]:
    """Return the lines of the job's own script with such code; files that it includes are not read.

    They may be called in every step, or once: nothing but the text is known.
    """
    script = window.fact("script")
    text = text_of(script) if isinstance(script, str) else None
    if text is None or not isinstance(script, str):
        return ()
    code = [_NO_CODE.sub("", line) for line in text.splitlines()]
    found = [number for number, line in enumerate(code, 1) if like.search(line)]
    return tuple(Place(script, number, "the script") for number in found[:MOST_SHOWN])
