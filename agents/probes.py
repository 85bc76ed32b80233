"""Which probes are on, and turning them on and off."""

from __future__ import annotations

import time
from contextlib import suppress

from .context import ProbeContext
from .jax.probe import JaxProbe
from .python import PythonProbe
from .steps import Steps
from .tensorflow.probe import TensorFlowProbe
from .torch.probe import TorchProbe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Union

    from .timers import Timers

    Probe = Union[PythonProbe, JaxProbe, TorchProbe, TensorFlowProbe]

KNOWN: dict[str, type[Probe]] = {
    probe.name: probe for probe in (PythonProbe, JaxProbe, TorchProbe, TensorFlowProbe)
}


class Probes:
    """The probes of one agent."""

    def __init__(
        self, timers: Timers, put: Callable[[list[Any]], None], main: int | None = None
    ) -> None:
        self.main = main
        self._timers = timers
        self._put = put
        self.steps = Steps(main)
        self._on: dict[str, tuple[Probe, ProbeContext]] = {}

    def turn_on(self, name: str) -> str | None:
        """Turn a probe on; returns why not, where it cannot."""
        if name not in KNOWN:
            return f"there is no probe of that name; there are: {', '.join(KNOWN)}"
        if name in self._on:
            return None
        context = ProbeContext(
            self._timers,
            self._put,
            lambda why: self._put_state(name, "on", why),
            self.main,
            self.steps,
        )
        probe: Probe = KNOWN[name](context)
        # Before it changes anything: a fork in the middle undoes what is here.
        self._on[name] = probe, context
        try:
            why = probe.begin()
        except Exception as error:
            why = f"it failed: {type(error).__name__}"
        if why is not None:
            self.turn_off(name, why)
            return why
        self._put_state(name, "on", None)
        return None

    def turn_off(self, name: str, reason: str) -> None:
        """Turn a probe off; all that it changed is undone."""
        if name in self._on:
            self._on[name][1].hooks.undo()
            del self._on[name]
            self._put_state(name, "off", reason)

    def names(self) -> list[str]:
        """Return the names of those that are on."""
        return list(self._on)

    def gauges(self, now: int) -> dict[str, int | None]:
        """Return the figures of all of them."""
        found: dict[str, int | None] = {}
        for probe, _ in list(self._on.values()):
            for name, value in probe.gauges(now).items():
                # A job with two frameworks compiles and reads with both.
                before = found.get(name)
                found[name] = value if before is None else before + (value or 0)
        # Last: the probes may have ticked just now.
        record, figures = self.steps.second(now)
        if record is not None:
            self._put(record)
            self._put_pace(now)
        found.update(figures)
        return found

    def _put_pace(self, now: int) -> None:
        pace = self.steps.pace(now)
        if pace is not None:
            self._put(pace)

    def lost(self) -> int:
        """Return how often they missed something."""
        return self.steps.lost() + sum(probe.lost() for probe, _ in self._on.values())

    def undo(self) -> None:
        """Undo everything without a record: in a fork's child nobody reads it."""
        for _, context in list(self._on.values()):
            with suppress(BaseException):
                context.hooks.undo()
        self._on.clear()

    def _put_state(self, name: str, state: str, reason: str | None) -> None:
        self._put(["probe", time.monotonic_ns(), name, state, reason])
