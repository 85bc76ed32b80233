"""Whose code a file is: the user's own, or that of Python, a framework or an installed package."""

from __future__ import annotations

import os
import sys

from .modules import names_of
from .wire import AUTOGRAPH, FRAMEWORKS, TYPED_IN

INSTALLED = ("/site-packages/", "/dist-packages/")
# Results are cached, but a job may make up names without end.
MOST_KNOWN = 10_000


class CodeOwner:
    """Decides whose a file is, and remembers it."""

    __slots__ = ("_known", "_python")

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        places = [os.path.dirname(getattr(os, "__file__", "") or "")]
        places += [f"{prefix}/bin" for prefix in (sys.prefix, sys.base_prefix)]
        self._python = tuple(f"{place}/" for place in places if place)

    def is_users(self, file: str) -> bool:
        """Tell whether a line of this file is the user's own."""
        found = self._known.get(file)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[file] = self._look(file)
        return found

    def _look(self, file: str) -> bool:
        if file.startswith("<"):
            return file.startswith(TYPED_IN)
        if AUTOGRAPH in file:
            return False
        if file.startswith(self._python) or any(part in file for part in INSTALLED):
            return False
        return not file.startswith(_frameworks())


def _frameworks() -> tuple[str, ...]:
    found = []
    for name in FRAMEWORKS:
        # By its namespace: an attribute of the module itself may run a loader of the job's.
        file = (names_of(sys.modules.get(name)) or {}).get("__file__")
        if isinstance(file, str) and "/" in file:
            found.append(os.path.dirname(file) + "/")
    return tuple(found)
