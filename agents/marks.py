"""What the user's own code marks: ``whyidle.step()`` and ``whyidle.phase()``."""

from __future__ import annotations

from _thread import get_ident

from .modules import loaded
from .wire import PHASE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .context import ProbeContext

# Where the job's own whyidle keeps them once it is imported: here, and in older versions.
MODULES = ("whyidle.monitor.core.marks", "whyidle.monitor.marks")
# The name in that module that ``step`` calls, the one for what the monitor has found, and the one
# where the main thread says what it does beside its steps.
SLOT = "listener"
TOLD = "told"
SHOWN = "shown"
SOURCE = "whyidle.step"


class Marks:
    """Waits for the module, and listens to it."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._names: dict[str, Any] | None = None
        # PyTorch's own function that says so of the running code, once torch is there.
        self._compiling: list[Callable[[], bool]] = []

    def look(self) -> None:
        """Begin to listen as soon as the module is there."""
        if self._names is not None:
            self._see_compiler()
            return
        names = next((names for names in map(loaded, MODULES) if names is not None), None)
        if names is None:
            return
        self._names = names
        # Else another agent listens, or the job's own code.
        if names.get(SLOT, self) is None:
            self._begin(names)

    def phase(self) -> str | None:
        """Return what the main thread does beside its steps, as the job's own code marks it."""
        shown = self._shown()
        return None if shown is None else bytes(shown).decode("ascii", "replace").rstrip() or None

    def address(self) -> int | None:
        """Return where that lies in memory: who samples from outside reads it there."""
        shown = self._shown()
        return None if shown is None else id(shown)

    def _see_compiler(self) -> None:
        asks = (loaded("torch.compiler") or {}).get("is_compiling")
        if asks is not None and not self._compiling:
            self._compiling.append(asks)

    def _shown(self) -> bytearray | None:
        shown = None if self._names is None else self._names.get(SHOWN)
        return shown if type(shown) is bytearray and len(shown) == PHASE_BYTES else None

    def _begin(self, names: dict[str, Any]) -> None:
        tick, stop = self._context.steps.listen(SOURCE)
        self._context.hooks.add(stop)
        self._see_compiler()
        listener = _listener(tick, self._compiling)
        self._context.hooks.add(lambda: _take_back(names, listener))
        names[SLOT] = listener


def tell(said: dict[str, Any] | None) -> bool:
    """Leave what the monitor has found where the job's own code may look for it; or take it away.

    Returns whether there is such a place: only where the job has imported it.
    """
    names = loaded(MODULES[0])
    if names is None or TOLD not in names:
        return False
    names[TOLD] = said
    return True


def _listener(
    tick: Callable[[int], None], compiling: list[Callable[[], bool]]
) -> Callable[[], None]:
    def heard() -> None:
        # Within a graph nothing is counted: torch.compile cannot follow what counts, and where a
        # job asks it for one whole graph, that would end the job.
        for asks in compiling:
            if asks():
                return
        # Each thread that trains has steps of its own.
        tick(get_ident())

    return heard


def _take_back(names: dict[str, Any], listener: Callable[[], None]) -> None:
    if names.get(SLOT) is listener:
        names[SLOT] = None
