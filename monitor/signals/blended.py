"""A budget to be shown, with what the agent saw over the whole window.

A trace of a second may lie between two garbage collections that take most of the time, and holds
nothing of what the user's own code does. What is shown then would speak against what is found.
Rules ask for the shares of one source at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.host_class import AWAITS, HOST_LOOKS, HostClass
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.estimate import LEAST, NOTABLE, ORDER, SEEN, WHOLE
from whyidle.monitor.signals.account import HostAccount
from whyidle.monitor.signals.recorded import Recorded

_Name = TypeVar("_Name")
BY_AGENT: Final = "seen by the agent, not in the trace"


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


def together(budgets: Sequence[BudgetJson]) -> BudgetJson:
    """Return the budget of several windows."""
    slices, details = Counter[str](), dict[str, Counter[str]]()
    for budget in budgets:
        slices.update(budget["slices"])
        for part, labels in budget["details"].items():
            details.setdefault(part, Counter()).update(labels)
    named = {part: dict(labels) for part, labels in details.items()}
    return {"total_ns": slices.total(), "steps": 0, "slices": dict(slices), "details": named}


def with_idle(account: BudgetJson, idle: float | None, label: str) -> BudgetJson:
    """Return an account of the same total with devices that are idle for this share of it.

    What is idle no longer is work, the causes of the rest keep their proportion; what is idle
    more has no cause. ``None``: how much is idle is not known, nor why.
    """
    slices = {part: account["slices"].get(part, 0) for part in Slice}
    parts = {part: ns for part, ns in slices.items() if part.idle}
    work = {part: ns for part, ns in slices.items() if not part.idle}
    total, now = sum(slices.values()), sum(parts.values())
    wanted = now if idle is None else round(idle * total)
    left: dict[Slice, int] = {}
    for some, taken in ((parts, now if idle is None else now - wanted), (work, wanted - now)):
        cuts = _in_proportion(some, max(0, taken))
        left |= {part: ns - cuts[part] for part, ns in some.items()}
    gained = Slice.COMPUTE if wanted < now else Slice.IDLE_UNKNOWN
    more = total - sum(left.values())
    details = {
        name: _scaled(labels, slices[Slice(name)], left[Slice(name)])
        for name, labels in account.get("details", {}).items()
        if left[Slice(name)]
    }
    details[gained] = {**details.get(gained, {}), label: more}
    left[gained] += more
    named = {str(part): left[part] for part in Slice}
    return {**account, "slices": named, "details": details}


# What keeps a device from its work, whoever computes.
_KEEPS: Final = {
    **dict.fromkeys((HostClass.LOCK, HostClass.EAGER), Slice.IDLE_DISPATCH),
    HostClass.PUT: Slice.EXPOSED_COPY,
    HostClass.PEER_WAIT: Slice.IDLE_OTHER_PROCESS,
    HostClass.LOADER: Slice.IDLE_INPUT,
    HostClass.COMPILE: Slice.IDLE_COMPILE,
}
_WORKS: Final = {
    **dict.fromkeys((HostClass.PYTHON, HostClass.LIBRARY), Slice.IDLE_DISPATCH),
    HostClass.WAIT: Slice.IDLE_IO,
}
# What the thread was found at while nothing was recorded: no call of the framework was under way.
BETWEEN_CALLS: Final = {**_WORKS, HostClass.UNCLEAR: Slice.IDLE_DISPATCH, **_KEEPS}
# Without a trace, where other threads compute while this one does anything.
ON_OTHER_THREADS: Final = {
    **dict.fromkeys(AWAITS, Slice.COMPUTE),
    **_KEEPS,
}
# The same where it is known how much the others compute.
BESIDE_OTHER_THREADS: Final = {
    **dict.fromkeys((HostClass.UNCLEAR, HostClass.FRAMEWORK), Slice.IDLE_DISPATCH),
    **_WORKS,
    **ON_OTHER_THREADS,
}
# Without a trace, where the thread itself computes in the calls of the framework.
ON_THIS_THREAD: Final = {**_WORKS, HostClass.FRAMEWORK: Slice.COMPUTE, **ON_OTHER_THREADS}
# The same of a rank of many: what it waits for in there is the others.
ON_A_RANKS_THREAD: Final = {**ON_THIS_THREAD, HostClass.FRAMEWORK_WAIT: Slice.EXPOSED_COMM}
# Without a trace, while a GPU is known to have nothing to do.
BESIDE_IDLE_GPU: Final = {**BETWEEN_CALLS, HostClass.FRAMEWORK: Slice.IDLE_DISPATCH}
# What the thread does itself, in whose time others may compute.
OWN_WORK: Final = frozenset(
    {HostClass.PYTHON, HostClass.LIBRARY, HostClass.UNCLEAR, HostClass.FRAMEWORK, HostClass.WAIT}
)
# Half of the samples may be of a quarter of the time, or of three.
MOST_ERROR: Final = 0.25


def explained(
    budget: BudgetJson, host: HostAccount, meaning: Mapping[HostClass, Slice], beside: float = 0.0
) -> BudgetJson | None:
    """Return the budget with its unknown part by what the samples say; ``None``: they say nothing.

    A class counts beyond what the budget has of its slice already, at most the whole unknown.
    ``beside``: the part of what the thread does itself during which others compute.
    """
    total, slices = sum(budget["slices"].values()), dict(budget["slices"])
    unknown = slices.get(Slice.IDLE_UNKNOWN, 0)
    if not unknown or host.error(0.5) > MOST_ERROR:
        return None
    rows = [row for row in host.rows if row.doing in meaning]
    shares: dict[Slice, float] = {}
    for row in rows:
        idle = row.share * (1 - beside if row.doing in OWN_WORK else 1)
        for part, share in ((meaning[row.doing], idle), (Slice.COMPUTE, row.share - idle)):
            shares[part] = shares.get(part, 0.0) + share
    more = {part: int(share * total) - slices.get(part, 0) for part, share in shares.items()}
    more = {part: ns for part, ns in more.items() if ns > 0}
    taken = _in_proportion(more, min(unknown, sum(more.values())))
    if sum(taken.values()) < LEAST * total:
        return None
    details = dict(budget["details"])
    slices[Slice.IDLE_UNKNOWN] = unknown - sum(taken.values())
    if old := details.get(Slice.IDLE_UNKNOWN):
        details[Slice.IDLE_UNKNOWN] = _scaled(old, unknown, slices[Slice.IDLE_UNKNOWN])
    for part, ns in taken.items():
        slices[part] = slices.get(part, 0) + ns
        mine = {}
        for row in (row for row in rows if meaning[row.doing] is part):
            at = row.innermost
            label = f"{at.function}() at {Path(at.file).name}:{at.line}" if at else ""
            words = label or f"{HOST_LOOKS[row.doing].words}, in no line of yours"
            mine[words] = int(row.share * WHOLE)
        details[part] = {**details.get(part, {}), **_in_proportion(mine, ns)}
    return {**budget, "slices": slices, "details": details}


def without_work(budget: BudgetJson, idle: float, label: str) -> BudgetJson:
    """Return the budget with the reason for unknown idle time in which there was no work."""
    slices, part = budget["slices"], Slice.IDLE_UNKNOWN
    ns = min(slices.get(part, 0), int(idle * sum(slices.values())))
    if not ns:
        return budget
    old = _scaled(budget["details"].get(part, {}), slices[part], slices[part] - ns)
    return {**budget, "details": {**budget["details"], part: {**old, label: ns}}}


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


def _in_proportion(parts: Mapping[_Name, int], taken: int) -> dict[_Name, int]:
    """Divide what is taken among the parts by their size, without a rest."""
    whole, so_far = sum(parts.values()), 0
    found: dict[_Name, int] = {}
    for part, ns in parts.items():
        before = taken * so_far // whole if whole else 0
        so_far += ns
        found[part] = (taken * so_far // whole if whole else 0) - before
    return found


def _scaled(labels: Mapping[str, int], old: int, new: int) -> dict[str, int]:
    return {label: ns * new // old if old else ns for label, ns in labels.items()}
