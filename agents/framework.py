"""What the framework probes have in common: they wait for their framework, and consist of parts.

A part relies on a few names of the framework, some of them private. Where a version has moved them,
that part stays off with a reason, and the others work.
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

# Seconds between two states, which seldom change, and for how long there is one each second.
STATE_SECONDS = 5
FIRST_SECONDS = 15
# A job often compiles all it ever will within a second of the import: at first the framework is
# looked for whenever the thread is awake, and with short waits while it is being imported.
WAITING_NS = SECOND // 5
COMING_NS = SECOND // 50
WAITS_NS = 60 * SECOND
# No import takes longer.
IMPORT_NS = 10 * WAITS_NS


class Part:
    """One thing that a probe measures. All but its own hooks runs on the agent's thread."""

    # What it is called when it is missing.
    name = ""

    def __init__(self, context: ProbeContext) -> None:
        self.context = context
        # What this part changed; undone when it fails, and with the probe.
        self.hooks = Hooks()

    def begin(self) -> None:
        """Install everything; raises Missing where this version lacks a name."""

    def second(self, _now: int) -> dict[str, int | None]:
        """Put the records of this second; returns its figures."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return what seldom changes; called every few seconds."""
        return {}

    def lost(self) -> int:
        """Return how often something was missed."""
        return 0


class FrameworkProbe:
    """The probe of a framework, from on to off."""

    name: ClassVar[str] = ""
    # The module whose import must be done.
    module: ClassVar[str] = ""
    parts: ClassVar[tuple[type[Part], ...]] = ()

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._on: list[Part] = []
        self._begun = False
        self._seconds = 0
        self._last_state: str | None = None
        self._package = self.module.partition(".")[0]
        self._poll_timer = Timer(WAITING_NS, self._poll, WAITING_NS)
        self._until = 0

    def begin(self) -> str | None:
        """Wait for the framework; after a minute, look for it once a second only."""
        if not has_gil():
            return NO_GIL
        self._context.hooks.add(self._undo)
        self._find()
        if not self._begun:
            self._context.every(self._poll_timer)
        return None

    def gauges(self, now: int) -> dict[str, int | None]:
        """Return the figures of this second, and put the records of it."""
        if not self._begun:
            self._find()
        found: dict[str, int | None] = {}
        for part in list(self._on):
            found.update(self._call(part, lambda part: part.second(now)))
        if self._begun:
            if self._seconds < FIRST_SECONDS or self._seconds % STATE_SECONDS == 0:
                self._put_state(now)
            self._seconds += 1
        return found

    def lost(self) -> int:
        """Return how often something was missed."""
        return sum(part.lost() for part in self._on)

    def _poll(self, now: int) -> None:
        coming = False
        # Mostly nothing imports it: this check costs least.
        if self._package in sys.modules:
            if not self._begun:
                self._find()
            coming = not self._begun and self._is_coming()
        self._until = self._until or now + WAITS_NS
        if self._begun or now > self._until + (IMPORT_NS if coming else 0):
            self._context.timers.remove(self._poll_timer)
            return
        self._poll_timer.early = 0 if coming else WAITING_NS
        self._poll_timer.due = now + (COMING_NS if coming else WAITING_NS)

    def _is_coming(self) -> bool:
        try:
            return is_coming(self.module)
        except Exception:
            # A stand-in for it that fails when used.
            return False

    def _find(self) -> None:
        try:
            if loaded(self.module) is None:
                return
        except Exception:
            # A stand-in for it; the framework may come later.
            return
        self._begun = True
        for kind in self.parts:
            try:
                part = kind(self._context)
            except Exception as error:
                self._report(kind, error)
                continue
            # Before it changes anything: a fork in the middle undoes what is here.
            self._on.append(part)
            self._call(part, _begin)

    def _call(self, part: Part, act: Callable[[Part], dict[str, Any]]) -> dict[str, Any]:
        """Call a part; one that fails ends, and the others go on."""
        try:
            return act(part)
        except Exception as error:
            part.hooks.undo()
            self._on.remove(part)
            self._report(type(part), error)
            return {}

    def _report(self, part: type[Part], error: Exception) -> None:
        missing = isinstance(error, Missing)
        why = str(error) if missing else f"it failed: {type(error).__name__}"
        self._context.tell(f"no {part.name}: {why}"[:LONGEST_REASON])

    def _put_state(self, now: int) -> None:
        facts: dict[str, Any] = {}
        for part in list(self._on):
            facts.update(self._call(part, lambda part: part.facts()))
        said = json.dumps(facts, sort_keys=True, default=str)
        if facts and said != self._last_state and len(said) <= STATE_BYTES:
            self._last_state = said
            self._context.put(["state", now, self.name, facts])

    def _undo(self) -> None:
        for part in reversed(self._on):
            part.hooks.undo()
        self._on.clear()


def _begin(part: Part) -> dict[str, Any]:
    part.begin()
    return {}
