"""The JSON answer of ``monitor compare``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import asdict

from whyidle.monitor.compare.bootstrap import Interval
from whyidle.monitor.compare.result import Comparison, Fault, Pair
from whyidle.monitor.compare.sides import Side
from whyidle.monitor.core.contracts.comparison import (
    ComparisonJson,
    Ends,
    EnergyPairJson,
    FaultJson,
    KernelPairJson,
    NamedPairJson,
    PairJson,
    SettingJson,
    SideJson,
    TransferPairJson,
)
from whyidle.monitor.core.contracts.trace import Unknown
from whyidle.monitor.diagnosis.costs import overhead

_DIGITS: Final = 4
_COMPARED: Final = ("speedup", "speedup_by", "difference_ns", "median_speedup", "mean_speedup")
_BySide = dict[str, dict[str, float | None] | None]
ONLY_MIDDLE: Final = "only the middle step is known"
NO_P95: Final = "it was not kept, or the steps are too few"
# Of a side whose steps are known: why one of their times is not.
_WHY_NOT: Final = {"step_ns": "", "mean_step_ns": ONLY_MIDDLE, "p95_step_ns": NO_P95}


def as_json(found: Comparison) -> ComparisonJson:
    """Return the answer."""
    unknown: Unknown = {}
    slices, shares = _slices(found, unknown)
    return ComparisonJson(
        a=_side(found.a),
        b=_side(found.b),
        verdict=str(found.verdict),
        per=found.per,
        why_per=found.why_per,
        **_times(found, unknown),
        **_speed(found, unknown),
        slices=slices,
        shares=shares,
        kernels=[
            KernelPairJson(name=k.name, ns=_pair(k.ns), count=_pair(k.count))
            for k in found.kernels.changed
        ],
        kernels_are=found.kernels.what,
        memory=[NamedPairJson(name=each.name, **asdict(_pair(each))) for each in found.memory],
        transfers=[
            TransferPairJson(direction=t.direction, ns=_pair(t.ns), bytes=_pair(t.bytes))
            for t in found.transfers
        ],
        energy=EnergyPairJson(unit=found.energy.unit, **asdict(_pair(found.energy))),
        findings_gone=_faults(found.faults.gone),
        findings_new=_faults(found.faults.new),
        findings_kept=_faults(found.faults.kept),
        findings_unknown=_faults(found.faults.unknown),
        setup=[SettingJson(name=each.name, a=each.a, b=each.b) for each in found.setup],
        warnings=list(found.warnings),
        unknown=unknown
        | _reasons(
            verdict=found.why_uncertain,
            kernels=found.kernels.why_none,
            transfers=found.why_no_transfers,
        ),
    )


def _side(side: Side) -> SideJson:
    pace = side.pace
    return SideJson(
        target=side.label,
        kind=side.window.kind,
        steps=None if pace is None else pace.steps,
        steps_source=None if pace is None else pace.source,
        batch=side.batch,
        budget_source=side.window.budget_source,
        overhead=overhead(side.window),
        unknown=_reasons(steps=side.why_no_pace if pace is None else None),
    )


def _times(found: Comparison, unknown: Unknown) -> dict[str, Any]:
    """Return how long the steps of each side took, also where the other side knows none."""
    times: dict[str, Any] = {name: {} for name in _WHY_NOT}
    for which, took, side in (("a", found.took_a, found.a), ("b", found.took_b, found.b)):
        mean, p95 = (None, None) if took is None else (took.mean, took.p95)
        times["step_ns"][which] = None if took is None else _rounded(took.median)
        times["mean_step_ns"][which] = None if mean is None else _rounded(mean)
        times["p95_step_ns"][which] = None if p95 is None else round(p95)
        for name, why in _WHY_NOT.items():
            if times[name][which] is None:
                unknown[f"{name}.{which}"] = side.why_no_pace if took is None else why
        if took is not None and took.median.why_no_bounds:
            unknown[f"step_ns.{which}.bounds"] = took.median.why_no_bounds
    return times


def _speed(found: Comparison, unknown: Unknown) -> dict[str, Any]:
    steps = found.steps
    if steps is None:
        unknown |= dict.fromkeys(_COMPARED, found.why_no_steps or "")
        return {}
    if steps.speedup.why_no_bounds:
        unknown["bounds"] = steps.speedup.why_no_bounds
    if steps.mean is None:
        unknown["mean_speedup"] = ONLY_MIDDLE
    return {
        "speedup": _rounded(steps.speedup, _DIGITS),
        "speedup_by": steps.by,
        "difference_ns": _rounded(steps.difference),
        "median_speedup": _rounded(steps.median.ratio, _DIGITS),
        "mean_speedup": None if steps.mean is None else _rounded(steps.mean.ratio, _DIGITS),
    }


def _rounded(time: Interval, digits: int | None = None) -> Ends:
    return [None if each is None else round(each, digits) for each in time.ends]


def _slices(found: Comparison, unknown: Unknown) -> tuple[_BySide, _BySide]:
    """Return times and shares of each side; a side of which nothing is known is null."""
    times: _BySide = {}
    shares: _BySide = {}
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


def _pair(pair: Pair) -> PairJson:
    return PairJson(
        a=None if pair.a is None else round(pair.a, _DIGITS),
        b=None if pair.b is None else round(pair.b, _DIGITS),
        unknown=_reasons(a=pair.why_a, b=pair.why_b),
    )


def _faults(faults: Iterable[Fault]) -> list[FaultJson]:
    return [
        FaultJson(
            rule=fault.rule,
            title=fault.title,
            severity=fault.b or fault.a,
            a=fault.a,
            b=fault.b,
            why_unknown=fault.why_unknown,
        )
        for fault in faults
    ]


def _reasons(**reasons: str | None) -> Unknown:
    return {name: why for name, why in reasons.items() if why}
