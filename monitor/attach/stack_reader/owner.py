"""Whose code a file of a job is, seen from outside; as the agent decides it inside.

``agents/code_owner.py`` asks the job's Python where its parts lie. From outside its program, its
environment and the libraries that are mapped say so; a framework that is nothing but Python and
installed nowhere is taken for the user's.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from whyidle.agents.wire import AUTOGRAPH, FRAMEWORKS, TYPED_IN
from whyidle.monitor.processes.target import Target

_NOT_THE_USERS = re.compile(r"/(?:site|dist)-packages/|(?:^|/)lib(?:64)?/python\d+\.\d+t?/")
_FRAMEWORK = re.compile(rf"(/.*?/(?:{'|'.join(FRAMEWORKS)})/).*\.so")
# Results are kept, but a job may make up names without end.
MOST_KNOWN = 10_000


class CodeOwner:
    """Decides whose a file is, and remembers it."""

    def __init__(self, target: Target) -> None:
        self._known: dict[str, bool] = {}
        self._others = (*_programs(target), *_frameworks(target))

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
        return not (file.startswith(self._others) or _NOT_THE_USERS.search(file))


def _programs(target: Target) -> set[str]:
    """Return the folders in which installed packages put programs beside that of Python."""
    fs, pid = target.fs, target.pid
    programs = [target.exe or "", *(fs.arguments(pid) or [])[:1]]
    home = (fs.environment(pid) or {}).get("VIRTUAL_ENV")
    if home:
        programs.append(f"{home}/bin/python")
    return {f"{PurePath(path).parent}/" for path in programs if path.startswith("/")}


def _frameworks(target: Target) -> set[str]:
    """Return the folders of frameworks that were built from source, by the libraries in them."""
    found = {m[1] for file in target.files or () if (m := _FRAMEWORK.match(file))}
    root = f"{target.fs.root}/{target.pid}/root"
    return {folder for folder in found if Path(f"{root}{folder}__init__.py").is_file()}
