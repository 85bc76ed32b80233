"""The text that brings the agent into a job: everything inline, as the job may not see our files.

Only one statement runs in the job's ``__main__``; it binds no name and starts a thread, which runs
``agents/loader.py``. Modules are cut into pieces that compile in well under a millisecond each.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from whyidle.agents import wire
from whyidle.monitor.core.pace import breathe, unhurried

OLDEST_PYTHON = (3, 9)
# The monitor imports nothing else of the agents: to it they are text.
FOLDER = Path(wire.__file__).parent
LOADER = "loader"
# About 0.5 ms to compile.
PIECE_CHARACTERS = 2000

# gevent's threads run inside the job's own: the agent would block it. Python 3.9 and 3.10 crash
# when a thread begins while they exit: the exit waits for ours until the loader releases it.
_START = """\
try:
    __import__("builtins").exec({begin}, {{
        "loader": {loader}, "names": {{"__name__": {name}, "arguments": {arguments}}}
    }})
except BaseException:
    pass
"""
_BEGIN = f"""\
import _thread, atexit, sys
if (sys.version_info >= {OLDEST_PYTHON} and not sys.is_finalizing()
        and type(_thread.start_new_thread) is type(len)):
    leaving, ended = [], _thread.allocate_lock()
    names["arguments"] += (leaving, ended),
    atexit.register(ended.acquire, True, 1.0)
    atexit.register(leaving.append, True)
    try:
        ended.acquire()
        _thread.start_new_thread(exec, (loader, names))
    except BaseException:
        ended.release()
        raise
"""
_Module = tuple[str, bool, list[str]]
_QUOTES = '"""'
# At the beginning of a line they belong to the statement before.
_RESTS = ("else:", "elif ", "except", "finally:")


def prepare() -> None:
    """Build what all texts have in common, at the pace that the job leaves, before any is asked."""
    with unhurried():
        _agent(FOLDER)


def payload(options: dict[str, Any], folder: Path = FOLDER) -> str:
    """Return Python source that starts the agent in whatever process runs it."""
    loader, modules, digest = _agent(folder)
    return _START.format(
        begin=ascii(_BEGIN),
        loader=ascii(f"{loader}\nload(*arguments)\n"),
        name=ascii(f"{wire.PACKAGE}_{LOADER}"),
        arguments=ascii((wire.PACKAGE, digest, modules, dict(sorted(options.items())))),
    )


@cache
def _agent(folder: Path) -> tuple[str, list[_Module], str]:
    """Return the loader's text, the modules in the order of their imports, and their digest."""
    texts = {_name(path, folder): path.read_text("utf-8") for path in folder.rglob("*.py")}
    packages = {_name(path, folder) for path in folder.rglob("__init__.py")}
    loader = texts.pop(LOADER)
    # Sorted: the same agent must give the same text.
    order = TopologicalSorter(
        {n: sorted(set(_needs(n, t, set(texts), packages))) for n, t in sorted(texts.items())}
    )
    modules = [(n, n in packages, pieces(texts[n])) for n in order.static_order()]
    digest = hashlib.sha256(repr([loader, modules]).encode()).hexdigest()[:16]
    return "\n".join(without_comments(loader)), modules, digest


def _name(path: Path, folder: Path) -> str:
    """Return the module's name inside the package; empty for the package itself."""
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _needs(name: str, text: str, known: set[str], packages: set[str]) -> Iterator[str]:
    """Yield the modules that must be there before this one: its package, and what it imports.

    What is imported inside functions, or for type checkers alone, may come in any order.
    """
    top = wire.PACKAGE
    within = name if name in packages else name.rpartition(".")[0]
    if name:
        yield name.rpartition(".")[0]
    imports = "".join(each for each in statements(text) if each.startswith("from ."))
    for node in ast.parse(imports).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        base = resolve_name("." * node.level + (node.module or ""), f"{top}.{within}".rstrip("."))
        named = (f"{base}.{alias.name}" for alias in node.names)
        for found in (base, *named):
            inside = found.removeprefix(top).removeprefix(".")
            if inside in known and inside != name:
                yield inside


def pieces(text: str) -> list[str]:
    """Cut a module between its top-level statements."""
    found: list[str] = []
    for statement in statements(text):
        if statement.startswith("from __future__"):
            continue
        if found and len(found[-1]) + len(statement) <= PIECE_CHARACTERS:
            found[-1] += statement
        else:
            found.append(statement)
    return found


def statements(text: str) -> Iterator[str]:
    """Yield the top-level statements, by how our formatter sets them.

    A parser would take a core for a third of a second at each start, beside a job that has none to
    spare; the tests hold every file against one.
    """
    breathe()
    lines: list[str] = []
    for line in without_comments(text):
        begins = line[:1].isalpha() or line[:1] in "_@"
        is_rest = line.startswith(_RESTS) or (lines and lines[-1].startswith("@"))
        if lines and begins and not is_rest:
            yield "\n".join(lines) + "\n"
            lines = []
        lines.append(line)
    if lines:
        yield "\n".join(lines) + "\n"


def without_comments(text: str) -> Iterator[str]:
    """Yield the lines that the job need compile: no comment of a line, no docstring."""
    quoted = False
    for line in text.splitlines():
        bare = line.strip()
        if quoted:
            quoted = not bare.endswith(_QUOTES)
        elif bare.startswith(_QUOTES):
            # It may be all that a function has; before that of a file may stand nothing.
            if indent := line[: len(line) - len(line.lstrip())]:
                yield f"{indent}pass"
            quoted = bare == _QUOTES or not bare.endswith(_QUOTES)
        elif bare and not bare.startswith("#"):
            yield line
