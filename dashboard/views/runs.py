"""Which runs there are to choose from, and which of them belong beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from whyidle.monitor.render.escape import printable
from whyidle.monitor.store import Run

LONGEST: Final = 40
# A picker reads markdown: what could be some is left out.
_MARKUP: Final = frozenset("*_`[]<>$:~#\\|")


def called(run: Run) -> str:
    """Return a run in a line, for a picker: its number, its label or script."""
    words = run.label or run.script or (run.command or "").split(" ")[0] or "job"
    plain = "".join(each for each in printable(words) if each not in _MARKUP)
    return f"{'● ' if run.is_recording else ''}{run.id} · {plain[:LONGEST]}"


def beside(known: Sequence[Run], run: Run) -> tuple[Run | None, Run | None]:
    """Return what to compare where nobody has chosen: A, and B after it.

    It is the newest run before this one of the same program, or of another in its folder; for the
    first run of a program the newest one after it.
    """
    if (earlier := _alike(known, run, is_later=False)) is not None:
        return earlier, run
    later = after(known, run)
    return (None, run) if later is None else (run, later)


def after(known: Sequence[Run], run: Run) -> Run | None:
    """Return the newest run after this one of the same program, or of another in its folder."""
    return _alike(known, run, is_later=True)


def _alike(known: Sequence[Run], run: Run, *, is_later: bool) -> Run | None:
    others = [each for each in known if each.id != run.id and (each.id > run.id) is is_later]
    for is_like in (_same_script, _same_folder):
        found = [each for each in others if is_like(each, run)]
        if found:
            return max(found, key=lambda each: each.id)
    return None


def _same_script(one: Run, other: Run) -> bool:
    return one.script is not None and one.script == other.script


def _same_folder(one: Run, other: Run) -> bool:
    first, second = (PurePath(each.script or "").parent for each in (one, other))
    return first == second and first.name != ""
