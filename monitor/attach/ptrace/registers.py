"""The calls of ptrace(2) that are used here, and a thread's registers."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import ClassVar

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_GETREGS, _SETREGS, _GETREGSET = 12, 13, 0x4204
_PEEKSIGINFO, _GETSIGMASK, _GET_RSEQ = 0x4209, 0x420A, 0x420F
_NT_X86_XSTATE = 0x202
_SHARED = 1
_SIGINFO_BYTES, _MOST_SIGNALS = 128, 16
# The largest state that a processor has today is 11 KB.
_XSTATE_ROOM = 1 << 15
MAX = (1 << 64) - 1

_NAMES = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx"),
    *("rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base"),
    *("gs_base", "ds", "es", "fs", "gs"),
)


class Registers(ctypes.Structure):
    """``struct user_regs_struct``."""

    rax: int
    rcx: int
    rdx: int
    rsi: int
    rdi: int
    r10: int
    rsp: int
    rip: int
    cs: int
    ss: int
    eflags: int
    fs_base: int
    orig_rax: int
    _fields_: ClassVar = [(name, ctypes.c_ulonglong) for name in _NAMES]

    def copy(self) -> Registers:
        """Return another with the same values."""
        return Registers.from_buffer_copy(self)


class _Vector(ctypes.Structure):
    _fields_: ClassVar = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def signed(word: int) -> int:
    """Read a register as a number with a sign."""
    return word - (1 << 64) if word >> 63 else word


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
# Allocated before any thread is stopped: while one stands still nothing large is.
_xstate = ctypes.create_string_buffer(_XSTATE_ROOM)
_signals = ctypes.create_string_buffer(_SIGINFO_BYTES * _MOST_SIGNALS)


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> int:
    ctypes.set_errno(0)
    result = int(_libc.ptrace(request, tid, address, data))
    if result == -1 and (number := ctypes.get_errno()):
        raise OSError(number, os.strerror(number))
    return result


def seize(tid: int) -> None:
    """Become the tracer of a thread, which goes on running."""
    _ptrace(_SEIZE, tid)


def interrupt(tid: int) -> None:
    """Ask a seized thread to stop."""
    _ptrace(_INTERRUPT, tid)


def detach(tid: int, signal: int = 0) -> None:
    """Let a stopped thread go on, with the signal that it was about to get."""
    _ptrace(_DETACH, tid, 0, signal)


def registers(tid: int) -> Registers:
    """Return the registers of a stopped thread."""
    got = Registers()
    _ptrace(_GETREGS, tid, 0, ctypes.addressof(got))
    return got


def set_registers(tid: int, new: Registers) -> None:
    """Change all registers at once. The kernel changes all of them or none."""
    _ptrace(_SETREGS, tid, 0, ctypes.addressof(new))


def xstate(tid: int) -> bytes:
    """Return the floating-point and vector registers, in the processor's own format."""
    vector = _Vector(ctypes.addressof(_xstate), _XSTATE_ROOM)
    _ptrace(_GETREGSET, tid, _NT_X86_XSTATE, ctypes.addressof(vector))
    return _xstate.raw[: vector.length]


def signal_mask(tid: int) -> int:
    """Return the signals that a stopped thread blocks: bit 0 is signal 1."""
    mask = ctypes.c_uint64()
    _ptrace(_GETSIGMASK, tid, 8, ctypes.addressof(mask))
    return mask.value


def awaits_signal(tid: int, mask: int) -> bool:
    """Tell whether a signal that the thread does not block is on its way to it."""
    for flags in (0, _SHARED):
        ask = ctypes.create_string_buffer(struct.pack("<QIi", 0, flags, _MOST_SIGNALS))
        count = _ptrace(_PEEKSIGINFO, tid, ctypes.addressof(ask), ctypes.addressof(_signals))
        for i in range(count):
            (number,) = struct.unpack_from("<i", _signals, i * _SIGINFO_BYTES)
            if not mask >> (number - 1) & 1:
                return True
    return False


def rseq_area(tid: int) -> int:
    """Return where the thread keeps its restartable sequence; 0 for none."""
    area = ctypes.create_string_buffer(24)
    try:
        _ptrace(_GET_RSEQ, tid, 24, ctypes.addressof(area))
    except OSError:  # a kernel before 5.13
        return 0
    return int(struct.unpack_from("<Q", area)[0])
