"""What the probes of the frameworks have in common: they wait for it, and consist of parts.

A part relies on a few names of the framework, some of them private. Where a version has them
elsewhere, that part stays off with a reason, and the others work.
"""

from __future__ import annotations

import json
import sys

from .facts import NO_GIL, has_gil
from .hooks import Hooks
from .modules import Missing, is_coming, loaded
from .timers import SECOND, Timer
from .wire import LONGEST_REASON, STATE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

    from .context import ProbeContext

# Seconds between two looks at what seldom changes, and for how long it is looked at each second.
STATE_SECONDS = 5
FIRST_SECONDS = 15
# A job often compiles all it ever will within the second after the import: at first it is looked
# for whenever the thread is awake, and with short waits while it is being imported.
WAITING_NS = SECOND // 5
COMING_NS = SECOND // 50
WAITS_NS = 60 * SECOND
# No import takes longer.
IMPORT_NS = 10 * WAITS_NS


class Part:
    """One thing that a probe looks at. All calls but those of its own hooks: the agent's thread."""

    # What a person calls it when it is missing.
    name = ""

    def __init__(self, context: ProbeContext) -> None:
        self.context = context
        # What this part changed; undone when it fails, and with the probe.
        self.hooks = Hooks()

    def begin(self) -> None:
        """Install everything; raises Missing where this version has no such place."""

    def second(self, _now: int) -> dict[str, int | None]:
        """Put what is due each second; returns figures."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return what seldom changes; asked every few seconds."""
        return {}

    def lost(self) -> int:
        """Return how often something was missed."""
        return 0


class FrameworkProbe:
    """One life of the probe of a framework."""

    name: ClassVar[str] = ""
    # The module whose import must be done.
    module: ClassVar[str] = ""
    parts: ClassVar[tuple[type[Part], ...]] = ()

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._on: list[Part] = []
        self._begun = False
        self._seconds = 0
        self._told: str | None = None
        self._package = self.module.partition(".")[0]
        self._waiting = Timer(WAITING_NS, self._wait, WAITING_NS)
        self._until = 0

    def begin(self) -> str | None:
        """Wait for the framework; after a minute it is looked for each second."""
        if not has_gil():
            return NO_GIL
        self._context.hooks.add(self._undo)
        self._look()
        if not self._begun:
            self._context.every(self._waiting)
        return None

    def gauges(self, now: int) -> dict[str, int | None]:
        """Return the figures of this second, and put the records of it."""
        if not self._begun:
            self._look()
        found: dict[str, int | None] = {}
        for part in list(self._on):
            found.update(self._ask(part, lambda part: part.second(now)))
        if self._begun:
            if self._seconds < FIRST_SECONDS or self._seconds % STATE_SECONDS == 0:
                self._tell_state(now)
            self._seconds += 1
        return found

    def lost(self) -> int:
        """Return how often something was missed."""
        return sum(part.lost() for part in self._on)

    def _wait(self, now: int) -> None:
        coming = False
        # Mostly nobody has asked for it: not to look at all costs less.
        if self._package in sys.modules:
            if not self._begun:
                self._look()
            coming = not self._begun and self._is_coming()
        self._until = self._until or now + WAITS_NS
        if self._begun or now > self._until + (IMPORT_NS if coming else 0):
            self._context.timers.remove(self._waiting)
            return
        self._waiting.early = 0 if coming else WAITING_NS
        self._waiting.due = now + (COMING_NS if coming else WAITING_NS)

    def _is_coming(self) -> bool:
        try:
            return is_coming(self.module)
        except Exception:
            # Something stands for it that does not like to be asked.
            return False

    def _look(self) -> None:
        try:
            if loaded(self.module) is None:
                return
        except Exception:
            # What stands for it is not what we know; it may be, later.
            return
        self._begun = True
        for kind in self.parts:
            try:
                part = kind(self._context)
            except Exception as error:
                self._tell(kind, error)
                continue
            # Before it changes anything: a fork in the middle undoes what is here.
            self._on.append(part)
            self._ask(part, _begin)

    def _ask(self, part: Part, act: Callable[[Part], dict[str, Any]]) -> dict[str, Any]:
        """Have a part do something; one that fails ends, and the others go on."""
        try:
            return act(part)
        except Exception as error:
            part.hooks.undo()
            self._on.remove(part)
            self._tell(type(part), error)
            return {}

    def _tell(self, part: type[Part], error: Exception) -> None:
        missing = isinstance(error, Missing)
        why = str(error) if missing else f"it failed: {type(error).__name__}"
        self._context.tell(f"no {part.name}: {why}"[:LONGEST_REASON])

    def _tell_state(self, now: int) -> None:
        facts: dict[str, Any] = {}
        for part in list(self._on):
            facts.update(self._ask(part, lambda part: part.facts()))
        said = json.dumps(facts, sort_keys=True, default=str)
        if facts and said != self._told and len(said) <= STATE_BYTES:
            self._told = said
            self._context.put(["state", now, self.name, facts])

    def _undo(self) -> None:
        for part in reversed(self._on):
            part.hooks.undo()
        self._on.clear()


def _begin(part: Part) -> dict[str, Any]:
    part.begin()
    return {}
