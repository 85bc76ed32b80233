"""The JSON answer of ``monitor compare``."""

from __future__ import annotations

from typing import Any, Final

from whyidle.monitor.compare.bootstrap import Compared, Interval
from whyidle.monitor.compare.result import Comparison, Fault, Pair
from whyidle.monitor.compare.sides import Side

SCHEMA: Final = 1
_DIGITS: Final = 4
_TOLD: Final = (
    "step_ns", "speedup", "speedup_by", "difference_ns", "median_speedup", "mean_step_ns",
    "mean_speedup",
)  # fmt: skip


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
        | _reasons(kernels=found.kernels.why_none, transfers=found.why_no_transfers),
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


def _steps(found: Comparison, unknown: dict[str, str]) -> dict[str, Any]:
    steps = found.steps
    if steps is None:
        unknown |= dict.fromkeys(_TOLD, found.why_no_steps or "")
        nobody = {"a": None, "b": None}
        return {name: nobody if name.endswith("step_ns") else None for name in _TOLD}
    if steps.speedup.why_no_bounds:
        unknown["bounds"] = steps.speedup.why_no_bounds
    mean = steps.mean
    if mean is None:
        unknown |= dict.fromkeys(("mean_step_ns", "mean_speedup"), "only the middle step is known")
    return {
        "step_ns": _times(found, steps.median, unknown),
        "speedup": _rounded(steps.speedup, _DIGITS),
        # Which of the two below it is.
        "speedup_by": steps.by,
        "difference_ns": _rounded(steps.difference),
        "median_speedup": _rounded(steps.median.ratio, _DIGITS),
        "mean_step_ns": _times(found, mean, unknown),
        "mean_speedup": None if mean is None else _rounded(mean.ratio, _DIGITS),
    }


def _times(found: Comparison, compared: Compared | None, unknown: dict[str, str]) -> dict[str, Any]:
    """Return the times of whole steps, also where the work is counted in samples."""
    told: dict[str, Any] = {"a": None, "b": None}
    for which, side in (("a", found.a), ("b", found.b)):
        if side.pace is None:
            unknown[f"step_ns.{which}"] = side.why_no_pace
        elif compared is not None and found.a.pace and found.b.pace:
            scale = (side.batch or 1.0) if found.per == "sample" else 1.0
            told[which] = _rounded(getattr(compared, which), scale=scale)
        else:
            told[which] = [None, round(side.pace.middle_ns), None] if compared else None
    return told


def _rounded(time: Interval, digits: int | None = None, scale: float = 1.0) -> list[float | None]:
    return [None if each is None else round(each * scale, digits) for each in time.told()]


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
