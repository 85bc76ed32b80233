"""What the kernel needs to bring a thread back: the frame that `rt_sigreturn` reads.

`stacked` lays out calls that a thread makes one after another, and after them the frame of the
state that it was in. Each call returns to the restorer, which asks the kernel for the next frame.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from whyidle.monitor.attach.ptrace.registers import MAX, Registers

# The kernel's struct ucontext and struct sigcontext.
_CONTEXT_BYTES = 304
_FLAGS = 0b111  # has vector state; has ss; restore ss to the letter
_ORDER = (
    *(f"r{n}" for n in range(8, 16)),
    *("rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip", "eflags"),
)
# Below the stack pointer a function may keep 128 bytes that no signal touches.
_RED_ZONE = 128
_ALIGNMENT = 64
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
# Direction, single step, resume, alignment check: none of them may hold in a called function.
_UNWANTED_FLAGS = 0x400 | 0x100 | 0x10000 | 0x40000


class Call(NamedTuple):
    """A function, or a system call by its number, to be called."""

    address: int
    arguments: tuple[int, ...] = ()
    number: int = 0


class State(NamedTuple):
    """All that a thread needs to go on."""

    registers: Registers
    xstate: bytes
    mask: int


class Stacked(NamedTuple):
    """Bytes for the thread's stack, and the registers that begin the first call."""

    address: int
    data: bytes
    registers: Registers


def context(registers: Registers, mask: int, vector_state: int = 0) -> bytes:
    """Return the frame's fixed part. Without vector state the kernel begins with a fresh one."""
    # A signal stack of no size is refused by the kernel, which then keeps the one that is set.
    head = struct.pack("<QQQiiQ", _FLAGS, 0, 0, 0, 0, 0)
    general = struct.pack("<18Q", *(getattr(registers, name) for name in _ORDER))
    segments = struct.pack("<4H", registers.cs, 0, 0, registers.ss)
    faults, reserved = bytes(32), bytes(64)
    parts = (head, general, segments, faults, struct.pack("<Q", vector_state), reserved)
    return b"".join(parts) + struct.pack("<Q", mask)


def stacked(calls: tuple[Call, ...], state: State, restorer: int) -> Stacked:
    """Lay out the calls below the thread's stack; nothing that is in use is touched."""
    top = state.registers.rsp - _RED_ZONE
    vectors = (top - len(state.xstate)) & -_ALIGNMENT
    at = (vectors - _CONTEXT_BYTES) & -_ALIGNMENT
    frame = context(state.registers, state.mask, vectors).ljust(vectors - at, b"\0")
    data = frame + state.xstate
    for call in reversed(calls[1:]):
        data = struct.pack("<Q", restorer) + data
        calling = begin(state.registers, call, at - 8)
        room = -(-(_CONTEXT_BYTES + 8) // _ALIGNMENT) * _ALIGNMENT
        data = context(calling, state.mask).ljust(room - 8, b"\0") + data
        at -= room
    data = struct.pack("<Q", restorer) + data
    return Stacked(at - 8, data, begin(state.registers, calls[0], at - 8))


def begin(registers: Registers, call: Call, stack: int) -> Registers:
    """Return the registers that begin a call."""
    new = registers.copy()
    new.rip, new.rsp, new.rax = call.address, stack, call.number
    # The kernel must not restart a system call when the thread goes on: the frame does.
    new.orig_rax = MAX
    new.eflags &= ~_UNWANTED_FLAGS
    for name, value in zip(_ARGUMENTS, call.arguments, strict=False):
        setattr(new, name, value & MAX)
    # The fourth argument: functions want it in rcx, system calls in r10.
    new.r10 = new.rcx
    return new
