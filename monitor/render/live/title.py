"""The first lines of the live view, and the last: which job it is, and what can be done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import inside, model, numbers, plain
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.live.lines import cut, ends, joined

KEYS: Final = (
    ("q", "stop watching"),
    ("d", "diagnosis"),
    ("t", "trace now"),
    ("g", "each GPU"),
    ("p", "pause"),
    ("?", "help"),
)
ON_A_PAGE: Final = (("q", "back"), ("↑ ↓", "scroll"))
CTRL_C: Final = "Ctrl-C stops watching; your job goes on"


@dataclass(frozen=True, slots=True)
class Title:
    """Which job it is."""

    name: str
    pid: str
    clock: str
    run: int
    # Empty while it runs.
    stopped: str
    # What it trains, with what.
    about: str
    # Why nothing of ours is in it; empty where it is.
    outside: str


def of(snapshot: Snapshot) -> Title:
    """Return it."""
    identity = snapshot.identity
    how = inside.how(snapshot)
    return Title(
        printable(PurePath(identity.script).name) if identity and identity.script else "the job",
        str(identity.key.pid) if identity else numbers.DASH,
        numbers.duration(snapshot.elapsed),
        snapshot.run,
        plain.stopped(snapshot).strip(),
        model.model(snapshot) or "",
        "" if inside.is_inside(snapshot) else how,
    )


def head(title: Title, width: int, *, paused: bool = False) -> list[Text]:
    """Return its first lines."""
    line = Text.assemble((title.name, "bold"), f"  pid {title.pid}  {title.clock}")
    for said in (title.stopped, "PAUSED, recording goes on" if paused else ""):
        if said:
            line.append(f"  {said}", "bold yellow")
    lines = [ends(line, f"run {title.run}", width)]
    # The frameworks come last, and may be cut.
    lines += [cut(Text(said, "dim"), width) for said in (title.about, title.outside) if said]
    return lines


def foot(
    note: str | None, answer: str, width: int, *, keys: tuple[tuple[str, str], ...]
) -> list[Text]:
    """Return the last lines: what the caller has to say, the answer to a key, and the keys."""
    lines = [cut(Text(answer, "bold"), width)] if answer else []
    if note:
        # A link that is broken can neither be clicked nor copied.
        said = note if cell_len(note) <= width else note.split(": ", 1)[-1]
        lines += [Text(said[at : at + width]) for at in range(0, len(said), width)]
    named = [Text.assemble((key, "bold"), f" {name}") for key, name in keys]
    return [*lines, joined(named or [Text(CTRL_C, "dim")], width)]
