"""What the tracers of the frameworks have in common."""

from __future__ import annotations

import os
import time
from _thread import get_ident
from functools import partial
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

    from .trace_files import TraceFile
    from .trace_window import TraceWindow

# Set by tools that profile a whole process: only one can trace a GPU.
TOOLS = (b"NSYS_", b"NV_NSIGHT", b"CUDA_INJECTION64_PATH", b"NVTX_INJECTION", b"ROCP_TOOL")

# How long the end of the agent waits for the job's main thread.
PARTING_SECONDS = 0.5
_POLL_SECONDS = 0.005


class Refused(Exception):  # noqa: N818  an answer, not a defect
    """No trace can be taken now, and why."""


class TakenWindow(NamedTuple):
    """One window that was traced; times on the monotonic clock."""

    # When it began and was ended.
    began_ns: int
    ended_ns: int
    realtime_ns: int
    # How long the job stood still for it, ``None`` where that is unknown.
    held_ns: int | None
    # What its end costs; that bounds the next window.
    cost_ns: int
    # Why there must be no further one in this process, if so.
    last: str | None = None
    # For how long after its end there must be no other one.
    rest_ns: int = 0


class Tracer:
    """Takes traces of one framework; all calls on the agent's thread unless they say otherwise."""

    framework: ClassVar[str] = ""

    def __init__(self, window: TraceWindow) -> None:
        self.window = window
        # Why there must be no more traces in this process, if so.
        self.last: str | None = None
        # Lets the process fork while something takes long.
        self.rest: Callable[[Callable[[], Any]], Any] = _now

    def second(self) -> None:
        """Prepare what has to be known before a trace."""

    def is_used(self) -> bool:
        """Tell whether the process uses the framework."""
        return False

    def check(self) -> None:
        """Check that it can trace now; raises Refused and Missing, which say why not."""

    def start(self, length_ns: int) -> None:
        """Let a window of this length begin; raises Refused, Missing, or the framework's errors."""
        raise NotImplementedError

    def has_begun(self) -> bool:
        """Tell whether it has; raises as ``start`` does."""
        return True

    def finish(self) -> None:
        """Let the window end."""

    def has_ended(self) -> bool:
        """Tell whether it has; raises as ``start`` does."""
        return True

    def hurry(self) -> None:
        """Make it end now: it is late."""

    def hurry_a_while(self, main: int | None) -> None:
        """Hurry until it has ended, or for a moment; the main thread would wait for itself."""
        until = time.monotonic() + PARTING_SECONDS
        while not self.has_ended() and get_ident() != main and time.monotonic() < until:
            self.hurry()
            # The job may fork meanwhile, and then it is over, too.
            self.rest(partial(time.sleep, _POLL_SECONDS))

    def save(self, file: TraceFile) -> TakenWindow:
        """Write what was traced; raises as ``start`` does."""
        raise NotImplementedError

    def abort(self) -> None:
        """End what is on without a file; on whichever thread ends the agent."""

    def before_fork(self) -> None:
        """Leave nothing that could harm a child; on the thread that forks."""

    def forget(self) -> None:
        """In a fork's child: let go of what is the parent's."""

    def undo(self) -> None:
        """Undo what was changed in the job."""


def tool() -> str | None:
    """Return the environment variable that says that another tool profiles the process."""
    # A copy in one step: the job may change it meanwhile.
    names = list(getattr(os.environ, "_data", ()))
    found = next((n for n in names if isinstance(n, bytes) and n.startswith(TOOLS)), None)
    return None if found is None else os.fsdecode(found)


def _now(act: Callable[[], Any]) -> Any:
    return act()
