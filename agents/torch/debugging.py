"""The part ``debugging modes``: whether autograd's anomaly detection is on."""

from __future__ import annotations

from ..framework import Part
from ..modules import need
from ..wire import DEBUG_MODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class DebuggingModes(Part):
    """Looks once a second: a job may switch it on for some of its steps, or a part of each."""

    name = "debugging modes"

    def begin(self) -> None:
        """Find the getter, which reads one flag of the whole process."""
        self._read = need("torch._C", "is_anomaly_enabled")
        self._was_on = False

    def second(self, _now: int) -> dict[str, int | None]:
        """Return whether it is on."""
        is_on = self._read() is True
        self._was_on = self._was_on or is_on
        return {DEBUG_MODES: int(is_on)}

    def facts(self) -> dict[str, Any]:
        """Return whether it was on since this was last asked."""
        was_on, self._was_on = self._was_on, False
        return {"anomaly_detection": was_on}
