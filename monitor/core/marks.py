"""The user's own step marker; it does nothing unless an agent listens.

Training jobs import this: it must stay light, and import nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

# Called at the end of each step; an agent puts it here, and removes it again.
listener: Callable[[], object] | None = None
# What a monitor that watches has found by now; an agent puts it here, and removes it again.
told: dict[str, Any] | None = None


class Step:
    """One step of a training loop; all steps of all threads share one object."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin a step."""

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """End the step; one that raised does not count."""
        heard = listener
        if heard is not None and kind is None:
            heard()


_STEP = Step()


def step() -> Step:
    """Mark one step of a training loop: ``with whyidle.monitor.step(): ...``.

    Once it is used, no other source of steps counts. It costs a fraction of a microsecond while
    no monitor watches.
    """
    return _STEP
