"""The JSON answer of ``monitor compare``."""

from __future__ import annotations

from typing import Any, Final

from whyidle.monitor.compare.bootstrap import Interval
from whyidle.monitor.compare.result import Comparison, Fault, Pair, Took
from whyidle.monitor.compare.sides import Side

SCHEMA: Final = 1
_DIGITS: Final = 4
_COMPARED: Final = ("speedup", "speedup_by", "difference_ns", "median_speedup", "mean_speedup")
ONLY_MIDDLE: Final = "only the middle step is known"
NO_P95: Final = "it was not kept, or the steps are too few"


def as_json(found: Comparison) -> dict[str, Any]:
    """Return everything there is to say, as programs are told."""
    unknown: dict[str, str] = {}
    slices, shares = _slices(found, unknown)
    return {
        "schema": SCHEMA,
        "a": _side(found.a),
        "b": _side(found.b),
        "verdict": str(found.verdict),
        # What all times and figures below are of: slices too are nanoseconds of it.
        "per": found.per,
        "why_per": found.why_per,
        **_took(found, unknown),
        **_steps(found, unknown),
        "slices": slices,
        "shares": shares,
        "kernels": [
            {"name": k.name, "ns": _pair(k.ns), "count": _pair(k.count)}
            for k in found.kernels.changed
        ],
        "kernels_are": found.kernels.what,
        "memory": [{"name": each.name, **_pair(each)} for each in found.memory],
        "transfers": [
            {"direction": t.direction, "ns": _pair(t.ns), "bytes": _pair(t.bytes)}
            for t in found.transfers
        ],
        "energy": {"unit": found.energy.unit, **_pair(found.energy)},
        **{
            f"findings_{name}": [_fault(each) for each in some]
            for name, some in (
                ("gone", found.faults.gone),
                ("new", found.faults.new),
                ("kept", found.faults.kept),
                ("unknown", found.faults.unknown),
            )
        },
        "setup": [{"name": each.name, "a": each.a, "b": each.b} for each in found.setup],
        "warnings": list(found.warnings),
        "unknown": unknown
        | _reasons(
            verdict=found.why_uncertain,
            kernels=found.kernels.why_none,
            transfers=found.why_no_transfers,
        ),
    }


def _side(side: Side) -> dict[str, Any]:
    pace = side.pace
    return {
        "target": side.label,
        "kind": side.window.kind,
        "steps": None if pace is None else pace.steps,
        "steps_source": None if pace is None else pace.source,
        "batch": side.batch,
        "budget_source": side.window.budget_source,
        "unknown": _reasons(steps=side.why_no_pace if pace is None else None),
    }


def _took(found: Comparison, unknown: dict[str, str]) -> dict[str, Any]:
    """Return the times of whole steps of each side, also where the other knows none."""
    told: dict[str, dict[str, Any]] = {"step_ns": {}, "mean_step_ns": {}, "p95_step_ns": {}}
    for which, took, side in (("a", found.took_a, found.a), ("b", found.took_b, found.b)):
        figures = _figures(took)
        for name, known in told.items():
            known[which] = figures[name]
            if figures[name] is None:
                why = side.why_no_pace if took is None else _WHY_NOT[name]
                unknown[f"{name}.{which}"] = why
        if took is not None and took.median.why_no_bounds:
            unknown[f"step_ns.{which}.bounds"] = took.median.why_no_bounds
    # What "step_ns" has in its middle; the speed-up may be by another, see "speedup_by".
    return {**told, "step_by": "median"}


_WHY_NOT: Final = {"step_ns": "", "mean_step_ns": ONLY_MIDDLE, "p95_step_ns": NO_P95}


def _figures(took: Took | None) -> dict[str, Any]:
    if took is None:
        return dict.fromkeys(_WHY_NOT)
    return {
        "step_ns": _rounded(took.median),
        "mean_step_ns": None if took.mean is None else _rounded(took.mean),
        "p95_step_ns": None if took.p95 is None else round(took.p95),
    }


def _steps(found: Comparison, unknown: dict[str, str]) -> dict[str, Any]:
    steps = found.steps
    if steps is None:
        unknown |= dict.fromkeys(_COMPARED, found.why_no_steps or "")
        return dict.fromkeys(_COMPARED)
    if steps.speedup.why_no_bounds:
        unknown["bounds"] = steps.speedup.why_no_bounds
    if steps.mean is None:
        unknown["mean_speedup"] = ONLY_MIDDLE
    return {
        "speedup": _rounded(steps.speedup, _DIGITS),
        # Which of the two below it is.
        "speedup_by": steps.by,
        # Of what stands in "per".
        "difference_ns": _rounded(steps.difference),
        "median_speedup": _rounded(steps.median.ratio, _DIGITS),
        "mean_speedup": None if steps.mean is None else _rounded(steps.mean.ratio, _DIGITS),
    }


def _rounded(time: Interval, digits: int | None = None) -> list[float | None]:
    return [None if each is None else round(each, digits) for each in time.told()]


def _slices(found: Comparison, unknown: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return times and shares of each side; a side of which nothing is known is null."""
    times: dict[str, Any] = {}
    shares: dict[str, Any] = {}
    for which in ("a", "b"):
        why = {part.slice: w for part in found.slices if (w := getattr(part.ns, f"why_{which}"))}
        if len(why) == len(found.slices):
            times[which] = shares[which] = None
            unknown[f"slices.{which}"] = next(iter(why.values()), "")
            continue
        unknown |= {f"slices.{which}.{part}": text for part, text in why.items()}
        times[which] = {str(p.slice): _whole(getattr(p.ns, which)) for p in found.slices}
        shares[which] = {
            str(p.slice): _whole(getattr(p.share, which), _DIGITS) for p in found.slices
        }
    return times, shares


def _whole(value: float | None, digits: int | None = None) -> float | None:
    return None if value is None else round(value, digits)


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "a": None if pair.a is None else round(pair.a, _DIGITS),
        "b": None if pair.b is None else round(pair.b, _DIGITS),
        "unknown": _reasons(a=pair.why_a, b=pair.why_b),
    }


def _fault(fault: Fault) -> dict[str, Any]:
    return {
        "rule": fault.rule,
        "title": fault.title,
        "severity": fault.b or fault.a,
        "a": fault.a,
        "b": fault.b,
        "why_unknown": fault.why_unknown,
    }


def _reasons(**reasons: str | None) -> dict[str, str]:
    return {name: why for name, why in reasons.items() if why}
