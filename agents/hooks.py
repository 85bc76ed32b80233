"""What was changed in the job, and how each change is undone."""

from __future__ import annotations

from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Hooks:
    """Changes of one probe, undone in reverse; one that cannot be undone does not stop the rest."""

    __slots__ = ("_undos",)

    def __init__(self) -> None:
        self._undos: list[Callable[[], Any]] = []

    def add(self, undo: Callable[[], Any]) -> None:
        """Note how a change is undone; called before the change is made."""
        self._undos.append(undo)

    def append(self, items: list[Any], item: Any) -> None:
        """Append to a list of the job's."""
        self.add(lambda: items.remove(item))
        items.append(item)

    def undo(self) -> None:
        """Undo everything."""
        while self._undos:
            # It stays on the list until it is done: a fork in between leaves it to the child.
            with suppress(BaseException):
                self._undos[-1]()
            self._undos.pop()
