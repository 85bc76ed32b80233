"""Which runs there are to choose from, and which of them to compare."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final

from whyidle.dashboard.views import job
from whyidle.monitor.render.escape import printable
from whyidle.monitor.store import Reader, Run

# A picker goes no further back; a link does.
MOST_RUNS: Final = 200
# A table of more is filtered, not read.
MOST_LISTED: Final = 1000
# Labels must stay distinct within the width of the sidebar.
LONGEST: Final = 22
_DAY_SECONDS: Final = 86400


def called(run: Run) -> str:
    """Return a run as a picker entry: its number, name, start, and state."""
    mark = "● " if run.is_recording else ""
    return f"{run.id} · {_name(run)} · {_began(run)} · {mark}{printable(job.state(run))}"


def _name(run: Run) -> str:
    """Return the label, or the end of the script path, where two scripts in a folder differ."""
    if run.label:
        label = printable(run.label)
        return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"
    script = printable(run.script or (run.command or "").split(" ")[0] or "job")
    return script if len(script) <= LONGEST else f"…{script[1 - LONGEST :]}"


def _began(run: Run) -> str:
    began = run.started_ms / 1000
    form = "%H:%M" if time.time() - began < _DAY_SECONDS else "%m-%d %H:%M"
    return time.strftime(form, time.localtime(began))


def beside(known: Sequence[Run], run: Run) -> tuple[Run | None, Run | None]:
    """Return what to compare by default: A, and B after it.

    The partner is the newest earlier run of the same program, or of another in its folder; for
    the first run of a program, the newest later one.
    """
    if (earlier := _alike(known, run, is_later=False)) is not None:
        return earlier, run
    later = after(known, run)
    return (None, run) if later is None else (run, later)


def after(known: Sequence[Run], run: Run) -> Run | None:
    """Return the newest later run of the same program, or of another in its folder."""
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


def listed(reader: Reader, wanted: str, base: str) -> list[tuple[Run, dict[str, object]]]:
    """Return the runs that have each word asked for in what is known of them, as rows of a table.

    The newest comes first.
    """
    found: list[tuple[Run, dict[str, object]]] = []
    for run in reversed(reader.runs()):
        worst = reader.worst_finding(run.id) or {}
        known = (run.label, run.script, run.command, run.host, run.user, run.framework,
                 worst.get("title"))  # fmt: skip
        text = " ".join(str(each) for each in known if each).lower()
        if all(word in text for word in wanted.lower().split()):
            found.append((run, _row(run, worst, base)))
    return found[:MOST_LISTED]


def _row(run: Run, worst: Mapping[str, Any], base: str) -> dict[str, object]:
    return {
        "run": f"{f'/{base}' if base else ''}/?run={run.id}",
        "label": printable(run.label or ""),
        "job": printable(run.script or run.command or ""),
        "loses most by": printable(str(worst.get("title") or "")),
        "faster": worst.get("expected"),
        "steps/s": run.steps_per_s,
        "began": datetime.fromtimestamp(run.started_ms / 1000),  # noqa: DTZ006  as people read it
        "state": printable(job.state(run)),
        "where": printable(f"{run.user or ''}@{run.host or ''}"),
    }
