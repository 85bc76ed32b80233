"""What comes of the work at a line, by the flow of data: of the host's, and of a model's.

Some of the main thread's own work makes what the steps compute on, and so could be done ahead.
Names do not say so: a batch may be made in ``draw()`` or in the loop itself. Such a line of the
user's works on the host; what it gives goes into the framework's work, by other lines or straight;
and nothing that it takes comes from there: an agent's next move, a metric, or an update of weights
has to wait for the step.

And some pass through a model trains nothing, in a loop whose other passes through it do: what it
gives goes into no loss, no update and no further call of the framework, and the model's own lines,
or its name, are those of one that does. What is due every few steps is another thing.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.code.callees import calls_of, reads_at
from whyidle.monitor.code.flow import Flows, flows_at
from whyidle.monitor.code.scopes import Calls
from whyidle.monitor.code.source import calls, dotted, imports, last
from whyidle.monitor.code.statements import Flow
from whyidle.monitor.code.trains import trains_at
from whyidle.monitor.core.amounts import MOSTLY
from whyidle.monitor.core.finding import Place, Severity
from whyidle.monitor.core.host_class import HOST_WORK, LAUNCHES, HostClass
from whyidle.monitor.runs.stacks import Chain, CodeLine
from whyidle.monitor.signals.account import HostAccount
from whyidle.monitor.signals.phases import Phase

# What is neither the host's own work nor a step's.
_NO_STEP: Final = HOST_WORK | {HostClass.LOADER, HostClass.LOCK}
_PASSES: Final = LAUNCHES | {HostClass.UNCLEAR}
# Methods that hand what they are given to what works with it: a schedule, a game, another thread.
_HANDS_ON: Final = frozenset({"put", "put_nowait", "send", "step"})
_Spot = tuple[str, int]


@dataclass(slots=True)
class _Line:
    """What was seen at a line, also where it only called others, as shares of the time."""

    function: str
    # The host's own work, and the framework's.
    host: float = 0.0
    steps: float = 0.0
    # Of the latter what may be a pass through a model in each step; and what is surely none.
    passes: float = 0.0
    elsewhere: float = 0.0
    # The functions of the user's that it called, with the share of steps in them.
    beneath: dict[tuple[str, str], float] = field(default_factory=dict)
    leads_to_learning: bool = False


_Seen = Mapping[_Spot, _Line]


def _seen(account: HostAccount | None) -> _Seen:
    found: dict[_Spot, _Line] = {}
    if account is None:
        return found
    for row in account.rows:
        is_host, share = row.doing in HOST_WORK, row.share
        is_due = row.due or account.phase_of(row) is not Phase.STEP
        steps = share if row.doing not in _NO_STEP else 0.0
        learns, done = False, set[_Spot]()
        beneath: set[tuple[str, str]] = set()
        for frame in row.frames:
            spot = frame[:2]
            line = found.setdefault(spot, _Line(frame.function))
            if spot not in done:
                line.host += share if is_host else 0.0
                line.steps += steps
                line.passes += share if row.doing in _PASSES and not is_due else 0.0
                line.elsewhere += share if is_host or is_due else 0.0
            for each in beneath:
                line.beneath[each] = line.beneath.get(each, 0.0) + steps
            line.leads_to_learning |= learns
            learns = learns or trains_at(frame)
            done.add(spot)
            beneath.add((frame.file, frame.function))
    return found


def _at(seen: _Seen, file: str, flow: Flow) -> list[_Line]:
    return [seen[file, number] for number in flow.lines if (file, number) in seen]


class Feeding:
    """Judges which lines of one thread make what the steps compute on."""

    def __init__(self, account: HostAccount | None) -> None:
        rows = () if account is None else account.rows
        self.samples = 1.0 if account is None else account.samples
        self._seen = _seen(account)
        self._begun = {row.frames[0] for row in rows if row.frames}
        self._of_steps = sum(row.share for row in rows if row.doing not in _NO_STEP)
        self._known: dict[CodeLine, bool] = {}

    def feeds(self, chain: Chain) -> bool:
        """Tell whether what the host does in a stack makes what the steps compute on."""
        return chain.user in self._begun and any(map(self._feeds, chain.frames))

    def _feeds(self, line: CodeLine) -> bool:
        if line not in self._known:
            mine = self._seen.get(line[:2], _Line(""))
            works = mine.host > mine.steps and not mine.leads_to_learning
            works = works and mine.steps <= MOSTLY * self._of_steps
            self._known[line] = works and self._flows_into_steps(line)
        return self._known[line]

    def _flows_into_steps(self, line: CodeLine) -> bool:
        flows = flows_at(line.file, line.line)
        flow = None if flows is None else flows.at(line.line)
        if flows is None or flow is None:
            return False
        reached = flows.reached(flow)
        if not any(self._is_step(line.file, each) for each in reached - {flow}):
            return False
        # A value that comes from a step, or by the framework from what was made before, waits.
        if any(
            self._is_step(line.file, each)
            or (each in reached and self._may_be_framework(line.file, each))
            for each in flows.made_of(flow)
        ):
            return False
        if any(self._share_a_model(line, each) for each in flows if each is not flow):
            return False
        # A memory that is told of errors draws by them; a tree of moves grows where they were good.
        told = {each for teller in flows.tell(flow) for each in (teller, *flows.made_of(teller))}
        return not any(self._is_step(line.file, each) for each in told - {flow})

    def _share_a_model(self, line: CodeLine, other: Flow) -> bool:
        """Tell whether a line runs what a step runs, too: an agent plays with what it learns."""
        if line[:2] not in self._seen or not self._is_step(line.file, other):
            return False
        least = Severity.MEDIUM.least * self._of_steps
        theirs = [each.beneath for each in _at(self._seen, line.file, other)]
        return any(
            steps >= least and any(beneath.get(each) for beneath in theirs)
            for each, steps in self._seen[line[:2]].beneath.items()
        )

    def _is_step(self, file: str, flow: Flow) -> bool:
        host, steps = self._spent(file, flow)
        return steps > host and steps >= Severity.MEDIUM.least * self._of_steps

    def _may_be_framework(self, file: str, flow: Flow) -> bool:
        host, steps = self._spent(file, flow)
        if host or steps:
            return steps > host
        # It takes next to nothing; its names may say whose work it is.
        some = [line for line in flow.lines if calls(file, line)]
        return any(calls_of(file, x) in {Calls.FRAMEWORK, Calls.UNCLEAR} for x in some)

    def _spent(self, file: str, flow: Flow) -> tuple[float, float]:
        some = _at(self._seen, file, flow)
        return sum(each.host for each in some), sum(each.steps for each in some)


@dataclass(frozen=True, slots=True)
class IdlePass:
    """The line that runs it, one whose pass trains, and its share of the time."""

    where: Place
    trains: Place
    share: float


def idle_pass(account: HostAccount) -> IdlePass | None:
    """Return the pass that trains nothing and takes most; ``None``: there is none."""
    seen = _seen(account)
    found = []
    for (file, number), line in seen.items():
        if (
            line.passes < Severity.MEDIUM.least
            or line.elsewhere > line.passes
            or _trains((file, number), seen)
        ):
            continue
        flows = flows_at(file, number)
        flow = None if flows is None else flows.at(number)
        if flows is None or flow is None or _is_of_use(file, flow, flows, seen):
            continue
        twin = _twin(file, flow, flows, seen)
        # Nobody takes what the model gives: hooks keep its layers', or it adapts.
        outermost = next((dotted(call.func) for call in calls(file, flow.first)), "")
        takes = flow.gives or flow.adds_to or flow.leaves
        if twin is not None and (takes or outermost not in _models(file, twin)):
            where = Place(file, number, line.function, line.passes)
            found.append(IdlePass(where, Place(file, twin.first, line.function), line.passes))
    return max(found, key=lambda each: each.share, default=None)


def _is_of_use(file: str, flow: Flow, flows: Flows, seen: _Seen) -> bool:
    """Tell whether what a statement gives is used by more than a log."""
    # A sum goes on from what it was, and comes to nothing else.
    reached = flows.reached(flow) - {flow}
    if any(
        _any_trains(file, each, seen)
        or any(line.passes > line.elsewhere for line in _at(seen, file, each))
        or flow in flows.reached(each)
        for each in reached
    ):
        return True
    both = {flow, *reached}
    handed = (last(call) for each in both for n in each.lines for call in calls(file, n))
    if any(each.decides for each in both) or any(name in _HANDS_ON for name in handed):
        return True
    # What an object keeps, or the caller gets, may be used there; of what is read, as a number.
    if any("." in name for each in both for name in each.gives | each.adds_to):
        return True
    leaves = any(each.leaves for each in both)
    return leaves and not any(reads_at(file, n) for each in both for n in each.lines)


def _twin(file: str, flow: Flow, flows: Flows, seen: _Seen) -> Flow | None:
    """Return another statement that goes through the same model, and trains it.

    By the same lines of it, or by its name.
    """
    mine = {each for line in _at(seen, file, flow) for each in line.beneath}
    for other in flows.beside(flow):
        if any(_any_trains(file, each, seen) for each in (other, *flows.reached(other))):
            theirs = {each for line in _at(seen, file, other) for each in line.beneath}
            if mine & theirs or _models(file, flow) & _models(file, other):
                return other
    return None


def _any_trains(file: str, flow: Flow, seen: _Seen) -> bool:
    return any(_trains((file, number), seen) for number in flow.lines)


def _trains(spot: _Spot, seen: _Seen) -> bool:
    line = seen.get(spot)
    return trains_at(CodeLine(*spot, "")) or (line is not None and line.leads_to_learning)


def _models(file: str, flow: Flow) -> set[str]:
    """Return what it calls, and neither a module gives nor Python has."""
    some = (call for number in flow.lines for call in calls(file, number))
    names = {dotted(call.func).removesuffix(".forward") for call in some} - {""}
    heads = {name: name.partition(".")[0] for name in names}
    known = imports(file)
    return {x for x, head in heads.items() if head not in known and not hasattr(builtins, head)}
