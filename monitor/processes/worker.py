"""Which process is the worker: the one that was named, or the first one below it that trains.

Nothing else is ever entered: below is who can be followed up to the named process, parent by
parent, at this moment, and belongs to the same user. Where that leaves several, a person chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.processes.process import Identity, ProcessKey, describe
from whyidle.monitor.processes.procfs import Stat, above_each
from whyidle.monitor.processes.target import Target

MOST_NAMED: Final = 8
# The first process of a machine or container takes in who lost its parent, and so does systemd for
# each user: what is below them has nothing to do with each other.
FIRST_PROCESS: Final = 1
KEEPERS: Final = frozenset({"systemd", "init"})
# They load PyTorch themselves, and then only wait for their workers.
LAUNCHERS: Final = frozenset({"accelerate", "deepspeed"})
_SEE: Final = "See which processes have JAX or PyTorch: monitor ps"


def worker_of(named: Target, command: str = "trace") -> Target:
    """Return the process that the command is about; raises where a person must choose."""
    ours, above = _with_framework(named, command)
    key = chosen(named.key, ours, above, command)
    return named if key == named.key else Target(key, named.fs)


def ranks_below(named: Target) -> list[Identity]:
    """Return who may be a rank of the job, each once; raises where nobody is.

    Where launchers say so, the oldest of each number: a loader's workers have that of their parent.
    Else all with a framework: only these know whether they belong together.
    """
    ours, _ = _with_framework(named, "trace")
    oldest = sorted(ours, key=lambda who: who.key.start_ticks)
    numbered = {who.rank.rank: who for who in reversed(oldest) if who.rank is not None}
    found = list(numbered.values()) if len(numbered) > 1 else oldest
    if len(found) > 1:
        return sorted(found, key=lambda who: (who.rank.rank if who.rank else 0, who.key))
    stat = named.fs.stat(named.pid)
    parent = "PID" if stat is None else stat.parent
    raise UsageProblem(
        f"Process {named.pid} has no ranks below it.",
        f"Name who started them: monitor trace {parent} --all-ranks",
    )


def _with_framework(
    named: Target, command: str
) -> tuple[list[Identity], Mapping[int, frozenset[int]]]:
    """Return who has a framework at or below a process, and who stands above each."""
    fs = named.fs
    stats = fs.stats()
    above = above_each(stats)
    known = (describe(pid, fs) for pid in at_or_below(named.key, stats, above))
    # The pid may have been given away between two looks.
    same = (who for who in known if who and who.key.start_ticks == stats[who.key.pid].start_ticks)
    fit = [who for who in same if who.has_framework]
    if all(who.key != named.key for who in fit):
        check_is_no_keeper(named.key, stats)
    owner = fs.owner(named.pid)
    ours = [who for who in fit if who.key == named.key or fs.owner(who.key.pid) == owner]
    if fit and not ours:
        pid = min(who.key.pid for who in fit)
        raise UsageProblem(
            f"What runs below process {named.pid} belongs to another user.",
            f"Name it: monitor {command} {pid}",
        )
    return ours, above


def chosen(
    named: ProcessKey,
    fit: Sequence[Identity],
    above: Mapping[int, frozenset[int]],
    command: str = "trace",
) -> ProcessKey:
    """Choose among the processes with a framework; ``above``: who stands above each."""

    def is_below(who: Identity, other: Identity) -> bool:
        return other.key.pid in above.get(who.key.pid, ())

    def launches(who: Identity) -> bool:
        return any(is_below(other, who) and _launched(other, who) for other in fit)

    def helps(who: Identity, other: Identity) -> bool:
        # A loader's workers are forked from the one that trains, and have its rank.
        return is_below(who, other) and _place(who) == _place(other) and not _is_launcher(other)

    workers = [who for who in fit if not launches(who)]
    if not fit or any(who.key == named for who in workers):
        return named
    leaders = [who for who in workers if not any(helps(who, other) for other in fit)]
    lowest = min((who.rank.rank for who in leaders if who.rank), default=None)
    found = sorted(who.key for who in leaders if who.rank is None or who.rank.rank == lowest)
    if len(found) > 1:
        # Below a shell, or a server of notebooks: jobs that have nothing to do with each other.
        pids = ", ".join(str(key.pid) for key in found[:MOST_NAMED])
        raise UsageProblem(
            f"Several jobs run below process {named.pid}: {pids}.",
            f"Name one: monitor {command} {found[0].pid}",
        )
    return found[0]


def _launched(worker: Identity, who: Identity) -> bool:
    """Tell whether one below another was started as its worker, not as its helper."""
    return _is_launcher(who) or (worker.rank is not None and _place(worker) != _place(who))


def _is_launcher(who: Identity) -> bool:
    return who.script.partition(" ")[0] in LAUNCHERS


def _place(who: Identity) -> tuple[str, int] | None:
    """Return who numbered a process, and how: below srun also torchrun itself has a number."""
    return None if who.rank is None else (who.rank.source, who.rank.rank)


def check_is_no_keeper(named: ProcessKey, stats: Mapping[int, Stat]) -> None:
    """Raise where nothing below it has to do with each other."""
    name = stats[named.pid].name if named.pid in stats else ""
    if named.pid == FIRST_PROCESS or name in KEEPERS:
        raise UsageProblem(
            f"Process {named.pid} ({name}) is not a training job: it keeps this machine running.",
            _SEE,
        )


def at_or_below(
    named: ProcessKey, stats: Mapping[int, Stat], above: Mapping[int, frozenset[int]]
) -> list[int]:
    """Return who can be followed up to a process, and itself; nobody once it is gone."""
    root = stats.get(named.pid)
    if root is None or root.start_ticks != named.start_ticks:
        return []
    return [pid for pid in stats if pid == named.pid or named.pid in above[pid]]
