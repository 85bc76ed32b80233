"""The user's own mark of a step: nothing is done with it unless an agent listens.

Imported by training jobs: it must stay light, and import nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

# What is called at the end of each step; put here by an agent, and taken away again.
listener: Callable[[], object] | None = None


class Step:
    """One step of a training loop; all steps of all threads share one object."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin a step."""

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """End it: a step that failed was none."""
        heard = listener
        if heard is not None and kind is None:
            heard()


_STEP = Step()


def step() -> Step:
    """Mark one step of a training loop: ``with whyidle.monitor.step(): ...``.

    Whatever else could tell where a step ends is not asked any more. Without a monitor that watches
    it costs a fraction of a microsecond.
    """
    return _STEP
