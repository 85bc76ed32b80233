"""Traces of PyTorch: its profiler at the lowest level, for moments.

It begins and ends on the job's own main thread, as the user's own does. Ended by another thread, it
frees what a running operator still writes to, and the job dies. Its end holds Python's lock for a
microsecond or two an event, and so does writing the file: the job stands still. That bounds the
window, not the requested seconds.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial

from ..facts import NO_GIL, has_gil
from ..hooks import Hooks
from ..modules import Missing, loaded, need
from ..trace_window import TraceWindow
from ..tracer import Refused, TakenWindow, Tracer
from ..worker import Worker, can_start
from .kineto import Kineto
from .profilers import HOME, USED, Profilers
from .unfinished_blocks import unfinished_block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..main_thread import MainThreadCall
    from ..trace_files import TraceFile

FIRST_NS = 5_000_000
# How long the job may stand still at the end of a window.
HELD_NS = 50_000_000
# Where no step has ended for so long, the next batch that the job takes will do.
WITHOUT_STEPS_NS = 1_000_000_000
_POLL_SECONDS = 0.005
# Set where a daemon takes the traces: its trace would end with ours.
DAEMON = "KINETO_USE_DAEMON"
_PROFILER = "torch._C._profiler"


class TorchTracer(Tracer):
    """Takes traces of PyTorch."""

    framework = "torch"

    def __init__(self, main_call: MainThreadCall) -> None:
        super().__init__(TraceWindow(FIRST_NS, HELD_NS))
        self._main_call = main_call
        self._hooks = Hooks()
        self._profilers = Profilers(main_call)
        self._kineto: Kineto | None = None
        self._missing: str | None = None
        self._asked_ns = 0
        # Known once a window of this trace has waited in vain for a step to end.
        self._without_steps = False
        # Which one a thread of its own ends.
        self._ends_later_ns = 0

    def second(self) -> None:
        """Wrap the user's profiler as soon as it is there."""
        if self._missing is None and loaded("torch.autograd.profiler") is not None:
            try:
                self._profilers.install(self._hooks)
            except Missing as missing:
                self._hooks.undo()
                self._missing = str(missing)

    def is_used(self) -> bool:
        """Tell whether the process uses a GPU through torch."""
        names = loaded("torch.cuda")
        return names is not None and bool(names.get("_initialized"))

    def check(self) -> None:
        """Check that it can trace now; raises Refused and Missing, which say why not."""
        self._get_ready()
        self._without_steps = False

    def _get_ready(self) -> tuple[Kineto, Any, set[Any]]:
        """Return what a profile needs, if there can be one now."""
        if not has_gil():
            raise Refused(NO_GIL)
        if DAEMON in os.environ:
            raise Refused(f"Kineto's daemon takes its traces: {DAEMON} is in its environment")
        if self._main_call.main is None:
            raise Refused("which of its threads is the main one is not known")
        if loaded("torch.autograd.profiler") is None:
            raise Refused("torch is still being imported")
        self.second()
        if self._missing is not None:
            raise Missing(self._missing)
        need("torch._C", "_current_graph_task_id")
        self._kineto = self._kineto or Kineto(self._main_call.main)
        self._look_at_others(self._kineto)
        return self._kineto, _config(), _activities()

    def _look_at_others(self, kineto: Kineto) -> None:
        jax = loaded("jax._src.profiler")
        state = None if jax is None else jax.get("_profile_state")
        if getattr(state, "profile_session", None) is not None:
            raise Refused("the job profiles itself with jax.profiler")
        if self._profilers.is_used() or kineto.is_active():
            raise Refused(USED)

    def start(self, length_ns: int) -> None:
        """Begin a profile with the next step, unless the user begins one."""
        self._profilers.start(*self._get_ready(), length_ns)
        self._asked_ns = time.monotonic_ns()

    def has_begun(self) -> bool:
        """Tell whether a step has ended since, or, in a job without steps, a batch has come."""
        if self._profilers.why_not is not None:
            self._restore_level()
            raise Refused(self._profilers.why_not)
        if self._profilers.began() is not None:
            return True
        if self._without_steps or time.monotonic_ns() - self._asked_ns > WITHOUT_STEPS_NS:
            self._without_steps = True
            self._main_call.accept_batches()
        return False

    def finish(self) -> None:
        """End it with this step, if it has not ended by itself."""
        self._profilers.finish()

    def has_ended(self) -> bool:
        """Tell whether it has; the user's own profiler may have ended it."""
        return not self._profilers.is_open()

    def hurry(self) -> None:
        """End it within a step: it costs more with every moment."""
        self._profilers.finish()
        self._main_call.interrupt()

    def save(self, file: TraceFile) -> TakenWindow:
        """Have Kineto write the file."""
        began, ended, kineto = self._profilers.began(), self._profilers.take(), self._kineto
        self._restore_level()
        if self._profilers.why_not is not None:
            raise Refused(self._profilers.why_not)
        if began is None or ended is None or kineto is None:
            raise Refused("it was ended by somebody else")
        file.remove()
        ended_ns, took_ns = ended.monotonic_ns, ended.took_ns + self._profilers.lag_ns
        before = time.monotonic_ns()
        with kineto.silence():
            ended.result.save(file.path)
        # It holds a lot: freeing that takes its time as well.
        del ended
        cost = took_ns + time.monotonic_ns() - before
        block = unfinished_block(file.path)
        last = None
        if block is not None:
            last = f"a block of the job's, {block!r}, was open at the end of the last one"
        held = began.took_ns + cost
        # By then, blocks of the job's that come repeatedly are over, even if open now.
        rest = 2 * (ended_ns - began.monotonic_ns)
        return TakenWindow(began.monotonic_ns, ended_ns, began.realtime_ns, held, cost, last, rest)

    def abort(self) -> None:
        """End it without a file: here on the main thread, else as soon as that gets there."""
        self._profilers.cancel()
        if self._profilers.is_open():
            self._end_somehow()
        if not self._profilers.is_open():
            self._restore_level()

    def before_fork(self) -> None:
        """End it: a child would go on recording, and nobody would end it."""
        if self._profilers.is_open() and self._main_call.is_here():
            self._profilers.end_here()

    def forget(self) -> None:
        """In a fork's child: request nothing more of its main thread."""
        self._profilers.forget()
        self._restore_level()

    def _end_somehow(self) -> None:
        if self._main_call.is_here():
            self._profilers.end_here()
        self.hurry_a_while(self._main_call.main)
        # The main thread computes gradients, or is in a long call of C; and the agent may end.
        if self._profilers.is_open() and self._ends_later_ns != self._asked_ns and can_start():
            self._ends_later_ns = self._asked_ns
            with suppress(RuntimeError):
                Worker(partial(self._end_later, self._asked_ns)).start()

    def _end_later(self, asked_ns: int, worker: Worker) -> None:
        while self._profilers.is_open() and self._asked_ns == asked_ns:
            self.hurry()
            worker.sleep_until(time.monotonic() + _POLL_SECONDS)

    def _restore_level(self) -> None:
        level = self._profilers.take_level()
        if level is not None and self._kineto is not None:
            self._kineto.restore(level)

    def undo(self) -> None:
        """Give the user's functions back."""
        self._hooks.undo()


def _config() -> Any:
    """Return the configuration of a profile; raises Missing."""
    kind = need(_PROFILER, "_ExperimentalConfig")
    try:
        # It halves the cost of the end; older versions do not have it.
        more = kind(trace_only=True)
    except TypeError:
        more = kind()
    state = need(_PROFILER, "ProfilerState", "KINETO")
    return need(_PROFILER, "ProfilerConfig")(state, False, False, False, False, False, more, "")


def _activities() -> set[Any]:
    found = {need(_PROFILER, "ProfilerActivity", "CPU")}
    if bool(need("torch.cuda", "_initialized")):
        found |= {need(_PROFILER, "ProfilerActivity").CUDA} & need(HOME, "_supported_activities")()
    return found
