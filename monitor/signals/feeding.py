"""Which of the main thread's own work makes what the steps compute on, and so could be done ahead.

Names do not say so: a batch may be made in ``draw()`` or in the loop itself. The flow of data does.
Such a line of the user's works on the host; what it gives goes into the framework's work, by other
lines or straight; and nothing that it takes comes from there: an agent's next move, a metric, or
an update of weights has to wait for the step.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from whyidle.monitor.code.callees import Calls, calls_of
from whyidle.monitor.code.flow import flows_at
from whyidle.monitor.code.source import calls
from whyidle.monitor.code.statements import Flow
from whyidle.monitor.code.trains import trains_at
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.runs.stacks import Chain, CodeLine, Counts, StackSamples
from whyidle.monitor.signals.account import HOST_WORK, divided
from whyidle.monitor.signals.sampling import start_up

# What is neither the host's own work nor a step's.
_NEITHER: Final = frozenset({HostClass.LOADER, HostClass.LOCK})
# Of the framework's time a line of the steps has at least so much; who makes batches has less than
# so much, to put them together.
_LEAST_OF_STEPS, _MOST_OF_STEPS = 0.05, 0.5


class Feeding:
    """Judges the lines of one thread, by its samples and its source."""

    def __init__(self, stacks: StackSamples, *, by_time: bool = False) -> None:
        self._stacks = stacks
        self._start_up = {(x.file, x.line) for x in start_up(stacks.lines(), by_time=by_time)}
        self._known: dict[CodeLine, bool] = {}

    def feeds(self, chain: Chain) -> bool:
        """Tell whether what the host does in a stack makes what the steps compute on."""
        begun = bool(chain.frames) and chain.frames[0][:2] not in self._start_up
        return begun and any(self._feeds(line) for line in chain.frames)

    @cached_property
    def samples(self) -> float:
        """How many samples were in the steps."""
        stacks = self._stacks.chains
        return sum(stacks[chain].samples for chain in self._spent_in) or 1.0

    @cached_property
    def _spent_in(self) -> dict[Chain, tuple[float, float]]:
        """By stack, without start-up: the samples of the host's own work, and of the steps."""
        return {
            chain: _spent(chain, counts)
            for chain, counts in self._stacks.chains.items()
            if not chain.frames or chain.frames[0][:2] not in self._start_up
        }

    @cached_property
    def _times(self) -> dict[tuple[str, int], tuple[float, float]]:
        """By line, also where it only called others: the samples of the host, and of steps."""
        found: dict[tuple[str, int], tuple[float, float]] = {}
        for chain, (host, steps) in self._spent_in.items():
            for place in {(line.file, line.line) for line in chain.frames}:
                before = found.get(place, (0.0, 0.0))
                found[place] = before[0] + host, before[1] + steps
        return found

    @cached_property
    def _beneath(self) -> dict[tuple[str, int], dict[tuple[str, str], float]]:
        """By line, of the functions of the user's that it called: the samples of steps in them."""
        found: dict[tuple[str, int], dict[tuple[str, str], float]] = {}
        for chain, (_, steps) in self._spent_in.items():
            inner: set[tuple[str, str]] = set()
            for line in chain.frames if steps else ():
                beneath = found.setdefault((line.file, line.line), {})
                for each in inner:
                    beneath[each] = beneath.get(each, 0.0) + steps
                inner.add((line.file, line.function))
        return found

    @cached_property
    def _lead_to_steps(self) -> frozenset[tuple[str, int]]:
        """The lines that called what learns."""
        return frozenset(
            (outer.file, outer.line)
            for chain in self._spent_in
            for depth, line in enumerate(chain.frames, 1)
            if trains_at(line)
            for outer in chain.frames[depth:]
        )

    @cached_property
    def _of_steps(self) -> float:
        """The samples of all the framework's work."""
        return sum(steps for _, steps in self._spent_in.values())

    def _feeds(self, line: CodeLine) -> bool:
        if line not in self._known:
            self._known[line] = self._works_on_host(line) and self._flows_into_steps(line)
        return self._known[line]

    def _works_on_host(self, line: CodeLine) -> bool:
        host, steps = self._times.get((line.file, line.line), (0.0, 0.0))
        if (line.file, line.line) in self._lead_to_steps:
            return False
        return host > steps and steps <= _MOST_OF_STEPS * self._of_steps

    def _flows_into_steps(self, line: CodeLine) -> bool:
        flows = flows_at(line.file, line.line)
        flow = None if flows is None else flows.at(line.line)
        if flows is None or flow is None:
            return False
        reached = flows.reached(flow)
        if not any(self._is_step(line.file, each) for each in reached - {flow}):
            return False
        if any(self._waits_for(line.file, each, reached) for each in flows.made_of(flow)):
            return False
        if any(self._share_a_model(line, each) for each in flows if each is not flow):
            return False
        # A memory that is told of errors draws by them; a tree of moves grows where they were good.
        told = {each for teller in flows.tell(flow) for each in (teller, *flows.made_of(teller))}
        return not any(self._is_step(line.file, each) for each in told - {flow})

    def _share_a_model(self, line: CodeLine, other: Flow) -> bool:
        """Tell whether a line runs what a step runs, too: an agent plays with what it learns."""
        if not self._is_step(line.file, other):
            return False
        mine = self._beneath.get((line.file, line.line), {})
        least = _LEAST_OF_STEPS * self._of_steps
        theirs = {
            each for number in other.lines for each in self._beneath.get((line.file, number), ())
        }
        return any(each in theirs and steps >= least for each, steps in mine.items())

    def _waits_for(self, file: str, source: Flow, reached: set[Flow]) -> bool:
        """Tell whether a value comes from a step, or by the framework from what was made before."""
        return self._is_step(file, source) or (
            source in reached and self._may_be_framework(file, source)
        )

    def _is_step(self, file: str, flow: Flow) -> bool:
        host, steps = self._spent(file, flow)
        return steps > host and steps >= _LEAST_OF_STEPS * self._of_steps

    def _may_be_framework(self, file: str, flow: Flow) -> bool:
        host, steps = self._spent(file, flow)
        if host or steps:
            return steps > host
        # It takes next to nothing; its names may say whose work it is.
        some = [line for line in flow.lines if calls(file, line)]
        return any(calls_of(file, x) in {Calls.FRAMEWORK, Calls.UNCLEAR} for x in some)

    def _spent(self, file: str, flow: Flow) -> tuple[float, float]:
        some = [self._times.get((file, line), (0.0, 0.0)) for line in flow.lines]
        return sum(host for host, _ in some), sum(steps for _, steps in some)


def _spent(chain: Chain, counts: Counts) -> tuple[float, float]:
    """Return the samples of the host's own work, and of the framework's."""
    some = list(divided(chain, counts))
    host = sum(n for doing, n in some if doing in HOST_WORK)
    return host, sum(n for doing, n in some if doing not in HOST_WORK | _NEITHER)
