"""Several pieces of a job's memory, read in one system call.

A thread goes on while it is read: the less time between the pieces, the more often they fit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from whyidle.monitor.attach.ptrace.memory import Memory

Piece = tuple[int, int]


class _Vector(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _system_call() -> ctypes._NamedFuncPointer | None:
    """Return the C library's function, if it has it."""
    found = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if found is not None:
        vector, count = ctypes.POINTER(_Vector), ctypes.c_ulong
        found.restype = ctypes.c_ssize_t
        found.argtypes = [ctypes.c_int, vector, count, vector, count, ctypes.c_ulong]
    return found


class Pieces:
    """Reads pieces by (address, size).

    The call names a process by its number, which may be another's by now: only what is read through
    ``Memory`` besides shows that it is not. Some containers forbid it: then each piece has a call.
    """

    def __init__(self, pid: int, memory: Memory) -> None:
        self._pid, self._memory = pid, memory
        self._call = _system_call()
        self._room = ctypes.create_string_buffer(4096)

    def read(self, pieces: Sequence[Piece]) -> list[bytes]:
        """Return each piece; where one cannot be read this is an ``OSError``."""
        whole = sum(size for _, size in pieces)
        if not self._at_once(pieces, whole):
            return [self._memory.read(*piece) for piece in pieces]
        raw, found, at = ctypes.string_at(self._room, whole), [], 0
        for _, size in pieces:
            found.append(raw[at : at + size])
            at += size
        return found

    def _at_once(self, pieces: Sequence[Piece], whole: int) -> bool:
        if self._call is None:
            return False
        if len(self._room) < whole:
            self._room = ctypes.create_string_buffer(whole)
        here = _Vector(ctypes.addressof(self._room), whole)
        there = (_Vector * len(pieces))(*(_Vector(*piece) for piece in pieces))
        return bool(self._call(self._pid, here, 1, there, len(pieces), 0) == whole)
