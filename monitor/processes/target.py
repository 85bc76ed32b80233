"""The target process of a command: found once and passed on, with what /proc shows of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property

from whyidle.monitor.core.errors import NotPermitted, TargetGone, UsageProblem
from whyidle.monitor.core.paths import as_root
from whyidle.monitor.processes.process import Identity, ProcessKey, describe, python_of, user_of
from whyidle.monitor.processes.procfs import ProcFs, Stat, files_in

# The parent of every kernel thread.
KERNEL_THREADS = 2


@dataclass(frozen=True)
class Target:
    """One process; each fact is read once, without touching the process.

    ``anew`` reads again: a job may load a framework, or run another program, at any time.
    """

    key: ProcessKey
    fs: ProcFs = field(default_factory=ProcFs)

    @classmethod
    def named(cls, text: str, fs: ProcFs | None = None) -> Target:
        """Return the process that the user named, or raise a sentence why it cannot be watched."""
        fs = fs or ProcFs()
        if not text.isdecimal() or int(text) == 0:
            raise UsageProblem(
                f"'{text}' is no process id.",
                "List the jobs with `monitor ps`, then: monitor attach PID",
            )
        pid = int(text)
        stat = fs.stat(pid)
        if stat is None:
            raise TargetGone(f"There is no process {pid}.", "See what runs with: monitor ps")
        target = cls(ProcessKey(pid, stat.start_ticks), fs)
        _check_watchable(target, stat)
        return target

    def anew(self) -> Target:
        """Return the same process with nothing read yet."""
        return Target(self.key, self.fs)

    @property
    def pid(self) -> int:
        """Its pid as we see it."""
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
    def owner(self) -> int | None:
        """The user that owns it; ``None`` once it is gone."""
        return self.fs.owner(self.pid)

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
        """The version of its Python; ``None`` if it runs none, or an unknown one."""
        version = python_of(self.exe, self.files)
        major, _, minor = (version or "").partition(".")
        return (int(major), int(minor)) if version else None

    @cached_property
    def identity(self) -> Identity | None:
        """Its identity; ``None`` once it is gone."""
        found = describe(self.pid, self.fs, self.files)
        return found if found is not None and found.key == self.key else None


def _check_watchable(target: Target, stat: Stat) -> None:
    pid = target.pid
    leader = target.status.get("Tgid", str(pid))
    if leader != str(pid):
        raise UsageProblem(
            f"{pid} is a thread of process {leader}.", f"Watch the process: monitor attach {leader}"
        )
    if stat.has_ended:
        raise TargetGone(
            f"Process {pid} ({stat.name}) has ended; parent {stat.parent} keeps it as a zombie.",
            "See what runs with: monitor ps",
        )
    if KERNEL_THREADS in {stat.parent, pid}:
        raise UsageProblem(
            f"{pid} ({stat.name}) is a thread of the kernel, no job.",
            "See what runs with: monitor ps",
        )
    if os.geteuid() not in {0, target.owner}:
        raise NotPermitted(
            f"Process {pid} ({stat.name}) belongs to {user_of(target.fs, pid)}, not to you.",
            f"Watch it as that user or as root: {as_root(f'attach {pid}')}",
        )
