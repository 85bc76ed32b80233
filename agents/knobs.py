"""Settings of the job that a person asks us to try: changed by name, and taken back.

A request names one of ``KNOBS`` with a plain value; no code comes over the socket. What was before
is remembered, and comes back when the client says so, when it hangs up or falls silent, when the
agent leaves, in the child of a fork, and at the exit of the job. What the job has set itself since
is its own affair, and stays.
"""

from __future__ import annotations

import gc
import os
import sys
import time

from .facts import NO_GIL, has_gil
from .main_thread import is_ours
from .modules import Missing, loaded, need
from .wire import KNOB_SECONDS, LONGEST_REASON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .main_thread import MainThreadCall

_LEASE_NS = int(KNOB_SECONDS * 1e9)
# The interpreter of Python 3.12 freezes 375 objects at its own start.
MOST_OF_PYTHON = 1000
MOST_THREADS = 1024
LEAST_INTERVAL, MOST_INTERVAL = 1e-5, 1.0


class Refused(Exception):  # noqa: N818  an answer, not a defect
    """The knob is not turned, and why."""


class Knob:
    """One setting: how it is read and written, and which value is wanted."""

    name = ""
    # Of the thread that trains alone: set on it, between two steps.
    is_main_threads = False

    def check(self, value: Any) -> Any:
        """Return what is to be set; raises Refused, or Missing where there is no such setting."""
        raise NotImplementedError

    def read(self) -> Any:
        """Return what is set."""
        raise NotImplementedError

    def write(self, value: Any) -> None:
        """Set it."""
        raise NotImplementedError

    def back(self, old: Any, ours: Any) -> bool:
        """Set what was before; returns False where the job has set it itself since."""
        if self.read() != ours:
            return False
        self.write(old)
        return True


class Freeze(Knob):
    """All objects that are alive are passed over by the collector.

    They are not counted, which takes Python's lock for as long as there are many. An object of ours
    that is made right after tells whether the job has frozen more since: it is then among them.
    """

    name = "gc.freeze"

    def __init__(self) -> None:
        self._later: list[Any] | None = None

    def check(self, _value: Any) -> Any:
        """Refuse where the job has frozen objects: they would come back with ours."""
        frozen = gc.get_freeze_count()
        if frozen > (MOST_OF_PYTHON if sys.version_info[:2] == (3, 12) else 0):
            raise Refused(f"the job has frozen {frozen} objects itself")
        return True

    def read(self) -> Any:
        """Tell whether they are frozen by us."""
        return self._later is not None

    def write(self, _value: Any) -> None:
        """Freeze what is alive."""
        gc.freeze()
        self._later = []

    def back(self, _old: Any, _ours: Any) -> bool:
        """Unfreeze, unless the job has frozen more since."""
        later, self._later = self._later, None
        if later is not None and not _is_collected(later):
            return False
        gc.unfreeze()
        return True


def _is_collected(wanted: Any) -> bool:
    """Tell whether the collector looks at an object: it lists none that is frozen."""
    # The youngest first: an object of a second ago is in no list of millions, most often.
    return any(
        each is wanted for generation in range(3) for each in gc.get_objects(generation=generation)
    )


class Threshold(Knob):
    """How many more objects there may be before the collector comes."""

    name = "gc.threshold"

    def check(self, value: Any) -> Any:
        """Take the first of the three; the others stay."""
        if type(value) is not int or not 0 < value < 2**31:
            raise Refused("the threshold is a whole number above 0")
        return (value, *gc.get_threshold()[1:])

    def read(self) -> Any:
        """Return all three."""
        return gc.get_threshold()

    def write(self, value: Any) -> None:
        """Set all three."""
        gc.set_threshold(*value)


class Disable(Knob):
    """The collector does not come by itself."""

    name = "gc.disable"

    def check(self, _value: Any) -> Any:
        """Refuse where it is off."""
        if not gc.isenabled():
            raise Refused("the job has switched the collector off itself")
        return False

    def read(self) -> Any:
        """Tell whether it comes."""
        return gc.isenabled()

    def write(self, value: Any) -> None:
        """Switch it."""
        if value:
            gc.enable()
        else:
            gc.disable()


class SwitchInterval(Knob):
    """How long a thread keeps Python's lock when another one waits for it, in seconds."""

    name = "python.switch_interval"

    def check(self, value: Any) -> Any:
        """Take what Python makes of it."""
        number = type(value) in (int, float)
        if not number or not LEAST_INTERVAL <= value <= MOST_INTERVAL:
            raise Refused(f"the interval is {LEAST_INTERVAL:g} to {MOST_INTERVAL:g} seconds")
        return float(value)

    def read(self) -> Any:
        """Return the seconds."""
        return sys.getswitchinterval()

    def write(self, value: Any) -> None:
        """Set the seconds."""
        sys.setswitchinterval(value)


class TorchKnob(Knob):
    """A setting of torch, by the names of its two functions in ``torch._C``."""

    def __init__(self, name: str, reads: str, writes: str, takes: Callable[[Any], bool]) -> None:
        self.name = name
        self._reads, self._writes, self._takes = reads, writes, takes

    def check(self, value: Any) -> Any:
        """Refuse a value of the wrong kind, and where a compiled step would be compiled again."""
        if not self._takes(value):
            raise Refused(f"{value!r} is no value of {self.name}")
        need("torch._C", self._reads)
        need("torch._C", self._writes)
        if self.name in LEGACY and NEWER in (loaded("torch._C") or {}):
            raise Refused("this PyTorch has newer settings, which the older ones overwrite")
        compiled = (loaded("torch._dynamo.utils") or {}).get("_compilation_metrics")
        if compiled and self.name in RECOMPILES:
            raise Refused("torch.compile has compiled with this setting, and would compile again")
        return value

    def read(self) -> Any:
        """Ask torch."""
        return need("torch._C", self._reads)()

    def write(self, value: Any) -> None:
        """Tell torch."""
        need("torch._C", self._writes)(value)


class TorchThreads(TorchKnob):
    """How many threads one operation on the CPU takes: OpenMP keeps that for each thread."""

    is_main_threads = True


# The older ones of two ways to say how precise products are: they warn, and cannot be set back.
LEGACY, NEWER = ("torch.matmul_precision", "cudnn.tf32"), "_get_fp32_precision_getter"
# What compiled code of PyTorch is guarded by.
RECOMPILES = ("torch.threads", "torch.matmul_precision")
_OF_PYTHON = ("gc.", "python.")
KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Freeze(),
        Threshold(),
        Disable(),
        SwitchInterval(),
        TorchThreads(
            "torch.threads",
            "get_num_threads",
            "set_num_threads",
            lambda value: type(value) is int and 0 < value <= MOST_THREADS,
        ),
        TorchKnob(
            "torch.matmul_precision",
            "_get_float32_matmul_precision",
            "_set_float32_matmul_precision",
            lambda value: value in ("highest", "high", "medium"),
        ),
        TorchKnob(
            "cudnn.benchmark",
            "_get_cudnn_benchmark",
            "_set_cudnn_benchmark",
            lambda value: type(value) is bool,
        ),
        TorchKnob(
            "cudnn.tf32",
            "_get_cudnn_allow_tf32",
            "_set_cudnn_allow_tf32",
            lambda value: type(value) is bool,
        ),
    )
}


class _Change:
    """A knob that a client has turned; ``ours`` is what was read right after."""

    __slots__ = ("client", "is_on", "knob", "old", "ours", "reason", "until", "value")

    def __init__(self, knob: Knob, value: Any, client: int, until: int) -> None:
        self.knob = knob
        self.value = value
        self.client = client
        self.until = until
        self.is_on = False
        self.old: Any = None
        self.ours: Any = None
        # Why it goes back; ``None``: it stays for now.
        self.reason: str | None = None


class Knobs:
    """The one change that is on; asked on the agent's thread, made on either."""

    def __init__(self, put: Callable[[list[Any]], None], main_call: MainThreadCall) -> None:
        self._pid = os.getpid()
        self._put = put
        self._main_call = main_call
        self._change: _Change | None = None

    def is_on(self) -> bool:
        """Tell whether one is turned, or about to be."""
        return self._change is not None

    def is_of(self, client: int) -> bool:
        """Tell whether it was this client that turned what is turned."""
        return self._change is not None and self._change.client == client

    def turn(self, client: int, name: Any, value: Any, now: int) -> str | None:
        """Turn a knob; returns why not. A record says when it is."""
        knob = KNOBS.get(name) if isinstance(name, str) else None
        if knob is None:
            return f"there is no knob of that name; there are: {', '.join(KNOBS)}"
        if self._change is not None:
            return "a knob is turned, and there is one at a time"
        if knob.is_main_threads and (self._main_call.pending or self._main_call.main is None):
            return "the main thread is not to be had now: it is awaited for something else"
        if name.startswith(_OF_PYTHON) and not has_gil():
            return NO_GIL
        try:
            change = _Change(knob, knob.check(value), client, now + _LEASE_NS)
        except Exception as error:
            explained = isinstance(error, (Refused, Missing))
            return (str(error) if explained else f"it failed: {error!r}")[:LONGEST_REASON]
        self._change = change
        if knob.is_main_threads:
            self._main_call.request(self._apply)
        else:
            self._apply()
        return None

    def keep(self, client: int) -> str | None:
        """Let the change stay for good; returns why not."""
        change = self._change
        if change is None or change.client != client or not change.is_on or change.reason:
            return "no knob of yours is turned"
        self._change = None
        self._say(change, "kept", None)
        return None

    def renew(self, client: int, now: int) -> None:
        """The client is alive."""
        if self._change is not None and self._change.client == client:
            self._change.until = now + _LEASE_NS

    def leave(self, client: int) -> None:
        """The client is gone: what it has turned goes back."""
        if self._change is not None and self._change.client == client:
            self.take_back("the one who asked hung up")

    def second(self, now: int) -> None:
        """Take back what nobody answers for any more, and try again what did not work yet."""
        change = self._change
        if change is None:
            return
        if change.reason is not None:
            self.take_back(change.reason)
        elif change.until < now:
            self.take_back("the one who asked fell silent")
        elif not change.is_on:
            # An exception of the job's own may have dropped it.
            self._main_call.request(self._apply)

    def take_back(self, reason: str) -> bool:
        """Let it go back; returns whether nothing is turned any more."""
        change = self._change
        if change is None:
            return True
        change.reason = change.reason or reason
        if not change.knob.is_main_threads or self._main_call.is_here():
            self._back()
        else:
            self._main_call.request(self._back)
            self._main_call.interrupt()
        return self._change is None

    def undo(self) -> None:
        """Take it back now, for the last time; in the child of a fork without a word."""
        if os.getpid() != self._pid:
            self._main_call.cancel()
            self._put = _ignore
            self._back()
            return
        if self.take_back("the agent leaves"):
            return
        # The main thread sits in C, or computes gradients: nobody waits for it here, where a fork
        # of the job's waits for us. It takes it back itself once it runs Python again.
        self._put = _ignore
        if not self._main_call.leave_behind(self._back):
            self._back()

    def _apply(self) -> None:
        """Change it; on the main thread where it is that one's."""
        change = self._change
        if change is None or change.is_on or change.reason is not None:
            return
        try:
            knob = change.knob
            if change.ours is None:
                change.old = knob.read()
            # Before it is written: whatever comes in between, it can be taken back.
            change.ours = change.value
            knob.write(change.value)
            change.ours = knob.read()
        except BaseException as error:
            if not is_ours(error, __package__):
                raise
            change.reason = f"it failed: {error!r}"[:LONGEST_REASON]
            self._back()
            return
        change.is_on = True
        self._say(change, "on", None)

    def _back(self) -> None:
        """Undo it; on the main thread where it is that one's."""
        change = self._change
        if change is None:
            return
        why = change.reason
        was_ours = True
        if change.ours is not None or change.is_on:
            try:
                was_ours = change.knob.back(change.old, change.ours)
            except BaseException as error:
                if not is_ours(error, __package__):
                    raise
                why = f"it failed: {error!r}"[:LONGEST_REASON]
        self._change = None
        self._say(change, "off" if was_ours else "left", why)

    def _say(self, change: _Change, state: str, why: str | None) -> None:
        try:
            now = change.knob.read()
        except Exception:
            now = None
        facts = {"old": change.old, "value": change.ours, "now": now, "why": why}
        self._put(["knob", time.monotonic_ns(), change.knob.name, state, facts])


def _ignore(_record: list[Any]) -> None:
    pass
