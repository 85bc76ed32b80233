"""What the kernel keeps for each thread, set from outside and given back thread by thread."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from whyidle.monitor.core.errors import NotPermitted, UsageProblem
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat, parse_stat
from whyidle.monitor.processes.tree import descendants, is_alive

Value = int | list[int]
# Each look may find threads that began during the one before.
LOOKS: Final = 20
# Bit of CAP_SYS_NICE in a set of capabilities (linux/capability.h).
SYS_NICE: Final = 23
# ioprio_set and ioprio_get, which the C library does not have (asm/unistd.h); who is a thread.
_CALLS: Final = {"x86_64": (251, 252), "aarch64": (30, 31)}
_A_THREAD: Final = 1


class Thread(NamedTuple):
    """One thread, told from a later one of the same number."""

    pid: int
    tid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a thread: how it is read, written, and given back."""

    read: Callable[[int], Value]
    write: Callable[[int, Value], None]
    give_back: Callable[[int, Value], None]
    # Raises where what is to be set could not be given back by us.
    check: Callable[[ProcFs, Thread, Value, Value], None]


def _cores(tid: int) -> Value:
    return sorted(os.sched_getaffinity(tid))


def _set_cores(tid: int, cores: Value) -> None:
    assert isinstance(cores, list)  # noqa: S101
    os.sched_setaffinity(tid, cores)


def _give_cores_back(tid: int, old: Value) -> None:
    # A thread that had all that its cpuset allows is given all there are: where the cpuset becomes
    # wider one day, the thread may use that, too, as it could before.
    os.sched_setaffinity(tid, range(max(os.cpu_count() or 1, *_list(old), 0) + 1))
    if _cores(tid) != old:
        _set_cores(tid, old)


def _list(value: Value) -> list[int]:
    return value if isinstance(value, list) else [value]


def _set_nice(tid: int, value: Value) -> None:
    assert isinstance(value, int)  # noqa: S101
    os.setpriority(os.PRIO_PROCESS, tid, value)


def _check_nice(fs: ProcFs, thread: Thread, old: Value, value: Value) -> None:
    """Whoever makes a thread nicer needs a right to take that back."""
    assert isinstance(old, int)  # noqa: S101
    if value == old or may_renice(fs, thread.pid, old):
        return
    raise NotPermitted(
        f"Thread {thread.tid} could not be given its priority back: that takes a right"
        " (CAP_SYS_NICE) or a limit (ulimit -e) that is not there.",
        "Try it as root.",
    )


def may_renice(fs: ProcFs, pid: int, nice: int) -> bool:
    """Tell whether we may set a process to this niceness from a higher one."""
    rights = int(fs.fields("self/status").get("CapEff", "0"), 16)
    if rights >> SYS_NICE & 1:
        return True
    limit = next((x for x in (fs.text(f"{pid}/limits") or "").split("\n") if "nice prio" in x), "")
    words = limit.split()
    return len(words) > 3 and words[3].isdecimal() and 20 - nice <= int(words[3])


def _io(tid: int) -> Value:
    return _io_call(1, _A_THREAD, tid)


def _set_io(tid: int, value: Value) -> None:
    _io_call(0, _A_THREAD, tid, value)


def _io_call(which: int, *arguments: object) -> int:
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise UsageProblem(f"ionice is not known on {platform.machine()}.", "Try another knob.")
    found = int(ctypes.CDLL(None, use_errno=True).syscall(calls[which], *arguments))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


def _anyone(_fs: ProcFs, _thread: Thread, _old: Value, _value: Value) -> None:
    pass


SETTINGS: Final[dict[str, Setting]] = {
    "affinity": Setting(_cores, _set_cores, _give_cores_back, _anyone),
    "nice": Setting(
        lambda tid: os.getpriority(os.PRIO_PROCESS, tid), _set_nice, _set_nice, _check_nice
    ),
    "ionice": Setting(_io, _set_io, _set_io, _anyone),
}


class Family:
    """A job's processes, its first one and all below it; who is once seen stays in it."""

    def __init__(self, root: ProcessKey, fs: ProcFs, *, helpers_only: bool) -> None:
        self.root = root
        self.fs = fs
        self._helpers_only = helpers_only
        self._known: set[ProcessKey] = {root}

    def threads(self) -> list[Thread]:
        """Return the threads of all that live now."""
        self._look()
        of = self._known - ({self.root} if self._helpers_only else set())
        return [thread for key in sorted(of) for thread in self._threads_of(key)]

    def _look(self) -> None:
        stats = [stat for pid in self.fs.pids() if (stat := self._stat(pid)) is not None]
        now = {ProcessKey(stat.pid, stat.start_ticks): stat for stat in stats}
        self._known = {key for key in self._known if key in now and is_alive(key, now[key])}
        for stat in descendants(stats, {key.pid for key in self._known}):
            if stat.pid != os.getpid() and not stat.has_ended:
                self._known.add(ProcessKey(stat.pid, stat.start_ticks))

    def _stat(self, pid: int) -> Stat | None:
        with contextlib.suppress(ValueError, IndexError):
            return self.fs.stat(pid)
        return None

    def _threads_of(self, key: ProcessKey) -> Iterator[Thread]:
        for name in self.fs.threads(key.pid):
            raw = self.fs.read(f"{key.pid}/task/{name}/stat")
            with contextlib.suppress(ValueError, IndexError):
                if raw:
                    yield Thread(key.pid, int(name), parse_stat(raw).start_ticks)


@dataclass
class Held:
    """What was set by us: for each thread what it had, and what it got."""

    name: str
    setting: Setting
    family: Family
    old: dict[Thread, Value] = field(default_factory=dict)
    ours: dict[Thread, Value] = field(default_factory=dict)

    def apply(self, value: Value) -> int:
        """Set it for every thread; returns for how many that changed something."""
        first = self.family.threads()
        for thread in first:
            with _PASSING_GONE:
                self.setting.check(self.family.fs, thread, self.setting.read(thread.tid), value)
        for look in range(LOOKS):
            new = [x for x in (self.family.threads() if look else first) if x not in self.ours]
            # One that began meanwhile may have it from its maker, and had nothing else.
            new = [x for x in new if not look or self._read(x) not in self.ours.values()]
            if not new:
                break
            for thread in new:
                with _PASSING_GONE:
                    self._set(thread, value)
        return sum(self.old[thread] != ours for thread, ours in self.ours.items())

    def take_back(self) -> int:
        """Give every thread back what it had; returns how many have set it themselves since."""
        left: set[Thread] = set()
        for _ in range(LOOKS):
            moved = False
            left.clear()
            for thread in self.family.threads():
                try:
                    with _PASSING_GONE:
                        moved |= self._give_back(thread, left)
                except OSError:
                    # It cannot be set any more (another user, another cpuset): the others can.
                    left.add(thread)
            if not moved:
                break
        self.old.clear()
        self.ours.clear()
        return len(left)

    def _read(self, thread: Thread) -> Value | None:
        with _PASSING_GONE:
            return self.setting.read(thread.tid)
        return None

    def _set(self, thread: Thread, value: Value) -> None:
        old = self.setting.read(thread.tid)
        # Known before it is done: whatever comes in between, it can be given back.
        self.old[thread], self.ours[thread] = old, value
        self.setting.write(thread.tid, value)
        # The kernel leaves out cores that the cpuset does not allow.
        self.ours[thread] = self.setting.read(thread.tid)

    def _give_back(self, thread: Thread, left: set[Thread]) -> bool:
        now = self.setting.read(thread.tid)
        # One that began meanwhile has from its maker what we set.
        old = self.old[thread] if thread in self.old else self._of_maker(thread)
        is_ours = now == self.ours[thread] if thread in self.ours else now in self.ours.values()
        if old is None or now == old:
            return False
        if not is_ours:
            if thread in self.ours:
                left.add(thread)
            return False
        self.setting.give_back(thread.tid, old)
        return True

    def _of_maker(self, thread: Thread) -> Value | None:
        """Return what the process's own first thread had, else the job's."""
        for pid in (thread.pid, self.family.root.pid):
            for other, old in self.old.items():
                if other.pid == pid == other.tid:
                    return old
        return next(iter(self.old.values()), None)


class _PassingGone:
    """Passes over a thread that has ended."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: object
    ) -> bool:
        return isinstance(error, OSError) and error.errno == errno.ESRCH


_PASSING_GONE: Final = _PassingGone()
