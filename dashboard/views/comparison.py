"""Two runs side by side: what ``monitor compare`` says, and what charts need besides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from whyidle.dashboard import theme
from whyidle.dashboard.views.findings import Range
from whyidle.monitor import compare
from whyidle.monitor.compare import Comparison, Side, Verdict, answer
from whyidle.monitor.compare.bootstrap import Interval
from whyidle.monitor.compare.pace import BETWEEN_RUNS, settled
from whyidle.monitor.compare.result import Pair, Took
from whyidle.monitor.core.contracts.comparison import ComparisonJson
from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.demo.outcome import MATTERS, promised
from whyidle.monitor.demo.printed import is_inside
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render import comparison as terminal
from whyidle.monitor.render import numbers
from whyidle.monitor.render.budget import VISIBLE, clock
from whyidle.monitor.render.kernel_names import short_name
from whyidle.monitor.render.verdict import verdict

Better = Literal["better", "worse", "same", "unknown"]
_JUDGED: Final[dict[Verdict, Better]] = {
    Verdict.FASTER: "better", Verdict.SLOWER: "worse", Verdict.SAME: "same",
    Verdict.UNCERTAIN: "unknown", Verdict.UNKNOWN: "unknown",
}  # fmt: skip
_COLOURS: Final[dict[Better, str]] = {"better": theme.BETTER, "worse": theme.WORSE}
NS: Final = 1e-9
NOTHING_GONE: Final = "no finding of A that costs time is gone in B"
OTHER_BATCH: Final = "it is per sample, and the samples per step are not known on both sides"
ONLY_MIDDLE: Final = "only its median step is known"


@dataclass(frozen=True, slots=True)
class Change:
    """A figure on both sides as text, and whether the change is good."""

    name: str
    a: str
    b: str
    change: str
    is_: Better
    # Seconds, for a chart.
    seconds: float | None = None
    slice: Slice | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of step times on one side: seconds, and how many steps each stands for."""

    name: str
    values: tuple[float, ...]
    weights: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    of: str


@dataclass(frozen=True, slots=True)
class Promise:
    """What the findings that are gone had predicted, beside what was measured."""

    rules: tuple[str, ...]
    ranges: tuple[Range, ...]
    words: str
    is_as_predicted: bool | None


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs side by side."""

    answer: ComparisonJson
    names: tuple[str, str]
    verdict: str
    is_: Better
    about: tuple[str, ...]
    # Seconds by slice of a piece of work, or why they are unknown.
    budgets: Mapping[str, Mapping[Slice, float] | str]
    slices: tuple[Change, ...]
    steps: tuple[Distribution, ...]
    why_no_steps: str | None
    promise: Promise
    kernels: tuple[Change, ...]
    why_no_kernels: str | None
    figures: tuple[Change, ...]
    why_no_energy: str | None

    @property
    def whole(self) -> float:
        """The time of the longer side, in seconds."""
        known = [each for each in self.budgets.values() if not isinstance(each, str)]
        return max((sum(each.values()) for each in known), default=0.0)


def compared(store: Path, a: int, b: int) -> Compared:
    """Compare two recordings."""
    sides = [compare.of_run(store, str(each)) for each in (a, b)]
    return of(compare.compare(*sides))


def of(found: Comparison) -> Compared:
    """Return a comparison as a page shows it."""
    steps = [_distribution(found, which) for which in ("a", "b")]
    return Compared(
        answer=answer.as_json(found),
        names=(f"A: {found.a.label}", f"B: {found.b.label}"),
        verdict=verdict(found),
        is_=_JUDGED[found.verdict],
        about=tuple(_about(found)),
        budgets={
            "A": _budget(found, "a"),
            "B": _budget(found, "b"),
        },
        slices=tuple(_slices(found)),
        steps=tuple(each for each in steps if isinstance(each, Distribution)),
        why_no_steps="; ".join(each for each in steps if isinstance(each, str)) or None,
        promise=promise(found),
        kernels=tuple(_kernels(found)),
        why_no_kernels=terminal.lacking(found) if found.kernels.why_none else None,
        figures=tuple(_figures(found)),
        why_no_energy=terminal.no_energy(found.energy),
    )


def _about(found: Comparison) -> list[str]:
    """Return what both sides are, and why the verdict is no firmer: a line per side."""
    lines: list[str] = []
    for text in terminal.about(found):
        if text.startswith(" ") and lines:
            lines[-1] += f"; {text.strip()}"
        else:
            lines.append(text)
    return lines


# Where the time goes -----------------------------------------------------------------------------
def _budget(found: Comparison, which: Literal["a", "b"]) -> Mapping[Slice, float] | str:
    pairs = {part.slice: part.ns for part in found.slices}
    known = {part: getattr(pair, which) for part, pair in pairs.items()}
    if all(ns is None for ns in known.values()):
        return next((w for p in pairs.values() if (w := getattr(p, f"why_{which}"))), "")
    return {part: ns * NS for part, ns in known.items() if ns}


def _slices(found: Comparison) -> Iterable[Change]:
    """Yield the slices that matter on either side, the largest change first."""
    whole = max(sum(getattr(p.ns, which) or 0.0 for p in found.slices) for which in ("a", "b"))
    shown = [p for p in found.slices if max(p.share.a or 0, p.share.b or 0) >= VISIBLE]
    for part in sorted(shown, key=lambda p: -abs(p.ns.change or 0.0)):
        by = part.ns.change
        yield Change(
            LOOKS[part.slice].words,
            terminal.one(part.ns.a, clock),
            terminal.one(part.ns.b, clock),
            terminal.signed(part.ns, clock),
            _better(by, whole),
            None if by is None else by * NS,
            part.slice,
        )


def _better(by: float | None, whole: float | None) -> Better:
    """Return whether a change counts: for everything compared here, less is better."""
    if by is None or whole is None:
        return "unknown"
    if abs(by) < BETWEEN_RUNS * whole or not by:
        return "same"
    return "better" if by < 0 else "worse"


# Steps -------------------------------------------------------------------------------------------
def _distribution(found: Comparison, which: Literal["a", "b"]) -> Distribution | str:
    side: Side = getattr(found, which)
    took: Took | None = getattr(found, f"took_{which}")
    if side.pace is None or took is None:
        return f"{side.label}: {side.why_no_pace}"
    known = settled(side.pace)
    if not known:
        return f"{side.label}: {ONLY_MIDDLE}"
    work = side.batch if found.per == "sample" and side.batch else 1.0
    interval: Interval = took.mean or took.median
    return Distribution(
        f"{which.upper()}: {side.label}",
        tuple(each.ns / each.steps / work * NS for each in known),
        tuple(float(each.steps) for each in known),
        interval.middle / work * NS,
        None if interval.low is None else interval.low / work * NS,
        None if interval.high is None else interval.high / work * NS,
        _of_what(sum(each.steps for each in known), len(known)),
    )


def _of_what(steps: int, stretches: int) -> str:
    return f"{steps:,} steps" if steps == stretches else f"{steps:,} steps in {stretches} intervals"


# Predicted and measured --------------------------------------------------------------------------
def promise(found: Comparison) -> Promise:
    """Compare what was predicted for the faults of A that are gone with what was measured."""
    gone = _gone(found)
    diagnosis = as_json(diagnose(found.a.window))
    timed = [each for each in diagnosis.findings if each.rule in gone and each.speedup]
    rules = tuple(each.rule for each in timed)
    predicted = promised(timed)
    if predicted is None:
        return Promise(rules, (), f"Nothing was predicted: {NOTHING_GONE}.", None)
    said = f"{predicted[0]:.2f}x to {predicted[1]:.2f}x faster predicted for {', '.join(rules)}"
    ranges = (Range("predicted", *predicted, theme.GREY),)
    if (why := _why_not_measured(found, timed)) is not None:
        return Promise(rules, ranges, f"{said}; the measured gain is unknown: {why}.", None)
    return _beside(found, rules, predicted, said)


def _gone(found: Comparison) -> set[str]:
    """Return the rules whose finding mattered in A, and no longer does in B."""
    some = (*found.faults.gone, *found.faults.kept)
    return {each.rule for each in some if each.a in MATTERS and each.b not in MATTERS}


def _why_not_measured(found: Comparison, timed: Sequence[FindingJson]) -> str | None:
    if found.steps is None:
        return found.why_no_steps or "no step could be told apart"
    by_samples = any(each.paced_by == "samples" for each in timed)
    if by_samples and found.per != "sample" and None in (found.a.batch, found.b.batch):
        return OTHER_BATCH
    return None


def _beside(
    found: Comparison, rules: tuple[str, ...], predicted: tuple[float, float], said: str
) -> Promise:
    measured = found.speedup
    assert measured is not None  # noqa: S101  there are steps
    inside = is_inside(predicted, measured.middle)
    low, high = (measured.middle if x is None else x for x in (measured.low, measured.high))
    colour = _COLOURS.get(_JUDGED[found.verdict], theme.MIST)
    ranges = (
        Range("predicted", *predicted, theme.GREY),
        Range("measured", low, high, colour, measured.middle),
    )
    less_more = "less" if measured.middle < predicted[0] else "more"
    beside = "as predicted" if inside else f"{less_more} than predicted"
    sure = "" if found.verdict is not Verdict.UNCERTAIN else ", not certain"
    words = f"{said}; measured {measured.middle:.2f}x: {beside}{sure}."
    return Promise(rules, ranges, words, inside)


# What ran, and what it took ----------------------------------------------------------------------
def _kernels(found: Comparison) -> Iterable[Change]:
    whole = None if found.took_a is None else found.took_a.median.middle
    for kernel in found.kernels.changed:
        yield _change(short_name(kernel.name), kernel.ns, clock, whole)


def _figures(found: Comparison) -> Iterable[Change]:
    """Yield copies, memory and energy, as far as they are known."""
    for transfer in found.transfers:
        yield _change(f"copies {transfer.direction}", transfer.ns, clock)
        yield _change(f"bytes {transfer.direction}", transfer.bytes, numbers.size)
    for pair in found.memory:
        if (pair.a, pair.b) != (None, None):
            yield _change(pair.name, pair, numbers.size)
    if (found.energy.a, found.energy.b) != (None, None):
        unit = found.energy.unit
        yield _change("energy", found.energy, lambda joules: f"{joules:,.3g} {unit}")


def _change(
    name: str, pair: Pair, written: Callable[[float], str], whole: float | None = None
) -> Change:
    return Change(
        name,
        terminal.one(pair.a, written),
        terminal.one(pair.b, written),
        terminal.signed(pair, written),
        _better(pair.change, pair.a if whole is None else whole),
    )
