"""The part ``debugging modes``: options of JAX's that are made for finding errors."""

from __future__ import annotations

from ..framework import Part
from ..modules import Missing, loaded
from ..wire import DEBUG_MODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# These slow each step; of the others a person may want to know.
SLOW = ("debug_nans", "debug_infs", "disable_jit")
OPTIONS = (*SLOW, "enable_x64", "log_compiles")


class DebuggingModes(Part):
    """Reads them as they are for the whole process: this thread has no values of its own."""

    name = "debugging modes"

    def begin(self) -> None:
        """Find the options that this version has."""
        if not self.facts():
            raise Missing("jax._src.config has none of the options that we know")

    def second(self, _now: int) -> dict[str, int | None]:
        """Count those that slow a step."""
        found = self.facts()
        return {DEBUG_MODES: sum(found.get(name, False) for name in SLOW)}

    def facts(self) -> dict[str, Any]:
        """Return their values."""
        names = loaded("jax._src.config") or {}
        values = {name: getattr(names.get(name), "value", None) for name in OPTIONS}
        return {name: value for name, value in values.items() if isinstance(value, bool)}
