"""What the tracers of the frameworks have in common."""

from __future__ import annotations

import os
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

    from .trace_files import TraceFile
    from .trace_window import TraceWindow

# Set by tools that profile a whole process: a GPU can be traced by one only.
TOOLS = (b"NSYS_", b"NV_NSIGHT", b"CUDA_INJECTION64_PATH", b"NVTX_INJECTION", b"ROCP_TOOL")


class Refused(Exception):  # noqa: N818  an answer, not a defect
    """No trace can be taken now, and why."""


class TakenWindow(NamedTuple):
    """One window that was taken; times on the monotonic clock."""

    # When it began and was ended.
    began_ns: int
    ended_ns: int
    realtime_ns: int
    # How long the job stood still for it, ``None`` where that is unknown.
    held_ns: int | None
    # What its end costs; the next window is measured by it.
    cost_ns: int
    # Why there must be no other one in this process, if so.
    last: str | None = None
    # For so long after its end there must be no other one.
    rest_ns: int = 0


class Tracer:
    """Takes traces of one framework; all calls on the agent's thread but those that say so."""

    framework: ClassVar[str] = ""

    def __init__(self, window: TraceWindow) -> None:
        self.window = window
        # Why there must be no more traces in this process, if so.
        self.last: str | None = None
        # Lets the process fork while something takes long.
        self.rest: Callable[[Callable[[], Any]], Any] = _now

    def second(self) -> None:
        """Look after what has to be known before a trace."""

    def is_used(self) -> bool:
        """Tell whether the process uses the framework."""
        return False

    def check(self) -> None:
        """See that it can trace now; raises Refused and Missing, which say why not."""

    def start(self, length_ns: int) -> None:
        """Have it begin, for so long; raises Refused, Missing, or what the framework raises."""
        raise NotImplementedError

    def has_begun(self) -> bool:
        """Tell whether it has; raises as ``start`` does."""
        return True

    def finish(self) -> None:
        """Have it end."""

    def has_ended(self) -> bool:
        """Tell whether it has; raises as ``start`` does."""
        return True

    def hurry(self) -> None:
        """Have it end now: it is late."""

    def save(self, file: TraceFile) -> TakenWindow:
        """Write what was traced; raises as ``start`` does."""
        raise NotImplementedError

    def abort(self) -> None:
        """End what is on without a file; on whichever thread ends the agent."""

    def before_fork(self) -> None:
        """Leave nothing that a child could stumble over; on the thread that forks."""

    def forget(self) -> None:
        """In a fork's child: let go of what is the parent's."""

    def undo(self) -> None:
        """Undo what was changed in the job."""


def tool() -> str | None:
    """Return what in the environment says that another tool profiles the process."""
    # A copy in one step: the job may change it meanwhile.
    names = list(getattr(os.environ, "_data", ()))
    found = next((n for n in names if isinstance(n, bytes) and n.startswith(TOOLS)), None)
    return None if found is None else os.fsdecode(found)


def _now(act: Callable[[], Any]) -> Any:
    return act()
