"""Traces of TensorFlow: a session of its profiler, under the lock that the user's own takes.

A user who calls ``tf.profiler.experimental.start`` meanwhile, or Keras' TensorBoard for them, waits
until ours has ended, and then gets theirs. With theirs on there is none of ours.
"""

from __future__ import annotations

import _thread
import os
from contextlib import suppress

from ..modules import loaded, need
from ..session_tracer import SessionTracer
from ..tracer import Refused, TakenWindow
from ..wire import TRACE_FILE_CAP, clock_pair
from .internals import CONTEXT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..folder import Folder
    from ..main_thread import MainThreadCall
    from ..trace_files import TraceFile

MODULE = "tensorflow.python.profiler.profiler_v2"
_USED = "the job profiles itself with tf.profiler"
# Each session writes four lines to the job's stderr where this is not set to leave them out. It is
# read when TensorFlow begins, and never again.
_QUIET = b"TF_CPP_MIN_LOG_LEVEL"
_WRITES = (
    "TensorFlow's profiler would write to the job's stderr; it does not where the job was started "
    "with TF_CPP_MIN_LOG_LEVEL=1"
)


class TensorFlowTracer(SessionTracer):
    """Takes traces of TensorFlow."""

    framework = "tensorflow"
    profiler = MODULE

    def __init__(self, folder: Folder, main_call: MainThreadCall) -> None:
        super().__init__(main_call)
        self._folder = folder

    def is_used(self) -> bool:
        """Tell whether TensorFlow has devices."""
        context = (loaded(CONTEXT) or {}).get("_context")
        return bool(getattr(context, "_logical_devices", None))

    def check(self) -> None:
        """Check that it can trace now; raises Refused and Missing, which say why not."""
        if not self.is_used():
            raise Refused("TensorFlow has not used a device yet")
        need(MODULE, "_pywrap_profiler", "ProfilerSession")
        if not _has_devices():
            raise Refused("TensorFlow computes on the CPU, whose work its profiler does not show")
        if not _is_quiet():
            raise Refused(_WRITES)
        if _lock_of_profiler().locked():
            raise Refused(_USED)
        _check_free()
        torch = loaded("torch.autograd.profiler")
        if torch is not None and torch.get("_is_profiler_enabled"):
            raise Refused("the job profiles itself with torch.profiler")

    def start(self, _length_ns: int) -> None:
        """Begin a session under the lock; what is traced is a GPU, if anything."""
        self.check()
        self.end_on_main()
        lock = _lock_of_profiler()
        if not lock.acquire(False):
            raise Refused(_USED)
        self.lock = lock
        try:
            _check_free()
            session = need(MODULE, "_pywrap_profiler", "ProfilerSession")()
            self.began = clock_pair()
            # What is left out is as in the user's own: Python's calls are not traced.
            session.start(self._path(), {})
            self.open(session, session.export_to_tb)
        except BaseException:
            self.abort()
            raise

    def save(self, file: TraceFile) -> TakenWindow:
        """Keep what the session has written."""
        try:
            _, window = self.take()
            self.rest(lambda: file.write(_content(self._path())))
        finally:
            _remove(self._path())
        return window

    def _path(self) -> str:
        """Return the folder that TensorFlow writes to, valid wherever ours is moved."""
        return f"/proc/self/fd/{self._folder.number}/{os.getpid()}.tensorflow"


def _content(path: str) -> bytes:
    """Return the file that a session has written; raises OSError where there is not one."""
    for folder, _, names in os.walk(path):
        for name in names:
            if name.endswith(".xplane.pb"):
                with open(f"{folder}/{name}", "rb") as written:
                    return written.read(TRACE_FILE_CAP)
    raise OSError("TensorFlow wrote no trace")


def _remove(path: str) -> None:
    with suppress(OSError):
        for folder, folders, names in os.walk(path, topdown=False):
            for name in names:
                os.unlink(f"{folder}/{name}")
            for name in folders:
                os.rmdir(f"{folder}/{name}")
        os.rmdir(path)


def _is_quiet() -> bool:
    level = getattr(os.environ, "_data", {}).get(_QUIET)
    return level is not None and level.strip() in {b"1", b"2", b"3"}


def _has_devices() -> bool:
    context = (loaded(CONTEXT) or {}).get("_context")
    devices = getattr(context, "_logical_devices", None) or ()
    return any(each.device_type != "CPU" for each in list(devices))


def _lock_of_profiler() -> Any:
    lock = need(MODULE, "_profiler_lock")
    if type(lock) is not _thread.LockType:
        raise Refused("TensorFlow's profiler has another kind of lock")
    return lock


def _check_free() -> None:
    if need(MODULE, "_profiler") is not None:
        raise Refused(_USED)
