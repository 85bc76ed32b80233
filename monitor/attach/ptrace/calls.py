"""How a system call that we interrupted goes on: as if nothing had happened, or with EINTR."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from whyidle.monitor.attach.ptrace.registers import Registers, signed

# What the kernel leaves in rax until it is decided how the call restarts.
_RESTARTS = {-512, -513, -514}
_RESTART_BLOCK = -516
_EINTR = -4
_RESTART_SYSCALL = 219
_READ, _POLL, _SELECT, _PAUSE, _NANOSLEEP = 0, 7, 23, 34, 35
_ACCEPT, _RECVFROM, _RECVMSG, _WAIT4 = 43, 45, 47, 61
_RT_SIGSUSPEND, _FUTEX, _CLOCK_NANOSLEEP = 130, 202, 230
_EPOLL_WAIT, _WAITID, _PSELECT6, _PPOLL, _EPOLL_PWAIT, _ACCEPT4 = 232, 247, 270, 271, 281, 288
_FUTEX_WAIT, _FUTEX_WAIT_BITSET, _FUTEX_COMMAND = 0, 9, 0x7F
_TIMER_ABSTIME = 1
_INSTRUCTION = 2  # bytes of `syscall`

Arguments = tuple[int, ...]


class Interruptibility(IntEnum):
    """How well a waiting thread can be interrupted; lower is better."""

    BEST = 0
    GOOD = 1
    # The call ends with EINTR. Programs must bear that, but do not see it every day.
    EINTR = 2


def _always(rating: Interruptibility) -> Callable[[Arguments], Interruptibility]:
    return lambda _: rating


def _futex(arguments: Arguments) -> Interruptibility | None:
    command = arguments[1] & _FUTEX_COMMAND
    if command not in {_FUTEX_WAIT, _FUTEX_WAIT_BITSET}:
        return None
    # WAIT_BITSET waits until a moment, WAIT for a span: only the first may be repeated.
    endless = arguments[3] == 0
    return (
        Interruptibility.BEST
        if endless or command == _FUTEX_WAIT_BITSET
        else Interruptibility.EINTR
    )


def _clock_nanosleep(arguments: Arguments) -> Interruptibility:
    return Interruptibility.BEST if arguments[1] & _TIMER_ABSTIME else Interruptibility.EINTR


def _endless(position: int) -> Callable[[Arguments], Interruptibility]:
    """Rate a call with a timeout in ms as argument; a negative one waits for ever."""

    def rate(arguments: Arguments) -> Interruptibility:
        return Interruptibility.GOOD if arguments[position] >> 31 & 1 else Interruptibility.EINTR

    return rate


# Calls in which a thread waits and holds nothing. Others are left alone.
_WAITS: dict[int, Callable[[Arguments], Interruptibility | None]] = {
    _FUTEX: _futex,
    _CLOCK_NANOSLEEP: _clock_nanosleep,
    _PAUSE: _always(Interruptibility.BEST),
    _RT_SIGSUSPEND: _always(Interruptibility.GOOD),
    # They write back how long they still have to wait.
    **dict.fromkeys((_SELECT, _PSELECT6, _PPOLL), _always(Interruptibility.GOOD)),
    **dict.fromkeys((_WAIT4, _WAITID, _READ, _RECVFROM, _RECVMSG), _always(Interruptibility.GOOD)),
    **dict.fromkeys((_ACCEPT, _ACCEPT4), _always(Interruptibility.GOOD)),
    _POLL: _endless(2),
    **dict.fromkeys((_EPOLL_WAIT, _EPOLL_PWAIT), _endless(3)),
    _NANOSLEEP: _always(Interruptibility.EINTR),
}


def interruptibility(number: int, arguments: Arguments) -> Interruptibility | None:
    """Rate a system call as a point to stop a thread at; ``None``: leave it alone."""
    rate = _WAITS.get(number)
    return None if rate is None else rate(arguments)


def number_of(registers: Registers) -> int:
    """Return the number of the system call that a stopped thread is in; negative for none."""
    return signed(registers.orig_rax)


def interruptibility_of(registers: Registers) -> Interruptibility | None:
    """Rate where a stopped thread is; ``None`` in an unknown system call, or in none."""
    r = registers
    return interruptibility(number_of(r), (r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9))


def resumed(registers: Registers) -> Registers:
    """Return the registers with which a stopped thread goes on by itself.

    A call that only we interrupted is repeated: nobody sees that we were there. Where its timeout
    would begin again it is left to the kernel, which forgets it at our frame: EINTR.
    """
    new, result = registers.copy(), signed(registers.rax)
    number = number_of(registers)
    if number < 0:
        return new
    repeats = result in _RESTARTS
    if result == _RESTART_BLOCK or (result == _EINTR and number in {_EPOLL_WAIT, _EPOLL_PWAIT}):
        repeats = interruptibility_of(registers) in {Interruptibility.BEST, Interruptibility.GOOD}
    if repeats:
        new.rax, new.rip = number, registers.rip - _INSTRUCTION
    elif result == _RESTART_BLOCK:
        new.rax, new.rip = _RESTART_SYSCALL, registers.rip - _INSTRUCTION
    return new
