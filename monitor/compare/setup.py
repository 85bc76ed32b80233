"""What differs in the set-up of the two, and what a reader must be warned of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from whyidle.monitor.compare import crowd
from whyidle.monitor.compare.result import Difference, Fault
from whyidle.monitor.compare.sides import Side
from whyidle.monitor.core.contracts.trace import DeviceJson
from whyidle.monitor.core.finding import FRAMEWORKS
from whyidle.monitor.signals.window import Window

# Which of them make a comparison of the code unfair.
UNFAIR: Final = ("framework", "version", "device", "GPU", "devices", "parameters")
_FACTS: Final = {
    "version": "version",
    "parameters": "parameters",
    "precision": "autocast",
}


def differences(a: Side, b: Side) -> tuple[Difference, ...]:
    """Return what both know and is not the same."""
    return tuple(
        Difference(name, one, two)
        for name, ask in _ASKED.items()
        if (one := ask(a)) is not None and (two := ask(b)) is not None and one != two
    )


def warnings(
    a: Side, b: Side, found: Iterable[Difference], of_neighbours: Iterable[Fault] = ()
) -> tuple[str, ...]:
    """Return what makes the comparison unfair, or less sure than it looks."""
    crowded = (
        f"Other programs took cores from {'B' if f.a is None else 'A'}." for f in of_neighbours
    )
    return tuple(dict.fromkeys((*_warnings(a, b, tuple(found)), *crowded)))


def _warnings(a: Side, b: Side, found: tuple[Difference, ...]) -> Iterator[str]:
    for each in found:
        if each.name in UNFAIR:
            yield f"Not the same {each.name}: {each.a} and {each.b}."
    if a.pace and b.pace and a.pace.by != b.pace.by:
        yield f"Steps of {a.label} are {a.pace.source}, of {b.label} {b.pace.source}."
    elif a.pace and b.pace and a.pace.by == "counted" and a.pace.source != b.pace.source:
        yield f"What a step is may differ: {a.pace.source}, and {b.pace.source}."
    yield from _waits(a, b)
    sources = [_kind(side.window.budget_source) for side in (a, b)]
    if None not in sources and sources[0] != sources[1]:
        yield f"Where the time goes is by {sources[0]} of A, and by {sources[1]} of B."
    for side in (a, b):
        yield from _of_one(side)


def _of_one(side: Side) -> Iterator[str]:
    """Yield what must be known of one side alone."""
    is_run = side.window.kind == "run"
    if is_run and not side.window.is_over and side.window.job.age_s:
        yield f"{side.label} is still being recorded."
    if is_run and side.pace is not None and side.pace.by == "trace":
        yield (
            f"Nothing counts the steps of {side.label}: these were seen while a trace was taken,"
            " which slows them. To have them counted: whyidle.step()"
        )
    yield from (f"{side.label}: {said}" for said in _of_trace(side.window))


def _of_trace(window: Window) -> Sequence[str]:
    """Return the warnings of the trace, also of a file that nothing could be read from."""
    if window.kind == "file" and window.traces:
        return list(window.traces[0].answer.get("warnings", ()))
    return window.warnings


def _waits(a: Side, b: Side) -> Iterator[str]:
    """Yield it where one of them had to wait for cores, and the other had not, or less."""
    if (both := crowd.waits(a, b)) is not None:
        yield (
            f"The main thread waited {both[0]:.0%} of the time for a core in A, and {both[1]:.0%}"
            " in B: what else ran on the machine may be a part of the difference."
        )


def _kind(source: str | None) -> str | None:
    if source is None:
        return None
    return "an estimate" if source == "estimate" else "a trace"


def _fact(name: str) -> Callable[[Side], str | None]:
    def ask(side: Side) -> str | None:
        value = side.window.fact(name)
        return None if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    return ask


def _framework(side: Side) -> str | None:
    return ", ".join(FRAMEWORKS[each] for each in side.window.frameworks) or None


def _device(side: Side) -> str | None:
    found = side.window.device
    return None if found is None else found.upper()


def _models(side: Side) -> list[str]:
    names = [gpu.name for gpu in side.window.job.gpus if gpu.owned and gpu.name]
    return names or [model for d in _devices(side.window) if (model := d.get("model"))]


def _devices(window: Window) -> Sequence[DeviceJson]:
    return () if window.trace is None else window.trace.devices


def _gpu(side: Side) -> str | None:
    return ", ".join(sorted(Counter(_models(side)))) or None


def _count(side: Side) -> str | None:
    owned = sum(gpu.owned for gpu in side.window.job.gpus)
    found = owned or len(_devices(side.window))
    return str(found) if found else None


def _batch(side: Side) -> str | None:
    return None if side.batch is None else f"{side.batch:g}"


_ASKED: Final[dict[str, Callable[[Side], str | None]]] = {
    "framework": _framework,
    **{name: _fact(fact) for name, fact in _FACTS.items()},
    "device": _device,
    "GPU": _gpu,
    "devices": _count,
    "batch": _batch,
}
