"""The process that is being entered: who it is, that it still is, and that only we enter it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whyidle.monitor.attach.ptrace import maps
from whyidle.monitor.attach.ptrace.maps import Mapping
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.refused import Refused, again
from whyidle.monitor.processes.procfs import ProcFs


@dataclass(frozen=True, slots=True)
class Job:
    """A process, never mistaken for another: its pid, and when it began."""

    pid: int
    start_ticks: int

    def maps(self) -> tuple[Mapping, ...]:
        """Return its memory map as it is now."""
        return maps.parse(self._text("maps"))

    def exe(self) -> str:
        """Return the path of its program, as the memory map names it."""
        try:
            return str(Path(f"/proc/{self.pid}/exe").readlink())
        except FileNotFoundError:
            raise self._gone() from None

    def main_thread_ns(self) -> int:
        """Return how long its main thread has had a core; 0 where the kernel does not count it."""
        try:
            return int(self._text(f"task/{self.pid}/schedstat").split()[0])
        except (Refused, IndexError):
            return 0

    def check(self) -> None:
        """Refuse a process that is another one by now, or that must not be stopped."""
        fs = ProcFs()
        stat = fs.stat(self.pid)
        if stat is None or stat.start_ticks != self.start_ticks or stat.has_ended:
            raise self._gone()
        if stat.is_stopped:
            raise Refused(f"Process {self.pid} is stopped.", f"Continue it: kill -CONT {self.pid}")
        if tracer := fs.tracer(self.pid):
            raise Refused(f"Process {self.pid} is traced by {tracer}.", again(self.pid))

    def _text(self, name: str) -> str:
        try:
            # Byte for byte: a name may hold what would be read as the end of a line.
            raw = Path(f"/proc/{self.pid}/{name}").read_bytes()
            return raw.decode("utf-8", "backslashreplace")
        except (FileNotFoundError, ProcessLookupError):
            raise self._gone() from None

    def _gone(self) -> Refused:
        return Refused(f"Process {self.pid} has ended.", "See what runs with: monitor ps")

    @contextlib.contextmanager
    def memory(self) -> Iterator[Memory]:
        """Open its memory for us alone: two injectors would map, and write, at the same place."""
        with Memory(self.pid, writing=True) as memory, contextlib.ExitStack() as kept:
            try:
                kept.enter_context(memory.alone())
            except BlockingIOError:
                raise Refused(
                    f"Another monitor is entering process {self.pid} now.", again(self.pid)
                ) from None
            yield memory
