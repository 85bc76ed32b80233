"""Kineto, the library behind PyTorch's profiler, where Python has no interface to it.

It writes to the job's standard error whenever a profile begins or ends. The severity from which it
does is a variable that its library exports: we set it for moments, and then restore it. Where it is
not found for certain, there is no trace. Regardless of it, Kineto also writes when the first
profile begins on another thread than the one that imported PyTorch: then there is none, either.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from time import monotonic_ns

from ..modules import Missing, need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Above all levels: Kineto's own end at 5, which its environment variable cannot silence.
SILENT = 6
_LEVEL = "_ZN9libkineto6Logger14severityLevel_E"
_API = "_ZN9libkineto3apiEv"
_LOADER = "_ZN9libkineto12ConfigLoader8instanceEv"
_IS_ACTIVE = "_ZN9libkineto21ActivityProfilerProxy8isActiveEv"
# What LibkinetoApi begins with: a reference, the profiler, the client, and the client's thread.
_REFERENCE, _PROFILER, _CLIENT = range(3)
_THREAD_OFFSET = 24
# What its profiler begins with: its methods, a flag, that reference, and its controller.
_PROFILER_REFERENCE, _CONTROLLER = 2, 3
# Nobody's first profile takes longer to get ready.
READY_NS = 10_000_000_000


class Kineto:
    """What its library exports; raises Missing where that is not as we know it."""

    def __init__(self, main: int) -> None:
        ctypes = need("ctypes")
        lib = _library(ctypes)
        try:
            self._level = ctypes["c_int"].in_dll(lib, _LEVEL)
            api, loader, active = (getattr(lib, name) for name in (_API, _LOADER, _IS_ACTIVE))
        except (AttributeError, ValueError):
            raise Missing("no way to keep this version of Kineto from printing") from None
        api.restype = loader.restype = ctypes["c_void_p"]
        active.restype, active.argtypes = ctypes["c_bool"], [ctypes["c_void_p"]]
        self._is_active = active
        self._bare_since = 0
        place = api()
        self._pointer = ctypes["c_void_p"]
        self._words = (self._pointer * 3).from_address(place)
        if self._words[_REFERENCE] != loader():
            raise Missing("this version of Kineto is another one than we know")
        thread = ctypes["c_int32"].from_address(place + _THREAD_OFFSET).value
        mine = ctypes["c_int32"](main & 0xFFFFFFFF).value
        if not self._is_registered() and not (self._words[_CLIENT] and thread == mine):
            raise Missing("not the main thread imported torch, and Kineto would say so")
        # For callers that may run no line of Python: read the level, and silence all.
        self.ask = partial(getattr, self._level, "value")
        self.hush = partial(setattr, self._level, "value", SILENT)

    def restore(self, level: int) -> None:
        """Restore the level, so that it writes as before."""
        self._level.value = level

    def is_active(self) -> bool:
        """Tell whether anybody's profile is on or about to begin."""
        if not self._is_registered():
            return False
        profiler = (self._pointer * 4).from_address(self._words[_PROFILER])
        if profiler[_PROFILER_REFERENCE] != self._words[_REFERENCE]:
            raise Missing("this version of Kineto is another one than we know")
        if profiler[_CONTROLLER]:
            return bool(self._is_active(self._words[_PROFILER]))
        # Somebody's first profile is being prepared: a call to it now would end the process.
        self._bare_since = self._bare_since or monotonic_ns()
        return monotonic_ns() - self._bare_since < READY_NS

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Keep it silent for a moment."""
        before = self._level.value
        self._level.value = SILENT
        try:
            yield
        finally:
            self._level.value = before

    def _is_registered(self) -> bool:
        return bool(self._words[_PROFILER])


def _library(ctypes: Any) -> Any:
    folder = os.path.dirname(need("torch", "__file__"))
    try:
        # Only what is loaded already.
        mode = os.RTLD_NOLOAD | os.RTLD_NOW
        return ctypes["CDLL"](f"{folder}/lib/libtorch_cpu.so", mode=mode)
    except OSError:
        raise Missing("no library of torch's where it should be") from None
