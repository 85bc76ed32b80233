"""The memory of another process, through /proc/PID/mem."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Self

# The last address that a file can be read at.
_END = 1 << 63


class Memory:
    """Reads and writes by address; an address without memory is an ``OSError``."""

    def __init__(self, pid: int, *, root: str = "/proc", writing: bool = False) -> None:
        flags = os.O_RDWR if writing else os.O_RDONLY
        self._handle = os.open(f"{root}/{pid}/mem", flags | os.O_CLOEXEC)

    def read(self, address: int, size: int) -> bytes:
        """Return exactly so many bytes."""
        if not 0 <= address < _END:
            raise OSError(f"no memory at {address:#x}")
        got = os.pread(self._handle, size, address)
        if len(got) != size:
            raise OSError(f"only {len(got)} of {size} bytes at {address:#x}")
        return got

    def write(self, address: int, data: bytes) -> None:
        """Write all of it."""
        if os.pwrite(self._handle, data, address) != len(data):
            raise OSError(f"no room for {len(data)} bytes at {address:#x}")

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """Return 64-bit words."""
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other injectors out; raises ``BlockingIOError`` when one is there.

        The lock goes with us, however we end, and only those who may trace the process can take it.
        """
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the memory."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
