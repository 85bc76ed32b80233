"""The job's own modules, read without importing any and without running a line in them."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Anything else may run code of the job's.
_PLAIN: Any = type(sys).__getattribute__


class Missing(Exception):  # noqa: N818  another version, not a defect
    """Something is not where the versions we know have it."""


def names_of(module: Any) -> dict[str, Any] | None:
    """Return a module's namespace, ``None`` for one that an attribute access would import."""
    # A lazy one, of Python's own kind or anybody's, overrides attribute access.
    if type(module).__getattribute__ is not _PLAIN:
        return None
    try:
        found = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def loaded(name: str) -> dict[str, Any] | None:
    """Return the namespace of a module, ``None`` where it or its package is still being imported.

    By their dicts alone: an attribute access may run a module's ``__getattr__``, which may import.
    """
    top = name.partition(".")[0]
    names = None
    for each in (top, name):
        names = names_of(sys.modules.get(each))
        if names is None or getattr(names.get("__spec__"), "_initializing", False):
            return None
    return names


def is_coming(name: str) -> bool:
    """Tell whether a module's package is being imported; a lazy stand-in never is."""
    names = names_of(sys.modules.get(name.partition(".")[0]))
    return names is not None and getattr(names.get("__spec__"), "_initializing", False) is True


def need(module: str, *path: str) -> Any:
    """Return what a loaded module has at a path; raises Missing, which says what is not there."""
    found: Any = loaded(module)
    if found is None:
        raise Missing(f"no module {module}")
    where = module
    for name in path:
        names = found if isinstance(found, dict) else None
        value = names.get(name, Missing) if names is not None else getattr(found, name, Missing)
        where = f"{where}.{name}"
        if value is Missing:
            raise Missing(f"no {where}")
        found = value
    return found
