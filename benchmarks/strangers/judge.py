"""What is said of a program, against what profilers say of it and what each advice gave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from benchmarks.faultbench.judge import LOUD, NEAR
from benchmarks.faultbench.recordings import opened
from benchmarks.strangers.cases import Case
from benchmarks.strangers.checkout import NotAtHand, written
from whyidle.monitor.core import metrics as m
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.signals.opening import of_run
from whyidle.monitor.store.reader import Reader
from whyidle.monitor.store.records import Run

# A change by less is none.
NOTHING: Final = 0.02
# What is worth making, and is missed where nothing says it.
WORTH: Final = 1.15
STEPS_WITHIN: Final = 0.05
# Of which the weight is kept; it watches for longer.
SECONDS: Final = 20


def judged(
    case: Case, recording: Path, measured: Mapping[str, Any], mirrors: Path | None
) -> dict[str, Any]:
    """Return the row of one case."""
    try:
        # Rules look at the source where it lies; without it they know what was recorded.
        written(case, mirrors)
        has_source = True
    except NotAtHand:
        has_source = False
    with opened(recording) as (store, seen):
        window = of_run(store, "last")
        answer = to_builtins(diagnose.as_json(diagnose.diagnose(window)))
        said = window.job.mean(m.JOB_STEPS)
        run = Reader.open(store).runs()[0]
        value = None if said is None else said.value
        steps = _steps(value, seen, run, window.job.warm_s, case.step)
    found = [f for f in answer["findings"] if f["severity"] != "info"]
    first = found[0] if found else None
    loud = [f for f in found if f["severity"] in LOUD]
    return {
        "case": case.name,
        "kind": case.kind,
        "side": case.side,
        "healthy": case.healthy,
        "has_source": has_source,
        "first": None if first is None else [first["rule"], first["severity"], first["speedup"]],
        "verdict": answer.get("verdict", {}).get("text"),
        "acceptable": not loud if case.healthy else is_right(answer, case),
        "loud": [followed(case, f, measured) for f in loud],
        "missed": list(missed(case, found, measured)),
        "unspoken": _unspoken(answer),
        "steps": steps,
        "widths": [round(f["speedup"][1] / f["speedup"][0], 3) for f in found if f["speedup"]],
        "weight": _weight(seen),
        "unharmed": seen["unharmed"],
    }


def is_right(answer: Mapping[str, Any], case: Case) -> bool:
    """Tell whether the first statement is the main cause, or names its lines honestly."""
    found = [f for f in answer["findings"] if f["severity"] != "info"]
    if found and found[0]["rule"] in case.acceptable:
        return True
    if found and found[0]["severity"] in LOUD:
        return False
    near = {
        (Path(file).name, line + off) for file, line in case.main for off in range(-NEAR, NEAR + 1)
    }
    places = (answer.get("verdict") or {}).get("where") or []
    return any((Path(place["file"]).name, place["line"]) in near for place in places)


def followed(case: Case, found: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a loud finding promised, and what following it gave; ``None``: not measured."""
    gains = [
        measured[change.name]["gain"]
        for change in case.changes
        if found["rule"] in change.follows and "gain" in measured.get(change.name, {})
    ]
    # The most literal reading stands first in the case.
    gain = gains[0] if gains else None
    promised = found["speedup"]
    row = {"rule": found["rule"], "severity": found["severity"], "promised": promised, "gain": gain}
    if gain is None:
        return row | {"outcome": "not measured"}
    if gain[1] < 1 - NOTHING:
        return row | {"outcome": "harmful"}
    if abs(gain[1] - 1) <= NOTHING:
        return row | {"outcome": "empty"}
    # Within what the measurement itself is sure about.
    return row | {"outcome": "gains" if promised and gain[2] >= promised[0] else "less"}


def missed(
    case: Case, found: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]
) -> Iterable[str]:
    """Yield the changes worth making that no finding speaks of."""
    said = {f["rule"] for f in found}
    for change in case.changes:
        gain = measured.get(change.name, {}).get("gain")
        if gain is not None and gain[0] > 1 and gain[1] >= WORTH and not said & {*change.follows}:
            yield f"{change.name} ({gain[1]:.2f}x)"


def _unspoken(answer: Mapping[str, Any]) -> float:
    """Return the part of the account that is no work and that no finding is about."""
    return round(sum(answer["unexplained"].values()), 4)


def _steps(
    said: float | None, seen: Mapping[str, Any], run: Run, warm_s: float, step: str | None
) -> dict[str, Any]:
    """Return the steps a second as counted by both, of the time that is spoken of."""
    if step == "":
        return {"said": said, "true": None, "right": said is None}
    place = 1 if step is None else 3
    began = run.started_ms / 1000 + warm_s - seen["attached_at"]
    ended = (run.ended_ms or math.inf) / 1000 - seen["attached_at"]
    looks = [look for look in seen["meanwhile"] if began <= look[0] <= ended]
    true, counted = 0.0, 0.0
    if len(looks) > 1:
        first, last = looks[0], looks[-1]
        counted = last[place] - first[place]
        true = counted / (last[0] - first[0])
    # Two who count from other moments on may differ by one step.
    within = max(STEPS_WITHIN, 1 / counted) if counted else 0.0
    right = said is not None and true > 0 and abs(said / true - 1) <= within
    return {"said": said, "true": round(true, 3), "right": right}


def _weight(seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the monitor took of a core, and how the job went on meanwhile."""
    looks = seen["meanwhile"]
    each = list(_seconds(looks))
    usual = sum(b[1] - a[1] for a, b in each) / sum(b[0] - a[0] for a, b in each) if each else 0
    return {
        "mean": round(looks[-1][2] / looks[-1][0], 4) if looks else None,
        "worst": round(max((b[2] - a[2] for a, b in each), default=0.0), 3),
        # What it took in each second, and the pace of the job in it, as a part of its usual one.
        "seconds": [
            [round(b[2] - a[2], 2), round((b[1] - a[1]) / (b[0] - a[0]) / usual, 2)]
            for a, b in each[:SECONDS]
            if usual
        ],
    }


def _seconds(looks: Sequence[Sequence[float]]) -> Iterator[tuple[Sequence[float], Sequence[float]]]:
    """Yield the first and the last look of each second."""
    return zip(looks[::4], looks[4::4], strict=False)
