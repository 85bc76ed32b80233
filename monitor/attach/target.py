"""The process to enter, as /proc shows it: read once, without touching it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from whyidle.monitor.processes.process import Identity, ProcessKey, describe, python_of
from whyidle.monitor.processes.procfs import ProcFs, files_in


@dataclass(frozen=True)
class Target:
    """One process, and what the methods need to know of it."""

    key: ProcessKey
    fs: ProcFs

    @property
    def pid(self) -> int:
        """Its pid, as we see it."""
        return self.key.pid

    @cached_property
    def status(self) -> dict[str, str]:
        """The fields of its status file; empty once it is gone."""
        return self.fs.fields(f"{self.pid}/status")

    @cached_property
    def own_pid(self) -> int:
        """Its pid as the process itself sees it."""
        return int(self.status.get("NSpid", str(self.pid)).split()[-1])

    @cached_property
    def uid(self) -> int | None:
        """Its effective user; ``None`` once it is gone."""
        uids = self.status.get("Uid")
        return int(uids.split()[1]) if uids else None

    @cached_property
    def maps(self) -> str | None:
        """Its memory map; reading it holds the job's memory lock, so it is done once."""
        return self.fs.text(f"{self.pid}/maps")

    @cached_property
    def files(self) -> set[str] | None:
        """The files mapped into it."""
        return None if self.maps is None else files_in(self.maps)

    @cached_property
    def exe(self) -> str | None:
        """The real path of its program."""
        return self.fs.link(f"{self.pid}/exe")

    @cached_property
    def python(self) -> tuple[int, int] | None:
        """The version of its Python; ``None`` where it runs none, or an unknown one."""
        version = python_of(self.exe, self.files)
        major, _, minor = (version or "").partition(".")
        return (int(major), int(minor)) if version else None

    @cached_property
    def identity(self) -> Identity | None:
        """Its identity; ``None`` once it is gone."""
        found = describe(self.pid, self.fs, self.files)
        return found if found is not None and found.key == self.key else None
