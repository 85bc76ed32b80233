"""The account of a short trace, with the waits that the agent saw over the whole window.

A trace of a second may lie between two garbage collections that take most of the time. What is
shown then would speak against what is found. Rules ask for the shares of one source at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.estimate import NOTABLE, ORDER, SEEN
from whyidle.monitor.signals.recorded import Recorded

BY_AGENT: Final = "seen by the agent, beside the trace"


def blended(account: BudgetJson, job: Recorded, *, on_gpu: bool = False) -> BudgetJson | None:
    """Return the account with these waits, of the same total; ``None``: the trace has them all."""
    slices = {part: account["slices"].get(part, 0) for part in Slice}
    gains = _gains(slices, job, on_gpu=on_gpu)
    if not gains:
        return None
    missing = sum(gains.values())
    from_unknown = min(slices[Slice.IDLE_UNKNOWN], missing)
    cuts = {Slice.IDLE_UNKNOWN: from_unknown}
    givers = _givers(slices, gains, on_gpu=on_gpu)
    del givers[Slice.IDLE_UNKNOWN]
    cuts |= _in_proportion(givers, missing - from_unknown)
    left = {part: ns - cuts.get(part, 0) + gains.get(part, 0) for part, ns in slices.items()}
    details = {
        name: _scaled(labels, slices[Slice(name)], slices[Slice(name)] - cuts.get(Slice(name), 0))
        for name, labels in account.get("details", {}).items()
    }
    for part, ns in gains.items():
        details[str(part)] = {**details.get(str(part), {}), BY_AGENT: ns}
    return {**account, "slices": {str(part): ns for part, ns in left.items()}, "details": details}


def _gains(slices: Mapping[Slice, int], job: Recorded, *, on_gpu: bool) -> dict[Slice, int]:
    """Return what each wait has more than in the trace; the first win where not all have room."""
    total = sum(slices.values())
    more: dict[Slice, int] = {}
    for part in SEEN:
        share = job.means.get(ORDER[part])
        wanted = 0 if share is None else int(min(1.0, share) * total) - slices[part]
        if total and wanted >= NOTABLE * total:
            more[part] = wanted
    room = sum(_givers(slices, more, on_gpu=on_gpu).values())
    gains: dict[Slice, int] = {}
    for part, wanted in more.items():
        gains[part] = min(wanted, room)
        room -= gains[part]
    return {part: ns for part, ns in gains.items() if ns}


def _givers(
    slices: Mapping[Slice, int], raised: Mapping[Slice, int], *, on_gpu: bool
) -> dict[Slice, int]:
    """Return the parts that the time may come from."""
    # A GPU goes on with what it was given while the host waits: its work stays.
    return {
        part: ns for part, ns in slices.items() if part not in raised and (part.idle or not on_gpu)
    }


def _in_proportion(parts: Mapping[Slice, int], taken: int) -> dict[Slice, int]:
    """Divide what is taken among the parts by their size, without a rest."""
    whole, so_far, found = sum(parts.values()), 0, {}
    for part, ns in parts.items():
        before = taken * so_far // whole if whole else 0
        so_far += ns
        found[part] = (taken * so_far // whole if whole else 0) - before
    return found


def _scaled(labels: Mapping[str, int], old: int, new: int) -> dict[str, int]:
    return {label: ns * new // old if old else ns for label, ns in labels.items()}
