"""Which package a file is of, and what is done in a function of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final, Protocol

from whyidle.monitor.libraries.table import CALLS, TABLE, Kind, Role
from whyidle.monitor.libraries.users import generated_by, is_users, package_at

_INSTALLED: Final = re.compile(r".*/(?:site|dist)-packages/(.+)")
_PYTHONS: Final = re.compile(r".*/(?:python|pypy)3[\d.]*t?/(.+)")
_ENDING: Final = re.compile(r"\.(pyx?|so)$")


class Line(Protocol):
    """Where a thread was found: a sample's line, or a finding's."""

    @property
    def file(self) -> str:
        """The path."""

    @property
    def function(self) -> str:
        """Its name."""


def plays(role: Role, *lines: Line | None) -> bool:
    """Tell whether a library does this at one of some lines."""
    return any(role in _roles(line.file, line.function) for line in lines if line is not None)


def roles(line: Line) -> frozenset[Role]:
    """Return all that a library does at a line; nothing where no library is known."""
    return _roles(line.file, line.function)


def kind_of(file: str) -> Kind | None:
    """Return whose work the calls of a file's package are; ``None``: no package is known."""
    found = _place(file)
    return None if found is None or found[0] not in TABLE else TABLE[found[0]].kind


@lru_cache(maxsize=16384)
def _roles(file: str, function: str) -> frozenset[Role]:
    found = _place(file)
    if found is None:
        return frozenset()
    package = TABLE.get(found[0]) or (TABLE["*"] if _INSTALLED.match(file) else None)
    if package is None:
        return frozenset()
    looks, at = package.looks, f"{found[1]} {function}"
    return frozenset(role for role, look in looks.items() if look.fullmatch(at))


def package_of(file: str) -> str | None:
    """Return the installed package that a file is of; Python's own library is none."""
    found = _INSTALLED.match(file)
    return generated_by(file) if found is None else re.split(r"[/.]", found[1], maxsplit=1)[0]


@lru_cache(maxsize=4096)
def _place(file: str) -> tuple[str, str] | None:
    """Return the package that a file is of, and the path within it without its ending."""
    if file.startswith("<"):
        name, _, rest = file.strip("<>").partition(".")
        return name, rest.replace(".", "/")
    if found := _INSTALLED.match(file):
        return _split(found[1])
    if generated_by(file):
        return _split(file.rpartition("/")[2].removesuffix(".py").replace(".", "/"))
    if is_users(file):
        return None
    if found := _PYTHONS.match(file):
        return "python", _ENDING.sub("", found[1])
    # A checkout of its repository, or a path that was cut: from the package on.
    folders = file.replace("\\", "/").split("/")
    return _split("/".join(folders[package_at(folders) or 0 :]))


def _split(path: str) -> tuple[str, str]:
    name, _, rest = _ENDING.sub("", path).partition("/")
    return name, rest


def is_call(role: Role, names: Iterable[str]) -> bool:
    """Tell whether one of some names, as they are called, does this."""
    looks = _look_of_calls(role)
    return looks is not None and any(map(looks.fullmatch, names))


@cache
def _look_of_calls(role: Role) -> re.Pattern[str] | None:
    return re.compile(CALLS[role]) if role in CALLS else None


def is_module(role: Role, module: str) -> bool:
    """Tell whether a module, as it is imported, is one that does this."""
    name, _, rest = module.partition(".")
    look = TABLE[name].looks.get(role) if name in TABLE else None
    return look is not None and look.fullmatch(f"{rest.replace('.', '/')} ") is not None


def first(wanted: Iterable[Role], *lines: Line | None) -> Role | None:
    """Return the first of some roles that a library plays at one of these lines."""
    return next((role for role in wanted if plays(role, *lines)), None)
