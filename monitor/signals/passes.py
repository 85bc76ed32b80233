"""A pass through a model that trains nothing, in a loop whose other passes through it do.

Known by the flow of data in the user's source: what a line gives goes into no loss, no update and
no further call of the framework, and the model's own lines, or its name, are those of one that
does. What is due every few steps is another thing, and an agent's move is used by the next one.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.code.callees import reads_at
from whyidle.monitor.code.flow import Flows, flows_at
from whyidle.monitor.code.source import calls, dotted, imports, last
from whyidle.monitor.code.statements import Flow
from whyidle.monitor.code.trains import trains_at
from whyidle.monitor.core.finding import Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.account import HOST_WORK, HostAccount, HostRow

# A smaller part of the time is not worth a person's.
LEAST: Final = 0.05
_AT_WORK: Final = frozenset({HostClass.FRAMEWORK, HostClass.EAGER, HostClass.UNCLEAR})
# Methods that hand what they are given to what works with it: a schedule, a game, another thread.
_HANDS_ON: Final = frozenset({"put", "put_nowait", "send", "step"})
_Spot = tuple[str, int]


@dataclass(frozen=True, slots=True)
class IdlePass:
    """The line that runs it, one whose pass trains, and its share of the time."""

    where: Place
    trains: Place
    share: float


@dataclass(slots=True)
class _Line:
    """What was seen at a line, and beneath it."""

    works: float = 0.0
    elsewhere: float = 0.0
    function: str = ""
    beneath: set[tuple[str, str]] = field(default_factory=set)
    leads_to_learning: bool = False


def idle_pass(account: HostAccount) -> IdlePass | None:
    """Return the pass that trains nothing and takes most; ``None``: there is none."""
    seen = _seen(account.rows)
    found = [each for spot in seen if (each := _judged(spot, seen)) is not None]
    return max(found, key=lambda each: each.share, default=None)


def _seen(rows: Iterable[HostRow]) -> dict[_Spot, _Line]:
    found: dict[_Spot, _Line] = {}
    for row in rows:
        beneath: set[tuple[str, str]] = set()
        learns = False
        for frame in row.frames:
            line = found.setdefault(frame[:2], _Line(function=frame.function))
            line.works += row.share if row.doing in _AT_WORK and not row.due else 0.0
            line.elsewhere += row.share if row.doing in HOST_WORK or row.due else 0.0
            line.beneath |= beneath
            line.leads_to_learning |= learns
            learns = learns or trains_at(frame)
            beneath.add((frame.file, frame.function))
    return found


def _judged(spot: _Spot, seen: Mapping[_Spot, _Line]) -> IdlePass | None:
    line = seen[spot]
    if line.works < LEAST or line.elsewhere > line.works or _trains(spot, seen):
        return None
    flows = flows_at(*spot)
    flow = None if flows is None else flows.at(spot[1])
    if flows is None or flow is None or _is_of_use(spot[0], flow, flows, seen):
        return None
    others = [each for each in flows.beside(flow) if _is_trained(spot[0], each, flows, seen)]
    twin = next((each for each in others if _same_model(spot[0], flow, each, seen)), None)
    if twin is None or _is_for_its_effects(spot[0], flow, twin):
        return None
    trains = Place(spot[0], twin.first, line.function)
    return IdlePass(Place(*spot, line.function, line.works), trains, line.works)


def _is_of_use(file: str, flow: Flow, flows: Flows, seen: Mapping[_Spot, _Line]) -> bool:
    """Tell whether what a statement gives is used by more than a log."""
    # A sum goes on from what it was, and comes to nothing else.
    reached = flows.reached(flow) - {flow}
    if any(
        _any_trains(file, each, seen) or _works(file, each, seen) or flow in flows.reached(each)
        for each in reached
    ):
        return True
    both = {flow, *reached}
    if any(each.decides or _hands_on(file, each) for each in both):
        return True
    # What an object keeps, or the caller gets, may be used there; of what is read, as a number.
    if any("." in name for each in both for name in each.gives | each.adds_to):
        return True
    leaves = any(each.leaves for each in both)
    return leaves and not any(reads_at(file, n) for each in both for n in each.lines)


def _hands_on(file: str, flow: Flow) -> bool:
    return any(last(call) in _HANDS_ON for n in flow.lines for call in calls(file, n))


def _is_trained(file: str, flow: Flow, flows: Flows, seen: Mapping[_Spot, _Line]) -> bool:
    """Tell whether a statement trains, or what it gives is trained with."""
    return any(_any_trains(file, each, seen) for each in (flow, *flows.reached(flow)))


def _any_trains(file: str, flow: Flow, seen: Mapping[_Spot, _Line]) -> bool:
    return any(_trains((file, number), seen) for number in flow.lines)


def _trains(spot: _Spot, seen: Mapping[_Spot, _Line]) -> bool:
    line = seen.get(spot)
    return trains_at(CodeLine(*spot, "")) or (line is not None and line.leads_to_learning)


def _works(file: str, flow: Flow, seen: Mapping[_Spot, _Line]) -> bool:
    return any(line.works > line.elsewhere for line in _seen_at(file, flow, seen))


def _same_model(file: str, one: Flow, other: Flow, seen: Mapping[_Spot, _Line]) -> bool:
    """Tell whether two statements go through one model: the same lines of it, or by its name."""
    return bool(
        _beneath(file, one, seen) & _beneath(file, other, seen)
        or set(_names(file, one)) & set(_names(file, other))
    )


def _beneath(file: str, flow: Flow, seen: Mapping[_Spot, _Line]) -> set[tuple[str, str]]:
    return {place for line in _seen_at(file, flow, seen) for place in line.beneath}


def _seen_at(file: str, flow: Flow, seen: Mapping[_Spot, _Line]) -> list[_Line]:
    return [seen[file, number] for number in flow.lines if (file, number) in seen]


def _names(file: str, flow: Flow) -> Iterator[str]:
    """Yield what it calls, and neither a module gives nor Python has."""
    for number in flow.lines:
        for call in calls(file, number):
            name = dotted(call.func).removesuffix(".forward")
            head = name.partition(".")[0]
            if name and head not in imports(file) and not hasattr(builtins, head):
                yield name


def _is_for_its_effects(file: str, flow: Flow, twin: Flow) -> bool:
    """Tell whether nobody takes what the model gives: hooks keep its layers', or it adapts."""
    outermost = next((dotted(call.func) for call in calls(file, flow.first)), "")
    takes = flow.gives or flow.adds_to or flow.leaves
    return not takes and outermost in set(_names(file, twin))
