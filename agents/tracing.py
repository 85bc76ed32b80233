"""Traces on demand: one at a time, short enough and rare enough to cost the job little.

A first window of a few milliseconds shows what the end of a trace costs in this job. Longer ones
follow until one is useful. The agent's thread is idle while a window is open.
"""

from __future__ import annotations

import os
import time

from .jax.tracing import JaxTracer
from .modules import Missing, loaded
from .tensorflow.tracing import TensorFlowTracer
from .timers import Timer
from .torch.tracing import TorchTracer
from .trace_files import TraceFiles
from .tracer import Refused, tool
from .wire import LONGEST_REASON, OPTIMIZER_STEPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .folder import Folder
    from .main_thread import MainThreadCall
    from .timers import Timers
    from .tracer import TakenWindow, Tracer

MILLISECOND = 1_000_000
SECOND = 1_000 * MILLISECOND
# The answer to the request goes first.
SOON_NS = 10 * MILLISECOND
# Between two windows of one trace the job runs undisturbed.
BETWEEN_WINDOWS_NS = 200 * MILLISECOND
# A trace of PyTorch begins and ends between two steps: whether it has is polled, ever less often.
POLL_NS = 5 * MILLISECOND
LONGEST_POLL_NS = 100 * MILLISECOND
# How long it waits for a moment when others leave Python's lock to it, and for the end of a step to
# begin at; and how late it may be before it ends within a step.
PATIENCE_NS = 10 * SECOND
LATE_NS = 20 * MILLISECOND
# A trace that a person asks for waits only this long after the one before.
LEAST_PAUSE_NS = SECOND
LONGEST_SECONDS = 10.0
MOST_WINDOWS = 8


class _Trace:
    """A requested trace."""

    __slots__ = (
        "announced",
        "asked",
        "due",
        "id",
        "meant_ns",
        "patience_ns",
        "poll_ns",
        "spent_ns",
        "tracer",
        "wanted_ns",
        "windows",
    )  # fmt: skip

    def __init__(self, number: int, tracer: Tracer, wanted_ns: int) -> None:
        self.id = number
        self.tracer = tracer
        self.wanted_ns = wanted_ns
        self.windows = 0
        self.spent_ns = 0
        self.meant_ns = 0
        self.due = 0
        # How long it may still wait for moments to open windows, over all of its windows.
        self.patience_ns = PATIENCE_NS
        # When it was requested to begin or to end.
        self.asked = 0
        self.poll_ns = POLL_NS
        self.announced = False


class Traces:
    """The traces of one agent; used by one thread at a time."""

    def __init__(
        self,
        folder: Folder,
        timers: Timers,
        put: Callable[[list[Any]], None],
        main_call: MainThreadCall,
    ) -> None:
        self._pid = os.getpid()
        self._timers = timers
        self._put = put
        self._files = TraceFiles(folder)
        self._tracers: dict[str, Tracer] = {
            tracer.framework: tracer
            for tracer in (
                TorchTracer(main_call),
                JaxTracer(main_call),
                TensorFlowTracer(folder, main_call),
            )
        }
        self._trace: _Trace | None = None
        self._timer: Timer | None = None
        self._count = 0
        self._optimizes = False
        # How much of the job's time the last one took, and when it ended.
        self._spent_ns = 0
        self._ended_ns = -(1 << 62)
        # How long after the last window there must be no other.
        self._rest_ns = 0

    def set_rest(self, rest: Callable[[Callable[[], Any]], Any]) -> None:
        """Set how to let the process fork while something takes long."""
        for tracer in self._tracers.values():
            tracer.rest = rest

    def ask(self, seconds: Any, share: Any, framework: Any, now: int) -> int | str:
        """Let a trace begin soon; returns its number, or why there is none."""
        try:
            return self._ask(seconds, share, framework, now)
        except (Refused, Missing) as error:
            return str(error)[:LONGEST_REASON]
        except Exception as error:
            return f"it failed: {type(error).__name__}"

    def _ask(self, seconds: Any, share: Any, framework: Any, now: int) -> int:
        if not _is_number(seconds) or not 0 < seconds <= LONGEST_SECONDS:
            raise Refused(f"seconds is a number above 0 and at most {LONGEST_SECONDS:g}")
        if share is not None and not (_is_number(share) and 0 < share <= 1):
            raise Refused("share is a part of the time: a number above 0 and at most 1")
        if framework is not None and framework not in self._tracers:
            raise Refused(f"framework is one of {', '.join(self._tracers)}")
        self._check_time(1.0 if share is None else share, now)
        tracer = self._choose(framework)
        if tracer.last is not None:
            raise Refused(tracer.last)
        tracer.check()
        self._count += 1
        self._trace = _Trace(self._count, tracer, max(MILLISECOND, int(seconds * SECOND)))
        self._schedule(self._open, SOON_NS)
        return self._count

    def is_on(self) -> bool:
        """Tell whether one is on its way."""
        return self._trace is not None

    def drop(self, number: Any) -> bool:
        """Remove the file of a trace; returns whether there was one."""
        return type(number) is int and self._files.drop(number)

    def second(self, now: int, figures: dict[str, int | None]) -> None:
        """Look after files and tracers."""
        self._files.second(now)
        self._optimizes = bool(figures.get(OPTIMIZER_STEPS))
        for tracer in self._tracers.values():
            tracer.second()

    def before_fork(self) -> None:
        """Leave nothing that a child could stumble over; on the thread that forks."""
        if self._trace is not None:
            self._trace.tracer.before_fork()

    def close(self, reason: str) -> None:
        """End all; on whichever thread ends the agent."""
        if self._trace is not None:
            self._trace.tracer.abort()
            self._fail(f"the agent ends: {reason}")
        self._files.close()

    def undo(self) -> None:
        """Undo all changes to the job; in a fork's child, let go of what is the parent's."""
        for tracer in self._tracers.values():
            if os.getpid() == self._pid:
                tracer.abort()
            else:
                tracer.forget()
            tracer.undo()

    def _choose(self, framework: str | None) -> Tracer:
        there = [t for t in self._tracers.values() if loaded(t.framework) is not None]
        if framework is not None:
            there = [t for t in there if t.framework == framework]
        if not there:
            wanted = framework or " or ".join(self._tracers)
            raise Refused(f"nothing to trace: the job has not imported {wanted}")
        # Torch where its optimizers step or its GPU is in use, then who has devices.
        # TensorFlow comes last: in many jobs of the others it only reads data.
        if len(there) > 1 and not self._optimizes:
            return next((t for t in there if t.is_used()), there[0])
        return there[0]

    def _check_time(self, share: float, now: int) -> None:
        if self._trace is not None:
            raise Refused("a trace is on, and there is one at a time")
        profiler = tool()
        if profiler is not None:
            raise Refused(f"another tool profiles the job: {profiler} is in its environment")
        pause = max(self._spent_ns / share, LEAST_PAUSE_NS, self._rest_ns)
        left = pause - (now - self._ended_ns)
        if left > 0:
            spent, wait = self._spent_ns / SECOND, left / SECOND
            raise Refused(f"too soon: the last one took {spent:.2g} s, the next in {wait:.2g} s")

    def _schedule(self, act: Callable[[_Trace, int], None], delay: int) -> None:
        """Do something with the trace after a while, once."""
        trace = self._trace

        def run(now: int) -> None:
            self._drop_timer()
            if trace is not None and trace is self._trace:
                self._try(act, trace, now)

        now = time.monotonic_ns()
        if trace is not None:
            trace.due = now + delay
        self._timer = Timer(delay, run)
        self._timers.add(self._timer, now)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timers.remove(self._timer)
            self._timer = None

    def _try(self, act: Callable[[_Trace, int], None], trace: _Trace, now: int) -> None:
        try:
            act(trace, now)
        except Exception as error:
            explained = isinstance(error, (Refused, Missing, OSError))
            trace.tracer.abort()
            self._fail(str(error) if explained else f"it failed: {type(error).__name__}: {error}")

    def _open(self, trace: _Trace, now: int) -> None:
        window = trace.tracer.window
        window.late(now - trace.due)
        trace.meant_ns = window.next_ns(trace.wanted_ns)
        if trace.meant_ns < MILLISECOND:
            self._open_later(trace, now)
            return
        self._files.new(trace.id)
        trace.asked, trace.poll_ns = now, POLL_NS
        trace.tracer.start(trace.meant_ns)
        self._await_begin(trace, now)

    def _open_later(self, trace: _Trace, now: int) -> None:
        """Wait for a better moment, or refuse where no moment is better, or none came."""
        window = trace.tracer.window
        trace.patience_ns -= BETWEEN_WINDOWS_NS + max(0, now - trace.due)
        if window.is_late(trace.wanted_ns, MILLISECOND) and trace.patience_ns > 0:
            self._schedule(self._open, BETWEEN_WINDOWS_NS)
            return
        window.refuse()
        late = f", and the agent's turn comes {window.late_ns / MILLISECOND:.0f} ms late"
        raise Refused(
            f"even a window of a millisecond would stop the job for more than "
            f"{window.bound_ns / MILLISECOND:.0f} ms{late if window.late_ns else ''}"
        )

    def _await_begin(self, trace: _Trace, now: int) -> None:
        if trace.tracer.has_begun():
            if not trace.announced:
                trace.announced = True
                framework = {"framework": trace.tracer.framework}
                self._put(["trace", now, trace.id, "begun", framework])
            self._schedule(self._end, trace.meant_ns)
        elif now - trace.asked > PATIENCE_NS:
            raise Refused(
                f"it begins between two steps of the main thread, and no step ended in "
                f"{PATIENCE_NS // SECOND} s, nor came a batch of a DataLoader; "
                f"whyidle.step() marks them"
            )
        else:
            self._poll_again(self._await_begin, trace)

    def _end(self, trace: _Trace, now: int) -> None:
        trace.asked, trace.poll_ns = now, POLL_NS
        trace.tracer.finish()
        self._await_end(trace, now)

    def _await_end(self, trace: _Trace, now: int) -> None:
        if trace.tracer.has_ended():
            self._save(trace)
            return
        if now - trace.asked > min(LATE_NS, trace.tracer.window.spare_ns(trace.meant_ns)):
            trace.tracer.hurry()
        self._poll_again(self._await_end, trace)

    def _poll_again(self, look: Callable[[_Trace, int], None], trace: _Trace) -> None:
        self._schedule(look, trace.poll_ns)
        trace.poll_ns = min(LONGEST_POLL_NS, trace.poll_ns * 5 // 4)

    def _save(self, trace: _Trace) -> None:
        file = self._files.new(trace.id)
        try:
            taken = trace.tracer.save(file)
            file.check(time.monotonic_ns())
        except BaseException:
            file.remove()
            raise
        was_ns = taken.ended_ns - taken.began_ns
        window = trace.tracer.window
        window.learn(trace.meant_ns, was_ns, taken.cost_ns)
        trace.windows += 1
        trace.spent_ns += time.monotonic_ns() - taken.began_ns
        trace.tracer.last = taken.last
        self._rest_ns = taken.rest_ns
        enough = window.is_enough(was_ns, trace.wanted_ns) or trace.windows >= MOST_WINDOWS
        if enough or taken.last is not None:
            self._files.keep(trace.id, file)
            self._report_done(trace, taken, file.name, file.size)
        else:
            file.remove()
            self._schedule(self._open, max(BETWEEN_WINDOWS_NS, taken.rest_ns))

    def _report_done(self, trace: _Trace, taken: TakenWindow, name: str, size: int) -> None:
        facts = {
            "framework": trace.tracer.framework,
            "file": name,
            "bytes": size,
            "began_ns": taken.began_ns,
            "ended_ns": taken.ended_ns,
            "realtime_ns": taken.realtime_ns,
            "held_ns": taken.held_ns,
            "events": None,
        }
        self._finish(trace, "done", facts)

    def _fail(self, why: str) -> None:
        if self._trace is not None:
            self._finish(self._trace, "failed", {"why": why[:LONGEST_REASON]})

    def _finish(self, trace: _Trace, state: str, facts: dict[str, Any]) -> None:
        self._drop_timer()
        self._trace = None
        self._spent_ns = trace.spent_ns
        self._ended_ns = time.monotonic_ns()
        self._put(["trace", self._ended_ns, trace.id, state, facts])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
