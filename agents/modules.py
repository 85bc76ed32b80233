"""The job's own modules, looked at without importing any and without running a line of theirs."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Missing(Exception):  # noqa: N818  another version, not a defect
    """Something is not where the versions that we know have it."""


def loaded(name: str) -> dict[str, Any] | None:
    """Return the namespace of a module, ``None`` where it or its package is still being imported.

    By their dicts alone: asking a module may run its ``__getattr__``, which may import.
    """
    top = name.partition(".")[0]
    for each in {top, name}:
        module = sys.modules.get(each)
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            return None
        if getattr(names.get("__spec__"), "_initializing", False):
            return None
    return sys.modules[name].__dict__


def need(module: str, *path: str) -> Any:
    """Return what a loaded module has under a name, or deeper; raises Missing, which says what."""
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
