"""The part ``debugging modes``: autograd's anomaly detection, and a profiler of the user's own."""

from __future__ import annotations

from ..framework import Part
from ..modules import loaded, need
from ..wire import DEBUG_MODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROFILER = "torch.autograd.profiler"
ENABLED = "_is_profiler_enabled"


class DebuggingModes(Part):
    """Looks once a second: a job may switch it on for some of its steps, or a part of each."""

    name = "debugging modes"

    def begin(self) -> None:
        """Find the getter, which reads one flag of the whole process."""
        self._read = need("torch._C", "is_anomaly_enabled")
        self._was_on = self._was_profiled = False

    def second(self, _now: int) -> dict[str, int | None]:
        """Return how many are on."""
        is_on, profiles = self._read() is True, _profiles() is True
        self._was_on = self._was_on or is_on
        self._was_profiled = self._was_profiled or profiles
        return {DEBUG_MODES: is_on + profiles}

    def facts(self) -> dict[str, Any]:
        """Return which were on since this was last asked."""
        found = {"anomaly_detection": self._was_on}
        if _profiles() is not None:
            found["own_profiler"] = self._was_profiled
        self._was_on = self._was_profiled = False
        return found


def _profiles() -> bool | None:
    """Tell whether the user's profiler runs: torch notes it here, and ours elsewhere."""
    found = (loaded(PROFILER) or {}).get(ENABLED)
    return found if isinstance(found, bool) else None
