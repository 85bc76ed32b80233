"""How a system call that we interrupted goes on: as if nothing had been, or with EINTR."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from whyidle.monitor.attach.ptrace.registers import Registers, signed

# What the kernel leaves in rax until it is known who takes the call up again.
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


class Comfort(IntEnum):
    """How good a place a thread waits at; lower is better."""

    BEST = 0
    GOOD = 1
    # The call ends with EINTR. Programs must bear that, but do not see it every day.
    EINTR = 2


def _always(comfort: Comfort) -> Callable[[Arguments], Comfort]:
    return lambda _: comfort


def _futex(arguments: Arguments) -> Comfort | None:
    command = arguments[1] & _FUTEX_COMMAND
    if command not in {_FUTEX_WAIT, _FUTEX_WAIT_BITSET}:
        return None
    # WAIT_BITSET waits until a moment, WAIT for a span: only the first may be asked anew.
    endless = arguments[3] == 0
    return Comfort.BEST if endless or command == _FUTEX_WAIT_BITSET else Comfort.EINTR


def _clock_nanosleep(arguments: Arguments) -> Comfort:
    return Comfort.BEST if arguments[1] & _TIMER_ABSTIME else Comfort.EINTR


def _endless(position: int) -> Callable[[Arguments], Comfort]:
    """Rate a call whose timeout, in ms, is an argument; a negative one waits for ever."""

    def rate(arguments: Arguments) -> Comfort:
        return Comfort.GOOD if arguments[position] >> 31 & 1 else Comfort.EINTR

    return rate


# Calls in which a thread waits and holds nothing. Others are left alone.
_WAITS: dict[int, Callable[[Arguments], Comfort | None]] = {
    _FUTEX: _futex,
    _CLOCK_NANOSLEEP: _clock_nanosleep,
    _PAUSE: _always(Comfort.BEST),
    _RT_SIGSUSPEND: _always(Comfort.GOOD),
    # They write back how long they still have to wait.
    **dict.fromkeys((_SELECT, _PSELECT6, _PPOLL), _always(Comfort.GOOD)),
    **dict.fromkeys((_WAIT4, _WAITID, _READ, _RECVFROM, _RECVMSG), _always(Comfort.GOOD)),
    **dict.fromkeys((_ACCEPT, _ACCEPT4), _always(Comfort.GOOD)),
    _POLL: _endless(2),
    **dict.fromkeys((_EPOLL_WAIT, _EPOLL_PWAIT), _endless(3)),
    _NANOSLEEP: _always(Comfort.EINTR),
}


def comfort(number: int, arguments: Arguments) -> Comfort | None:
    """Rate a system call as a place to stop a thread at; ``None``: do not."""
    rate = _WAITS.get(number)
    return None if rate is None else rate(arguments)


def number_of(registers: Registers) -> int:
    """Return the system call that a stopped thread is in; negative for none."""
    return signed(registers.orig_rax)


def comfort_of(registers: Registers) -> Comfort | None:
    """Rate where a stopped thread is; ``None`` for a call that we do not know, or none."""
    r = registers
    return comfort(number_of(r), (r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9))


def resumed(registers: Registers) -> Registers:
    """Return the registers with which a stopped thread goes on by itself.

    A call that was only interrupted by us is asked anew: then nobody sees that we were there. Where
    its time would begin again it is left to the kernel, whose memory of it the frame wipes: EINTR.
    """
    new, result = registers.copy(), signed(registers.rax)
    number = number_of(registers)
    if number < 0:
        return new
    repeats = result in _RESTARTS
    if result == _RESTART_BLOCK or (result == _EINTR and number in {_EPOLL_WAIT, _EPOLL_PWAIT}):
        repeats = comfort_of(registers) in {Comfort.BEST, Comfort.GOOD}
    if repeats:
        new.rax, new.rip = number, registers.rip - _INSTRUCTION
    elif result == _RESTART_BLOCK:
        new.rax, new.rip = _RESTART_SYSCALL, registers.rip - _INSTRUCTION
    return new
