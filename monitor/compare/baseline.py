"""A baseline: recordings as one file, to compare later ones with, also on another machine."""

from __future__ import annotations

import contextlib
import gzip
import shlex
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from whyidle.monitor.compare.sides import Level, Pace, Side
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.signals import portable
from whyidle.monitor.traces.stream import NotAFile, open_file

SCHEMA: Final = 1
SUFFIX: Final = ".json.gz"
# A file of someone else's may unpack to anything; a hundred recordings do to less.
MOST_BYTES: Final = 256 << 20

# What reading somebody else's file may raise.
_DAMAGE: Final = (
    ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError, OverflowError,
    zlib.error, gzip.BadGzipFile, msgspec.MsgspecError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Baseline:
    """Recordings of one program under a name."""

    name: str
    saved_ms: int
    sides: tuple[Side, ...]


def path_of(name: str, folder: Path) -> Path:
    """Return where a baseline lies: a file of that name, or one in the folder."""
    if ("/" in name or name.endswith(SUFFIX)) and Path(name).name:
        return Path(name)
    if not name.isprintable() or name.startswith((".", "-")) or "/" in name or not name:
        raise UsageProblem(
            f"A baseline cannot be called {name!r}.", "Give it a word: monitor baseline save main"
        )
    return folder / f"{name}{SUFFIX}"


def names(folder: Path) -> list[str]:
    """Return the names of the baselines in a folder."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


def save(path: Path, sides: Sequence[Side]) -> None:
    """Write a baseline: whole, or not at all."""
    document = {
        "schema": SCHEMA,
        "saved_ms": time.time_ns() // 1_000_000,
        "runs": [_dump(side) for side in sides],
    }
    packed = gzip.compress(msgspec.json.encode(document), mtime=0)
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(packed)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise StorageProblem(
            f"The baseline cannot be written to {path}: {error.strerror}.",
            "Name a file elsewhere: monitor baseline save ./main.json.gz",
        ) from None


def load(name: str, folder: Path) -> Baseline:
    """Return a baseline by its name, or by its file."""
    path = path_of(name, folder)
    try:
        # A pipe would have us wait for who writes to it.
        with open_file(path)[0] as file, gzip.open(file) as packed:
            document = msgspec.json.decode(packed.read(MOST_BYTES))
        sides = tuple(_side(each) for each in document["runs"])
        if sides and document["schema"] == SCHEMA:
            return Baseline(name, int(document["saved_ms"]), sides)
    except FileNotFoundError:
        raise UsageProblem(
            f"There is no baseline '{name}' ({path}).",
            "List those that have a name: monitor baseline list",
        ) from None
    except (*_DAMAGE, NotAFile):
        pass
    except OSError as error:
        why = error.strerror or str(error)
        raise StorageProblem(
            f"The baseline {path} cannot be read: {why}.",
            "List those there are: monitor baseline list",
        ) from None
    raise UsageProblem(
        f"{path} is no baseline that this program reads.",
        f"Save it again: monitor baseline save {shlex.quote(name)}",
    )


def _dump(side: Side) -> JsonObject:
    return {
        "label": side.label,
        "window": portable.dump(side.window),
        "pace": None if side.pace is None else asdict(side.pace),
        "why_no_pace": side.why_no_pace,
        "batch": side.batch,
        "sample_ns": side.sample_ns,
        "memory": {
            name: level if isinstance(level, str) else asdict(level)
            for name, level in side.memory.items()
        },
        "why_no_memory": side.why_no_memory,
    }


def _side(data: Mapping[str, Any]) -> Side:
    # What is stored has ended.
    window = replace(portable.load(data["window"]), is_over=True)
    return Side(
        data["label"],
        window,
        msgspec.convert(data["pace"], Pace | None),
        data["why_no_pace"],
        batch=data["batch"],
        sample_ns=data["sample_ns"],
        memory=msgspec.convert(data["memory"], dict[str, str | Level]),
        why_no_memory=data["why_no_memory"],
    )
