"""What the main thread does, by the code that it was found in: loads data, draws random numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.source import called, calls, dotted, functions, text_of
from whyidle.monitor.core.finding import Place, SourceLine
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.libraries.frames import is_call, plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.account import HOST_WORK, divided
from whyidle.monitor.signals.feeding import Feeding
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.sampling import step_samples

_FETCHES: Final = re.compile(
    r".*(load|read|fetch|batch|sample|data|decode|download).*|__(next|iter|getitem|getitems)__",
    re.IGNORECASE,
)
# There ``random`` is JAX's own module.
_RANDOM_OF_JAX: Final = re.compile(
    r"^\s*(from jax import .*\brandom\b|import jax\.random as random\b)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Activity:
    """A share of the main thread's time, and the lines that it is spent on."""

    share: Measure
    where: tuple[Place, ...]


def loading(job: Recorded, feeding: Feeding) -> Activity | None:
    """Return the time in which it reads, decodes or makes data itself; ``None``: not sampled."""
    if not job.lines:
        return None
    seen = step_samples(job)
    lines = _matching(seen.lines, _reads)
    share, in_libraries = _sum(lines), seen.at_leaves(_reads_in)
    if in_libraries > share:
        # A library was found reading: who called it is known only where the code says so.
        share = in_libraries
        lines = _matching(seen.lines, lambda line: _reads(line) or fetches(line))
    made = _made(job, feeding, {(line.file, line.line) for line in lines})
    share = min(1.0, share + _sum(made))
    return Activity(job.sampled(share), _first(sorted((*lines, *made), key=lambda x: -x.share)))


def _made(
    job: Recorded, feeding: Feeding, but: Container[tuple[str, int]]
) -> tuple[SourceLine, ...]:
    """Return the lines that make what steps compute on, beside some, with their shares."""
    found: dict[CodeLine, float] = {}
    for chain, counts in job.stacks.chains.items():
        line = chain.frames[0] if chain.frames else None
        reads = chain.leaf is not None and _reads_in(chain.leaf)
        if line is None or reads or line[:2] in but or not feeding.feeds(chain):
            continue
        host = sum(n for doing, n in divided(chain, counts) if doing in HOST_WORK)
        found[line] = found.get(line, 0.0) + host
    samples = feeding.samples
    return tuple(SourceLine(*line, n / samples) for line, n in found.items() if n)


def drawing(job: Recorded) -> Activity | None:
    """Return the time on lines that draw random numbers on the host; ``None``: not sampled."""
    # Where PyTorch computes on the CPU, its own numbers are where they are needed.
    torch = job.fact("backend") not in {None, "cpu"}
    if not job.lines:
        return None
    seen = step_samples(job)
    lines = _matching(seen.lines, lambda line: _draws(line, torch=torch))
    # A line may do more with what it draws: of the samples those that found it at nothing else.
    share = _sum(lines)
    if seen.leaves:
        share = min(share, seen.at_leaves(_at_or(lines, Role.RANDOM)))
    share = max(0.0, share - _sleeps(job, lines))
    return Activity(job.sampled(share), _first(lines))


def _sleeps(job: Recorded, lines: Iterable[SourceLine]) -> float:
    """Return the share of the samples that found the thread asleep at these lines."""
    mine = {(line.file, line.line) for line in lines}
    asleep = sum(
        counts.samples * counts.waited / counts.known
        for chain, counts in job.stacks.chains.items()
        if counts.known and chain.frames and tuple(chain.frames[0][:2]) in mine
    )
    return asleep / job.stacks.samples if job.stacks.samples else 0.0


def one_by_one(drawn: Activity) -> bool:
    """Tell whether a function of Python's makes each number by itself, on all of these lines."""
    names = [called(place.file, place.line) for place in drawn.where]
    return bool(names) and all(is_call(Role.RANDOM_NUMBER, some) for some in names)


def _at_or(lines: Iterable[SourceLine], elsewhere: Role) -> Callable[[SourceLine], bool]:
    """Return whether a leaf is one of these lines, or in some library."""
    mine = {(line.file, line.line) for line in lines}
    return lambda leaf: (leaf.file, leaf.line) in mine or plays(elsewhere, leaf)


def _first(lines: Sequence[SourceLine]) -> tuple[Place, ...]:
    return tuple(Place.at(line) for line in lines[:3])


def _sum(lines: Iterable[SourceLine]) -> float:
    return min(1.0, sum(line.share for line in lines))


def _matching(
    lines: Iterable[SourceLine], does: Callable[[SourceLine], bool]
) -> tuple[SourceLine, ...]:
    return tuple(line for line in lines if does(line))


def _reads(line: SourceLine) -> bool:
    names = called(line.file, line.line)
    # Who sleeps in a function that fetches waits for data; elsewhere it has reasons of its own.
    return is_call(Role.FETCH, names) or (is_call(Role.SLEEP, names) and fetches(line))


def fetches(line: SourceLine | Place) -> bool:
    """Tell whether a line is in a function that makes batches, by its name or since it yields."""
    if _FETCHES.fullmatch(line.function):
        return True
    return any(_yields(node) for node in functions(line.file, line.function))


def _yields(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def _reads_in(line: SourceLine | CodeLine) -> bool:
    """Tell whether a library reads or decodes there."""
    return plays(Role.FETCH, line)


def _draws(line: SourceLine, *, torch: bool) -> bool:
    names = called(line.file, line.line)
    drawn = [name for name in names if is_call(Role.RANDOM, (name,))]
    if drawn:
        is_jax = _RANDOM_OF_JAX.search(text_of(line.file) or "")
        return not (is_jax and all(name.startswith("random.") for name in drawn))
    return torch and any(
        is_call(Role.RANDOM_TENSOR, (dotted(call.func),))
        and not any(keyword.arg == "device" for keyword in call.keywords)
        for call in calls(line.file, line.line)
    )
