"""How often compiled programs call back into Python: where all is one program, its only progress.

Of several callbacks the one that is called most often counts; of several seeds in one program each
calls. ``pure_callback`` is left out: it computes something, and is called as often as the compiler
likes.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import wraps

from ..framework import Part
from ..leading import Leading
from ..modules import need
from ..ring import drain
from ..wire import CALLBACKS
from .internals import own, replace_in_class, replace_in_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Calls between two seconds.
CAPACITY = 20_000


class Callbacks(Part):
    """Notes each call."""

    name = "callbacks of compiled programs"

    def begin(self) -> None:
        """Wrap what such a program calls: both names are looked up at each call."""
        self._called: deque[int] = deque(maxlen=CAPACITY)
        self._leading = Leading(0.93)
        self._calls = self._missed = 0
        note = self._called.append
        prints = need("jax._src.debugging", "debug_callback_p")
        replace_in_class(self.hooks, prints, "impl", _noting(own(prints, "impl"), note))
        module, name = "jax._src.callback", "io_callback_impl"
        replace_in_module(self.hooks, module, name, _noting(need(module, name), note))

    def second(self, _now: int) -> dict[str, int | None]:
        """Return the calls of the one that is called most; nothing before the first of all."""
        number = len(self._called)
        self._missed += number >= CAPACITY
        if number:
            self._calls = self._leading.second(Counter(drain(self._called, number)))
        return {CALLBACKS: self._calls} if self._calls else {}

    def lost(self) -> int:
        """Return how often there were too many."""
        return self._missed


def _noting(original: Callable[..., Any], note: Callable[[int], None]) -> Callable[..., Any]:
    @wraps(original)
    def call(*values: Any, **options: Any) -> Any:
        note(id(options.get("callback")))
        return original(*values, **options)

    return call
