"""How often the job itself copies values to the devices, by ``jax.device_put``."""

from __future__ import annotations

from functools import wraps
from itertools import count

from ..framework import Part
from ..modules import need
from ..wire import DEVICE_PUTS
from .internals import replace_in_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "jax._src.dispatch"
# What jax.device_put calls, once, for all that it was given.
NAME = "_batched_device_put_impl"


class DevicePuts(Part):
    """Counts calls."""

    name = "count of device_put"

    def begin(self) -> None:
        """Wrap the function that copies."""
        self._reads = 0
        # One step of C, so that threads cannot lose each other's counts.
        self._next = count().__next__
        original = need(MODULE, NAME)
        replace_in_module(self.hooks, MODULE, NAME, _counting(original, self._next))

    def second(self, _now: int) -> dict[str, int | None]:
        """Return the total; each reading of the counter counts as one itself."""
        puts = self._next() - self._reads
        self._reads += 1
        return {DEVICE_PUTS: puts}


def _counting(original: Callable[..., Any], tick: Callable[[], int]) -> Callable[..., Any]:
    @wraps(original)
    def put(*arrays: Any, **options: Any) -> Any:
        tick()
        return original(*arrays, **options)

    return put
