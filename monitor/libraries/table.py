"""The table of packages: those that we know, and the rows of whoever runs this.

Rows of one's own stand in a file of the same form: a package that ours does not name, or the whole
row of one that it does.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.core.errors import Problem

OURS: Final = Path(__file__).with_name("table.toml")
VARIABLE: Final = "WHYIDLE_LIBRARIES"
_NO_PACKAGES: Final = frozenset({"words", "calls", "packages"})
_ANYBODYS: Final = "anybodys"
_NO_ROLES: Final = frozenset({"is", "also"})


class Role(StrEnum):
    """What is done in a file or a function of a library."""

    # Whose work it is.
    LOADER = "loader"
    COMPILE = "compile"
    EAGER = "eager"
    PUT = "put"
    READ = "read"
    COPY = "copy"
    DRAW = "draw"
    COLLECTOR = "collector"
    TENSOR = "tensor"
    # What a loop does besides its steps.
    CHECKPOINT = "checkpoint"
    LOG = "log"
    BAR = "bar"
    METRIC = "metric"
    ENVIRONMENT = "environment"
    GENERATE = "generate"
    TOKENIZATION = "tokenization"
    VALIDATE = "validate"
    TRAIN = "train"
    # How a sample comes to be.
    FETCH = "fetch"
    RANDOM = "random"
    DISK = "disk"
    NETWORK = "network"
    START = "start"
    BEGIN = "begin"
    SHUFFLE = "shuffle"
    SHARE = "share"
    SEND = "send"
    TOKENIZE = "tokenize"
    UNPACK = "unpack"
    DECODE = "decode"
    HAND_OVER = "hand_over"
    COLLATE = "collate"
    TRANSFORM = "transform"
    # What a thread waits for, and who works beside the job.
    IDLE = "idle"
    ASIDE = "aside"
    COLLECTIVE = "collective"
    PEER = "peer"
    SPIN = "spin"
    # Whose loop it is, where a job has several parts.
    COMPUTES = "computes"
    SCHEDULES = "schedules"
    DETOKENIZES = "detokenizes"
    TURNS = "turns"
    PERSON = "person"
    LISTEN = "listen"
    CONNECTION = "connection"
    INPUT = "input"
    LOCK = "lock"
    CHILDREN = "children"
    IMPORT = "import"
    # What is only known by the name that is called.
    SYNC = "sync"
    SLEEP = "sleep"
    DISK_ALONE = "disk_alone"
    RANDOM_NUMBER = "random_number"
    RANDOM_TENSOR = "random_tensor"
    # Parts of one framework that one fault is about.
    RECOMPUTE = "recompute"
    ZERO = "zero"
    REPLICATE = "replicate"
    SPREAD = "spread"
    ENGINE = "engine"
    LAYER = "layer"
    LAUNCH = "launch"
    EXACT = "exact"
    OF_TENSORFLOW = "of_tensorflow"


class Kind(StrEnum):
    """Whose work the calls of a package are."""

    DEVICE = "device"
    ARRAYS = "arrays"
    HOST = "host"


@dataclass(frozen=True)
class Package:
    """What is known of one package."""

    kind: Kind
    parts: Mapping[Role, tuple[str, ...]]

    @cached_property
    def looks(self) -> Mapping[Role, re.Pattern[str]]:
        """What "file function" within it looks like where it plays a role."""
        return {role: re.compile("|".join(map(_look, each))) for role, each in self.parts.items()}


def _look(part: str) -> str:
    path, _, function = part.partition(" ")
    if path == "*":
        path = r"\S*"
    elif path.endswith("/"):
        path = rf"{path[:-1]}(?:/\S*)?"
    return rf"(?:{path}) (?:{function or '.*'})"


def read(path: Path) -> dict[str, Any]:
    """Read a file of rows; raises Problem."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read: {error}", "Correct it, or move it away.") from None


def rows(table: Mapping[str, Any], words: Mapping[str, str], path: Path) -> dict[str, Package]:
    """Return the packages of a file; raises Problem."""
    found: dict[str, Package] = {}
    for name, row in table.items():
        if name not in _NO_PACKAGES:
            try:
                package = Package(Kind(row.get("is", Kind.HOST)), dict(_parts(row, words)))
                found |= dict.fromkeys((name, *row.get("also", "").split()), package)
                # Ours are compiled once they are asked for.
                _ = path is OURS or package.looks
            except (AttributeError, KeyError, TypeError, ValueError, re.error) as error:
                raise Problem(f"{path}: [{name}]: {error}", f"See {OURS}.") from None
    try:
        for kind, names in table.get("packages", {}).items():
            if kind != _ANYBODYS:
                found |= dict.fromkeys(names.split(), Package(Kind(kind), {}))
    except (AttributeError, ValueError) as error:
        raise Problem(f"{path}: [packages]: {error}", f"See {OURS}.") from None
    return found


def _parts(
    row: Mapping[str, Any], words: Mapping[str, str]
) -> Iterator[tuple[Role, tuple[str, ...]]]:
    for role, said in row.items():
        if role not in _NO_ROLES:
            parts = [said] if isinstance(said, str) else said
            yield Role(role), tuple(_filled(part, words) for part in parts)


def _filled(part: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{([a-z]+)\}", lambda found: words[found[1]], part)


def own() -> Path | None:
    """Return the file of whoever runs this, where there is one."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  Path.home() raises where this gives "~"
    path = Path(folder) / "whyidle" / "libraries.toml"
    return path if path.is_file() else None


def _known(table: Mapping[str, Any]) -> dict[str, Package]:
    words = table["words"]
    found = rows(table, words, OURS)
    theirs = own()
    if theirs is not None:
        own_rows = read(theirs)
        found |= rows(own_rows, {**words, **own_rows.get("words", {})}, theirs)
    return found


_OURS: Final = read(OURS)
TABLE: Final = _known(_OURS)
# What the names that a line calls look like where they play a role.
CALLS: Final[Mapping[Role, str]] = {
    Role(role): said if isinstance(said, str) else "|".join(said)
    for role, said in _OURS["calls"].items()
}
# A folder of this name is surely the package.
PACKAGES: Final = frozenset(TABLE) - {*_OURS["packages"][_ANYBODYS].split()}
DEVICE_PACKAGES: Final = frozenset(x for x, row in TABLE.items() if row.kind is Kind.DEVICE)
ARRAY_PACKAGES: Final = frozenset(x for x, row in TABLE.items() if row.kind is Kind.ARRAYS)
