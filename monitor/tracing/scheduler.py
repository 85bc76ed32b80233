"""Traces of a recorded job: request, fetch, analyse and store them, one at a time.

Called at each tick, and never waits but at the end: the job writes the trace in its own time, and a
separate process (``parser``) analyses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.traces.window import TraceWindow
from whyidle.monitor.tracing.parser import Parser, Understood
from whyidle.monitor.tracing.policy import MOST_KNOWN, Outcome, Policy, plain, window
from whyidle.monitor.tracing.space import Space, remove
from whyidle.monitor.tracing.taken import Taken, Way
from whyidle.monitor.tracing.trace_request import TraceRequest
from whyidle.monitor.tracing.trace_summary import TraceSummary
from whyidle.monitor.tracing.worker import Order

TAKEN, FAILED, GIVEN_UP = "trace_taken", "trace_failed", "trace_given_up"
MOST_SLICES: Final = 3
# The end of a recording waits so long for a trace that is being read, and looks so often.
LAST_SECONDS: Final = 3.0
LAST_LOOK_SECONDS: Final = 0.02
# The beginnings of an agent's reasons that are not worth reporting: a later request will succeed.
TOO_EARLY: Final = ("too soon", "a trace is on")
_AGAIN: Final = "To ask once more: monitor trace {pid}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that can be traced."""

    key: ProcessKey
    rank: int | None
    # The median of its steps, if known.
    step_seconds: float | None
    # The way to trace it, made when its turn comes.
    way: Callable[[], Way]
    # Whether ``step_seconds`` is of the job's own steps, not those in an earlier trace.
    is_counted: bool = True


@dataclass(slots=True)
class _Turn:
    """The process whose turn it is, and the progress of its trace."""

    who: Candidate
    way: Way
    # The requested length.
    seconds: float
    # Whether a person waits for it.
    is_wished: bool = False
    taken: Taken | None = None
    parser: Parser | None = None

    def close(self) -> None:
        """Cancel whatever is on its way."""
        if self.parser is not None:
            self.parser.close()
        self.way.close()


@dataclass
class TraceScheduler:
    """The traces of one recording."""

    store: Path
    run: int
    policy: Policy
    # Converts a moment of our monotonic clock to the recording's.
    named_ms: Callable[[float], int]
    parse: Callable[[Order], Parser] = Parser
    request: TraceRequest = field(default_factory=TraceRequest)
    last: TraceSummary | None = None
    # Whether that came with the last tick.
    is_new: bool = False
    _turn: _Turn | None = None
    _news: list[JobEvent] = field(default_factory=list)
    # By process: the refusal reported last; and what the GPU's sign said when it was begun.
    _said: dict[ProcessKey, str] = field(default_factory=dict)
    _starved: bool | None = None
    _was_full: bool = False

    def __post_init__(self) -> None:
        self.space = Space(self.store)
        # Leftovers of a run with the same number, from a store that was deleted.
        self.space.forget({self.run})

    def tick(
        self,
        now: float,
        candidates: Sequence[Candidate],
        *,
        starved: bool | None,
        at_once: Sequence[Candidate] = (),
    ) -> list[JobEvent]:
        """Go on with a trace, or begin one that is due; return the events worth storing.

        ``at_once``: the processes that may be traced at a person's request.
        """
        self.is_new = False
        if self._turn is not None:
            self._go_on(now, self._turn)
        elif self.request.is_waiting:
            self._starved = starved
            self._begin_wished(now, at_once)
        elif self.policy.wants(now, starved=starved):
            self._starved = starved
            self._begin(now, candidates)
        return self._take_news()

    def finish(self) -> list[JobEvent]:
        """Read what was taken to its end, if it comes soon; return the events worth storing."""
        turn = self._turn
        if turn is not None and turn.parser is not None:
            turn.parser.hurry()
            until = time.monotonic() + LAST_SECONDS
            while self._turn is turn and (now := time.monotonic()) < until:
                self._look_at_parser(now, turn, turn.parser)
                time.sleep(LAST_LOOK_SECONDS)
        return self._take_news()

    def close(self, why: str) -> None:
        """Cancel what is on its way, and keep no partial trace."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.close()
            if turn.taken is not None:
                remove(turn.taken.path)
        self.request.ends(f"No trace: {why}.")

    # Inside --------------------------------------------------------------------------------------
    def _take_news(self) -> list[JobEvent]:
        news, self._news = self._news, []
        return news

    def _begin(self, now: float, candidates: Sequence[Candidate]) -> None:
        """Ask the first process that may be asked: one represents all, so that few stand still."""
        self.policy.keep_only({c.key for c in candidates})
        who = next((c for c in candidates if self.policy.may_ask(c.key, now)), None)
        if who is None:
            return
        if not self.space.has_room():
            self.policy.failed(now, 0.0)
            if not self._was_full:
                full = f"the disk under {self.space.folder} has little room left"
                self._say(FAILED, who, f"No trace is taken: {full}.", "low")
            self._was_full = True
            return
        self._was_full = False
        self._ask(now, _Turn(who, who.way(), window(who.step_seconds)))

    def _begin_wished(self, now: float, candidates: Sequence[Candidate]) -> None:
        """Ask the process that represents all, whatever it answered before."""
        if not candidates:
            if self.request.is_late(now):
                nobody = "No trace: there is no process with the agent inside that can be asked."
                self.request.refused(nobody, "See what stands against it: monitor ps")
        elif not self.space.has_room():
            full = f"No trace: the disk under {self.space.folder} has little room left."
            self.request.refused(full, "Make some: monitor prune --older-than 7d")
        else:
            who = candidates[0]
            seconds = self.request.seconds or window(who.step_seconds)
            self._ask(now, _Turn(who, who.way(), seconds, is_wished=True))

    def _ask(self, now: float, turn: _Turn) -> None:
        refused = turn.way.ask(turn.seconds)
        if refused is not None:
            turn.close()
            self._refused(now, turn, refused)
            return
        self._turn = turn
        if turn.is_wished:
            self.request.taking(turn.who.key.pid, turn.seconds)

    def _go_on(self, now: float, turn: _Turn) -> None:
        if turn.parser is not None:
            self._look_at_parser(now, turn, turn.parser)
            return
        found = turn.way.poll()
        if isinstance(found, Taken):
            turn.taken = found
            turn.parser = self._parser(turn, found)
            if turn.is_wished:
                self.request.reading()
        elif found is not None:
            turn.close()
            self._turn = None
            self._refused(now, turn, found)

    def _parser(self, turn: _Turn, taken: Taken) -> Parser:
        return self.parse(
            {
                "file": str(taken.path),
                "store": str(self.store),
                "run": self.run,
                "taken": {
                    "began_ms": self.named_ms(taken.began_ns / 1e9),
                    "ended_ms": self.named_ms(taken.ended_ns / 1e9),
                    "held_ns": taken.held_ns,
                    "how": taken.how,
                    "pid": turn.who.key.pid,
                    "rank": turn.who.rank,
                    "window": _window(turn, taken).facts(),
                },
            }
        )

    def _look_at_parser(self, now: float, turn: _Turn, parser: Parser) -> None:
        found = parser.poll()
        if found is None or turn.taken is None:
            return
        self._turn = None
        turn.close()
        cost = (turn.taken.ended_ns - turn.taken.began_ns + (turn.taken.held_ns or 0)) / 1e9
        if isinstance(found, str):
            remove(turn.taken.path)
            self.policy.failed(now, cost)
            text = f"A trace was taken and not understood: {found}."
            if turn.is_wished:
                self.request.refused(text, _AGAIN.format(pid=turn.who.key.pid))
            if self._is_other(turn.who, found):
                self._say(FAILED, turn.who, text, "low")
            return
        self._said.clear()
        self.last = summary = _summary(turn.who, turn.taken, found, self.named_ms)
        outcome = Outcome(cost, found.budget.get("slices", {}), summary.steps["count"])
        self.policy.taken(turn.who.key, now, outcome, starved=self._starved)
        self.is_new = True
        self._news.append(
            JobEvent(TAKEN, summary.key, in_words(summary), at=summary.at, data=_for_event(summary))
        )
        if turn.is_wished and summary.trace is not None:
            self.request.kept(summary.trace, in_words(summary))
        elif turn.is_wished:
            lost = f"A trace was taken and could not be kept. {summary.trouble}"
            self.request.refused(lost, "See what is wrong: monitor doctor")
        self.space.tidy()

    def _refused(self, now: float, turn: _Turn, why: str) -> None:
        who = turn.who
        if turn.is_wished:
            # A person's request does not affect when to ask unasked.
            if why.startswith(TOO_EARLY) and not self.request.is_late(now):
                self.request.waits(why)
            else:
                again = _AGAIN.format(pid=who.key.pid)
                text = f"No trace of process {who.key.pid}: {why}."
                self.request.refused(text, again)
                # The person may look only after the recording has ended.
                self._say(FAILED, who, text, "info")
        elif why.startswith(TOO_EARLY):
            # Somebody else traces it, too.
            self.policy.later(now)
        elif self.policy.refused(who.key, now, why):
            text = f"No more traces are asked for: {why}."
            self._say(GIVEN_UP, who, f"{text} {_AGAIN.format(pid=who.key.pid)}", "low")
        elif self._is_other(who, why):
            self._say(FAILED, who, f"No trace of process {who.key.pid}: {why}.", "info")

    def _is_other(self, who: Candidate, why: str) -> bool:
        """Tell whether a process gave another reason the last time."""
        if len(self._said) > MOST_KNOWN:
            self._said.clear()
        before, self._said[who.key] = self._said.get(who.key), plain(why)
        return before != plain(why)

    def _say(self, kind: str, who: Candidate, text: str, severity: str) -> None:
        self._news.append(JobEvent(kind, who.key, text, severity))


def in_words(trace: TraceSummary) -> str:
    """Return the results of a trace in one line."""
    stood = "" if not trace.held_ns else f", the job paused for {trace.held_ns / 1e6:.0f} ms"
    slices = trace.account["slices"]
    total = sum(slices.values())
    parts = sorted(((ns, name) for name, ns in slices.items() if total and ns), reverse=True)
    where = ", ".join(f"{_words(name)} {ns / total:.0%}" for ns, name in parts[:MOST_SLICES])
    return f"A trace of {trace.seconds:.2g} s by {trace.how}{stood}: {where or 'no device worked'}."


def _window(turn: _Turn, taken: Taken) -> TraceWindow:
    step = turn.who.step_seconds if turn.who.is_counted else None
    return TraceWindow(
        taken.ended_ns - taken.began_ns,
        round(turn.seconds * 1e9),
        None if step is None else round(step * 1e9),
    )


def _words(name: str) -> str:
    return LOOKS[Slice(name)].words.removeprefix("idle: ")


def _for_event(summary: TraceSummary) -> JsonObject:
    """Return the part of a trace that is stored with the event: the trace has the details."""
    found = summary.as_json()
    steps = found["step_budget"]
    return {
        **found,
        "budget": {**found["budget"], "details": {}},
        "step_budget": None if steps is None else {**steps, "details": {}},
    }


def _summary(
    who: Candidate, taken: Taken, found: Understood, named_ms: Callable[[float], int]
) -> TraceSummary:
    at = taken.began_ns / 1e9
    return TraceSummary(
        trace=found.trace,
        key=who.key,
        rank=who.rank,
        framework=taken.framework,
        how=taken.how,
        ts_ms=named_ms(at),
        at=at,
        seconds=(taken.ended_ns - taken.began_ns) / 1e9,
        held_ns=taken.held_ns,
        format=found.format,
        budget=found.budget,
        step_budget=found.step_budget,
        steps=found.steps,
        kinds=tuple(found.kinds),
        warnings=tuple(found.warnings),
        trouble=found.trouble,
        window=found.window,
    )
