"""Dumps of PyTorch's flight recorder: the last collectives of each rank, written in a hang.

A dump is a pickle of plain values, or JSON. Neither can make us run anything: a pickle that names a
class or a function is refused as a whole.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

# 2,000 collectives with their stacks are some megabytes.
MOST_BYTES: Final = 64 << 20
MOST_FILES: Final = 4096
_RANK: Final = re.compile(r".*?(\d+)(?:\.(?:json|pkl|pickle))?")
# A pickle, or JSON with one of its names at once: a folder may hold traces of gigabytes instead.
_HEAD_BYTES: Final = 400
_HEAD: Final = re.compile(
    rb"\x80[\x02-\x05]|\s*\{.*\"(version|entries|pg_\w+|(comm_lib|nccl)_\w+)\"", re.DOTALL
)
_KEYS: Final = frozenset({"version", "entries", "pg_status", "pg_config"})


# File, line, function.
Frame = tuple[str, int, str]


class NoDump(Exception):  # noqa: N818  an answer
    """Why a file is no dump that can be read."""


@dataclass(frozen=True, slots=True)
class Dump:
    """What one rank wrote."""

    rank: int
    written_ns: int
    entries: tuple[Mapping[str, Any], ...]
    # How many ranks its largest group has; ``None``: it does not say.
    world_size: int | None = None
    # How many collectives of which group it has begun, where it has one group.
    begun: tuple[int, str] | None = None
    # Where its main thread is, the innermost first, if that was asked; else its entries may say.
    stack: tuple[Frame, ...] = ()


class _Plain(pickle.Unpickler):
    """Reads numbers, words, lists and dicts, and nothing that names code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse: a dump has no need of it."""
        raise NoDump(f"it names {module}.{name}, which no dump does")

    def persistent_load(self, _pid: Any) -> NoReturn:
        """Refuse, too."""
        raise NoDump("it refers to something outside of it, which no dump does")


def dumps_of(path: Path) -> list[Dump]:
    """Return the dumps of a folder, or of one file; none where there are no such files.

    What is no dump is passed over in a folder.
    """
    found = []
    for file in sorted(path.iterdir())[:MOST_FILES] if path.is_dir() else [path]:
        try:
            found.append(read(file))
        except NoDump:
            continue
    return sorted(found, key=lambda dump: dump.rank)


def read(path: Path) -> Dump:
    """Return one dump; raises NoDump."""
    rank = _RANK.fullmatch(path.name)
    try:
        stat = path.stat()
        if rank is None or not path.is_file() or not 0 < stat.st_size <= MOST_BYTES:
            raise NoDump("its name ends in no rank, or its size is none of a dump")
        with path.open("rb") as file:
            if not _HEAD.match(file.read(_HEAD_BYTES)):
                raise NoDump("it does not begin like one")
        raw = path.read_bytes()
    except OSError as error:
        raise NoDump(error.strerror or "it cannot be read") from None
    return of_bytes(raw, int(rank[1]), stat.st_mtime_ns)


def of_bytes(raw: bytes, rank: int, written_ns: int) -> Dump:
    """Return what a rank's recorder had then, a pickle or JSON; raises NoDump."""
    data = _loaded(raw)
    entries = data.get("entries") or []
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise NoDump("its entries are none")
    return Dump(rank, written_ns, tuple(entries), _world(data), _begun(data))


def _loaded(raw: bytes) -> dict[str, Any]:
    try:
        data = json.loads(raw) if raw[:1] == b"{" else _Plain(io.BytesIO(raw)).load()
    except NoDump:
        raise
    except Exception as error:  # noqa: BLE001  a damaged pickle raises anything
        raise NoDump(f"it is damaged ({type(error).__name__})") from None
    if not isinstance(data, dict) or not _KEYS & data.keys():
        raise NoDump("it has none of a dump's parts")
    return data


def _world(data: Mapping[str, Any]) -> int | None:
    sizes = []
    groups = data.get("pg_config")
    for each in groups.values() if isinstance(groups, dict) else ():
        ranks = each.get("ranks") if isinstance(each, dict) else None
        if isinstance(ranks, str):
            sizes.append(ranks.count(",") + 1)
    return max(sizes, default=None)


def _begun(data: Mapping[str, Any]) -> tuple[int, str] | None:
    try:
        (status,), (group,) = data["pg_status"].values(), data["pg_config"].values()
        return int(status["last_enqueued_collective"]), str(group["desc"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
