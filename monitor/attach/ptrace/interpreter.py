"""The CPython in a process: addresses of the few functions that we call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from whyidle.monitor.attach.ptrace import maps
from whyidle.monitor.attach.ptrace.elf import Image, NotElf, Read, image
from whyidle.monitor.attach.ptrace.maps import Mapping
from whyidle.monitor.attach.ptrace.refused import Refused
from whyidle.monitor.processes.procfs import PYPY

LIBRARY = re.compile(r"/libpython3[^/]*\.so")
# A process has one; files that only have such a name may be many.
_MOST_LIBRARIES = 8
# The name of a file that was replaced since ends with "(deleted)".
_LIBC = re.compile(r"/(libc\.so\.6|libc-2\.\d+\.so|(ld-|libc\.)musl-x86_64\.so\.1)( |$)")
_NEEDED = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyRun_SimpleString",
    "PyThread_start_new_thread",
    "Py_AddPendingCall",
    "Py_IsInitialized",
)
# Came with 3.9.
_NEW_ENOUGH = "PyObject_CallNoArgs"
# The loop that runs bytecode.
_LOOP = "_PyEval_EvalFrameDefault"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Addresses in the job."""

    functions: dict[str, int]
    errno: int
    loop: range
    # The files of the interpreter and of the C library.
    path: str
    libc: str


def find(memory: tuple[Mapping, ...], exe: str, read: Read) -> Interpreter:
    """Find the interpreter, or say why there is none that we can use."""
    if any(PYPY.search(m.path) for m in memory):
        raise Refused("It runs on PyPy; only CPython can be entered.")
    path, found = next(_images(memory, exe, read), ("", None))
    if found is None:
        raise Refused(
            "No CPython was found in it: another program, or one that hides its functions."
        )
    if found.function(_NEW_ENOUGH) is None:
        raise Refused("Its Python is older than 3.9.", "Run the job on Python 3.9 or newer.")
    functions = {name: _checked(found, name, memory) for name in _NEEDED}
    loop = found.function(_LOOP) or 0
    libc = next((m.path for m in memory if _LIBC.search(m.path)), "")
    return Interpreter(
        functions=functions,
        errno=_errno(libc, memory, read),
        loop=range(loop, loop + found.size(_LOOP)),
        path=path,
        libc=libc,
    )


def _images(memory: tuple[Mapping, ...], exe: str, read: Read) -> Iterator[tuple[str, Image]]:
    """Look first into a library of Python, then into the program itself."""
    paths = dict.fromkeys(m.path for m in memory if LIBRARY.search(m.path))
    for path in [*list(paths)[:_MOST_LIBRARIES], exe]:
        loaded = loaded_image(memory, path, read)
        if loaded is not None and loaded.function("PyGILState_Ensure") is not None:
            yield path, loaded


def loaded_image(memory: tuple[Mapping, ...], path: str, read: Read) -> Image | None:
    """Return a file's image, as it lies in memory."""
    start = next((m.start for m in memory if m.path == path and m.offset == 0), None)
    if start is None:
        return None
    try:
        return image(read, start)
    except NotElf as other:
        raise Refused(f"It is a program for another processor or of 32 bits ({other}).") from None
    except OSError:
        return None


def _checked(found: Image, name: str, memory: tuple[Mapping, ...]) -> int:
    address = found.function(name)
    if address is None:
        raise Refused(f"Its Python hides the function {name}.")
    where = maps.at(memory, address)
    if where is None or not where.runs:
        raise Refused(f"Its Python's function {name} is not where it should be.")
    return address


def _errno(libc: str, memory: tuple[Mapping, ...], read: Read) -> int:
    loaded = loaded_image(memory, libc, read) if libc else None
    if loaded is None:
        raise Refused("Its C library was not found: it is linked in, or an unknown one.")
    return _checked(loaded, "__errno_location", memory)
