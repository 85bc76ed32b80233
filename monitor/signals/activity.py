"""What the main thread does, by the code that it was found in: loads data, draws random numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.source import (
    called,
    calls,
    dotted,
    function_at,
    functions,
    is_generator,
    text_of,
)
from whyidle.monitor.core.amounts import MOST_SHOWN
from whyidle.monitor.core.finding import Place, SourceLine
from whyidle.monitor.core.host_class import HOST_WORK
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.libraries.frames import is_call, plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import summed
from whyidle.monitor.signals.account import divided
from whyidle.monitor.signals.feeding import Feeding
from whyidle.monitor.signals.phases import Phase, phase_of
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
    # What an environment answers, in whatever process it is, is no batch.
    played = {
        chain.user[:2]
        for chain in job.stacks.chains
        if chain.user is not None and phase_of(chain).phase is Phase.ENVIRONMENT
    }
    mine = [line for line in seen.lines if (line.file, line.line) not in played]
    lines = [line for line in mine if _reads(line)]
    share = min(1.0, sum(line.share for line in lines))
    in_libraries = seen.at_leaves(lambda leaf: plays(Role.FETCH, leaf))
    if in_libraries > share:
        # A library was found reading: who called it is known only where the code says so.
        share = in_libraries
        lines = [line for line in mine if _reads(line) or fetches(line)]
    # And the lines beside these that make what the steps compute on.
    known = {(line.file, line.line) for line in lines}
    made = summed(
        (line, n)
        for chain, counts in job.stacks.chains.items()
        if (line := chain.user) is not None
        and line[:2] not in known
        and not plays(Role.FETCH, chain.leaf)
        and feeding.feeds(chain)
        for doing, n in divided(chain, counts)
        if doing in HOST_WORK and n
    )
    lines += [SourceLine(*line, n / feeding.samples) for line, n in made.items()]
    share = min(1.0, share + min(1.0, sum(made.values()) / feeding.samples))
    lines.sort(key=lambda line: -line.share)
    return Activity(job.sampled(share), tuple(map(Place.at, lines[:MOST_SHOWN])))


def drawing(job: Recorded) -> Activity | None:
    """Return the time on lines that draw random numbers on the host; ``None``: not sampled."""
    # Where PyTorch computes on the CPU, its own numbers are where they are needed.
    torch = job.fact("backend") not in {None, "cpu"}
    if not job.lines:
        return None
    seen = step_samples(job)
    lines = [line for line in seen.lines if _draws(line, torch=torch)]
    places = {(line.file, line.line) for line in lines}
    # A line may do more with what it draws: of the samples those that found it at nothing else.
    share = min(1.0, sum(line.share for line in lines))
    if seen.leaves:
        at = seen.at_leaves(lambda x: (x.file, x.line) in places or plays(Role.RANDOM, x))
        share = min(share, at)
    # Who sleeps there draws nothing meanwhile.
    asleep = sum(
        counts.of(counts.waited)
        for chain, counts in job.stacks.chains.items()
        if chain.user is not None and chain.user[:2] in places
    )
    share = max(0.0, share - (asleep / job.stacks.samples if job.stacks.samples else 0.0))
    return Activity(job.sampled(share), tuple(map(Place.at, lines[:MOST_SHOWN])))


def one_by_one(drawn: Activity) -> bool:
    """Tell whether a function of Python's makes each number by itself, on all of these lines."""
    names = [called(place.file, place.line) for place in drawn.where]
    return bool(names) and all(is_call(Role.RANDOM_NUMBER, some) for some in names)


def _reads(line: SourceLine) -> bool:
    names = called(line.file, line.line)
    # Who sleeps in a function that fetches waits for data; elsewhere it has reasons of its own.
    return is_call(Role.FETCH, names) or (is_call(Role.SLEEP, names) and fetches(line))


def fetches(line: SourceLine | Place) -> bool:
    """Tell whether a line is in a function that makes batches, by its name or since it yields."""
    # What a comprehension does is done by the function that it stands in.
    inner = line.function.startswith("<")
    name = function_at(line.file, line.line) if inner else line.function
    return bool(_FETCHES.fullmatch(name)) or any(map(is_generator, functions(line.file, name)))


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
