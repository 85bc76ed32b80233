"""Waking the main thread where it sleeps in C, as a signal does: for what cannot wait.

Where Python waits for a lock it then does what was asked of its main thread, and sleeps on. The
signal is one that nobody in the process has a use for. Its handler is a function of C that does
nothing and stays: the signal may still be on its way when we have long gone.
"""

from __future__ import annotations

import signal

from .modules import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What a process knows of a signal is no larger, on any Linux; the handler comes first.
_WORDS = 64


def rouse(main: int) -> bool:
    """Wake the main thread; tells whether it could be tried."""
    ctypes = loaded("ctypes")
    if ctypes is None:
        return False
    number = _number(ctypes)
    if number is not None:
        signal.pthread_kill(main, number)
    return number is not None


def _number(ctypes: dict[str, Any]) -> int | None:
    """Return a signal that does nothing, made so if need be; ``None`` where all are in use."""
    lib = ctypes["CDLL"](None)
    nothing = ctypes["cast"](lib["abs"], ctypes["c_void_p"])
    install = lib["signal"]
    install.argtypes = [ctypes["c_int"], ctypes["c_void_p"]]
    install.restype = ctypes["c_void_p"]
    known = (ctypes["c_void_p"] * _WORDS)()
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if lib["sigaction"](number, None, known) != 0 or known[0] not in (None, nothing.value):
            continue
        if known[0] is None:
            install(number, nothing)
        # Else it would sleep on without a look.
        lib["siginterrupt"](number, 1)
        return number
    return None
