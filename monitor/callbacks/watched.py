"""What the callbacks share: marks of steps and phases, and what a monitor that watches has found.

It runs in the user's training: nothing here reads a file, waits, or raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whyidle.monitor.core import marks

if TYPE_CHECKING:
    from whyidle.monitor.core.marks import Name

PREFIX = "whyidle/"


def step_ended() -> None:
    """Mark the end of a step, where somebody listens."""
    marks.in_steps()
    heard = marks.listener
    if heard is not None:
        heard()


def mark_calls(owner: object, names: tuple[str, ...], phase: Name) -> Callable[[], None]:
    """Mark a phase while methods of an object run; returns what takes that back."""
    # Past what a model does with attributes that are set.
    own = vars(owner)
    put = {name: _marked(getattr(owner, name), phase) for name in names if name not in own}
    own.update(put)

    def undo() -> None:
        for name, mine in put.items():
            if own.get(name) is mine:
                del own[name]

    return undo


def _marked(method: Callable[..., Any], phase: Name) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with marks.phase(phase):
            return method(*arguments, **named)

    return call


class Watched:
    """What was found so far, as a logger takes it."""

    def __init__(self) -> None:
        # The agent takes what it told away when it leaves; the verdict comes after.
        self._last: dict[str, Any] | None = None

    def news(self) -> dict[str, float] | None:
        """Return numbers to log where there are new ones; ``None`` while nobody watches."""
        told = marks.told
        if told is None or told is self._last:
            return None
        self._last = told
        return numbers(told)

    def verdict(self) -> str | None:
        """Return what was found, in a few lines; ``None``: nobody watched."""
        told = marks.told or self._last
        return None if told is None else verdict(told)


def numbers(told: dict[str, Any]) -> dict[str, float]:
    """Return the account as shares from 0 to 1, and the gain of the first finding's fix."""
    found = {f"{PREFIX}{part}": float(share) for part, share in told.get("parts", {}).items()}
    idle = [share for part, share in told.get("parts", {}).items() if part.startswith("idle_")]
    if idle:
        # Each is rounded: together they may be a little more than all.
        found[f"{PREFIX}idle"] = min(1.0, round(float(sum(idle)), 4))
    for finding in told.get("findings", [])[:1]:
        if finding.get("speedup"):
            found[f"{PREFIX}speedup_low"] = float(finding["speedup"][0])
            found[f"{PREFIX}speedup_high"] = float(finding["speedup"][1])
        if finding.get("expected"):
            found[f"{PREFIX}speedup_expected"] = float(finding["expected"])
    return found


def verdict(told: dict[str, Any]) -> str:
    """Say it for a person."""
    parts = sorted(told.get("parts", {}).items(), key=lambda item: -item[1])
    shares = ", ".join(f"{part.replace('_', ' ')} {share:.0%}" for part, share in parts[:4])
    lines = [f"whyidle: {shares or 'where the time goes is not known'}."]
    if told.get("verdict"):
        lines.append(f"  {told['verdict']}")
    for finding in told.get("findings", []):
        expected, at = finding.get("expected"), finding.get("at")
        gain = f", about {expected:.2f}x faster when fixed" if expected else ""
        where = f", {at}" if at else ""
        severity = finding["severity"].upper()
        lines.append(f"  {severity:<6} {finding['title']}{gain}{where} [{finding['rule']}]")
    more = f" (and {told['more']} more)" if told.get("more") else ""
    lines.append(f"  Evidence and fixes{more}: monitor diagnose {told.get('run')}")
    return "\n".join(lines)
