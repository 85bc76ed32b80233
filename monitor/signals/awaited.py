"""What a thread that stands waits for, and whether anything of its job works meanwhile.

The one by the files that it is in and by what its line calls; the other by what the kernel and the
driver counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.callees import reads_at
from whyidle.monitor.code.source import Function, called, calls, last, line_of, nodes_at, written
from whyidle.monitor.code.trains import trains_around
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import BEYOND_CHANCE, NEARLY_ALL
from whyidle.monitor.core.host_class import OF_FRAMEWORK, HostClass
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.account import account_of
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.standstill import Standstill


class Awaited(StrEnum):
    """What a thread that stands does, in words."""

    RANKS = "waits for other processes of the job"
    LOADER = "waits for its data loader"
    SAVING = "writes or reads a checkpoint"
    PERSON = "waits for keyboard input"
    CLIENTS = "waits for requests"
    SIGNAL = "waits for a signal"
    INPUT = "waits for data from outside"
    LOCK = "waits for a lock, a queue or another thread"
    GIL = "waits for Python's lock, never released"
    SLEEP = "sleeps"
    DEVICE = "waits for the device"
    UNKNOWN = "waits"


_ASKS: Final = re.compile(r"input|breakpoint|set_trace|getpass")
# By the last part of what the line calls.
_COLLECTIVES: Final = re.compile(
    r"(monitored_)?barrier|(all_?|reduce_?)?(reduce|gather|scatter)v?(_\w+)?|all_?to_?all\w*"
    r"|broadcast\w*|bcast|sendrecv|init_process_group|rendezvous|sync_global_devices"
    r"|process_allgather|wait_for_everyone",
    re.IGNORECASE,
)
_LISTENS: Final = re.compile(
    r"accept|serve_forever|run_forever|handle_request|wait_for_termination|select|poll|epoll"
)
_SERVES: Final = re.compile(r"serve_forever|run_forever|handle_request|wait_for_termination")
# What says which requests a function answers: ``@app.route("/predict")``.
_ROUTES: Final = re.compile(
    r"(\w+\.)*(api_view\(.*|(api_)?(route|get|post|put|patch|delete|websocket)"
    r"\((path=)?f?(['\"]/|''|\"\").*)"
)
# With its module: a plot pauses, too, for the time that it is given.
_SIGNALS: Final = re.compile(r"signal\.(pause|sigwait\w*|sigtimedwait)|sig\w*wait\w*")
_SLEEPS: Final = re.compile(r"sleep|pause")
_READS: Final = re.compile(r"read\w*|recv\w*|connect|urlopen|communicate")
_LOCKS: Final = re.compile(r"acquire|get|put|join|wait|result|as_completed")
_A_LOCK: Final = re.compile(r"with\b.*(lock|mutex|sema|cond)", re.IGNORECASE)

# Who waits so has nothing to do, whatever else runs: somebody outside of the job gives the word.
NOTHING_TO_DO: Final = frozenset({Awaited.CLIENTS, Awaited.SIGNAL, Awaited.PERSON})
# Agents, and threads that poll, take some (eight jobs that hung: 0.002 to 0.015 cores).
LEAST_CORES: Final = 0.05
LEAST_BYTES: Final = 100e3
# An idle H100 draws a tenth of its limit, one that trains more than half; one that only polls for
# others was not measured, and cannot draw much while it touches no memory.
IDLE_POWER: Final = 0.4
_DISK: Final = (m.JOB_DISK_READ, m.JOB_DISK_WRITE)
_NETWORK: Final = (m.JOB_NET_RX, m.JOB_NET_TX)


@dataclass(frozen=True, slots=True)
class _At:
    """Where a thread stands: in whose code, what its line calls, and what that is a part of."""

    lines: tuple[CodeLine, ...]
    names: tuple[str, ...]
    # The same as they are written.
    written: tuple[str, ...]
    text: str
    reads: bool
    doing: HostClass | None
    phase: Phase | None

    def is_in(self, role: Role) -> bool:
        return plays(role, *self.lines)

    def calls(self, names: re.Pattern[str]) -> bool:
        return any(map(names.fullmatch, self.names))


# The first that holds: what is known by the file that it is in stands before what has many names.
_SIGNS: Final[tuple[tuple[Awaited, Callable[[_At], bool]], ...]] = (
    (Awaited.LOADER, lambda at: at.doing is HostClass.LOADER),
    (Awaited.PERSON, lambda at: at.is_in(Role.PERSON) or at.calls(_ASKS)),
    (Awaited.RANKS, lambda at: at.is_in(Role.COLLECTIVE) or at.calls(_COLLECTIVES)),
    (Awaited.SAVING, lambda at: at.phase is Phase.CHECKPOINT),
    (Awaited.CLIENTS, lambda at: at.is_in(Role.LISTEN)),
    (Awaited.INPUT, lambda at: at.is_in(Role.INPUT)),
    (Awaited.LOCK, lambda at: at.is_in(Role.LOCK)),
    (Awaited.DEVICE, lambda at: "backward" in at.names),
    (Awaited.SIGNAL, lambda at: any(map(_SIGNALS.fullmatch, at.written))),
    (Awaited.SLEEP, lambda at: at.calls(_SLEEPS)),
    (Awaited.CLIENTS, lambda at: at.calls(_LISTENS)),
    (Awaited.INPUT, lambda at: at.calls(_READS)),
    (Awaited.LOCK, lambda at: at.calls(_LOCKS) or bool(_A_LOCK.match(at.text))),
    (Awaited.DEVICE, lambda at: at.reads or at.doing in OF_FRAMEWORK),
)


def awaited(chain: Chain, processes: int = 1) -> Awaited:
    """Return what a thread waits for; ``processes`` are those that train together."""
    at = _at(chain)
    what = next((what for what, holds in _SIGNS if holds(at)), Awaited.UNKNOWN)
    # The device waits for the gradients of the others.
    return Awaited.RANKS if what is Awaited.DEVICE and processes > 1 else what


def _at(chain: Chain) -> _At:
    samples = StackSamples()
    # As if it ran: what a line is known to do does not depend on it.
    samples.count(chain, 1, 1, 0)
    account = account_of(samples, by_time=True)
    row = None if account is None else account.rows[0]
    inner = chain.frames[0] if chain.frames else None
    names = () if inner is None else called(inner.file, inner.line)
    at = [line for line in (chain.leaf, chain.called) if line is not None]
    return _At(
        lines=tuple(at),
        names=tuple(name.rpartition(".")[2] for name in names),
        written=names,
        text=(line_of(inner.file, inner.line) or "") if inner else "",
        reads=inner is not None and reads_at(inner.file, inner.line),
        doing=None if row is None else row.doing,
        phase=None if row is None else row.phase,
    )


@lru_cache(maxsize=4096)
def serves_at(line: CodeLine) -> bool:
    """Tell whether a line of the user's answers requests: it serves, or a route names its function.

    The stack of a greenlet does not show the loop that serves.
    """
    if any(_SERVES.fullmatch(last(call)) for call in calls(line.file, line.line)):
        return True
    around = (node for node in nodes_at(line.file, line.line) if isinstance(node, Function))
    marks = (written(mark) for function in around for mark in function.decorator_list)
    return any(map(_ROUTES.fullmatch, marks))


def in_collective(chain: Chain) -> bool:
    """Tell whether a thread is where ranks exchange something, by its files or by its line."""
    if plays(Role.COLLECTIVE, chain.leaf, chain.called):
        return True
    inner = chain.frames[0] if chain.frames else None
    names = () if inner is None else called(inner.file, inner.line)
    return any(_COLLECTIVES.fullmatch(name.rpartition(".")[2]) for name in names)


def in_training(chain: Chain) -> bool:
    """Tell whether a thread stands within a loop that trains, as far as the text says."""
    if plays(Role.TRAIN, chain.leaf, chain.called):
        return True
    return any(map(trains_around, chain.frames))


def works(still: Standstill) -> bool:
    """Tell whether anything goes on in the job, as far as it is counted."""
    means = still.means
    if any(means.get(metric, 0.0) >= LEAST_BYTES for metric in _DISK):
        return True
    if means.get(m.JOB_COMPILE, 0.0) >= BEYOND_CHANCE:
        return True
    active = (gpu.get(m.GPU_SM_ACTIVITY, gpu.get(m.GPU_UTILISATION, 0.0)) for gpu in still.gpus)
    polls = [_only_polls(gpu) for gpu in still.gpus]
    if any(x >= BEYOND_CHANCE and not only for x, only in zip(active, polls, strict=True)):
        return True
    if any(polls):
        # The thread that waits for such a GPU may poll as well.
        return False
    cores = means.get(m.JOB_CPU)
    own = 0.0 if cores is None else cores - means.get(m.JOB_AGENT_CPU, 0.0)
    waits = all(each.waits is None or each.waits >= NEARLY_ALL for each in still.stands)
    known = cores is not None or all(each.waits is not None for each in still.stands)
    return own >= LEAST_CORES or not waits or not known


def are_known(gpus: Sequence[Mapping[Metric, float]]) -> bool:
    """Tell whether it is known of each GPU whether it computes; the driver hides it under MIG."""
    return bool(gpus) and all(m.GPU_SM_ACTIVITY in g or m.GPU_UTILISATION in g for g in gpus)


def _only_polls(gpu: Mapping[Metric, float]) -> bool:
    """Tell whether a kernel runs that waits for other GPUs: no memory traffic, little power."""
    power, limit = gpu.get(m.GPU_POWER), gpu.get(m.GPU_POWER_LIMIT)
    if power is None or not limit or m.GPU_MEMORY_BANDWIDTH not in gpu:
        return False
    works = max(gpu[m.GPU_MEMORY_BANDWIDTH], gpu.get(m.GPU_TENSOR_ACTIVITY, 0.0))
    busy = gpu.get(m.GPU_UTILISATION, 0.0) >= NEARLY_ALL
    return busy and works < BEYOND_CHANCE and power < IDLE_POWER * limit


def may_be_coming(still: Standstill, what: Awaited) -> bool:
    """Tell whether what it waits for may be on its way; others use the network as well."""
    if what not in {Awaited.INPUT, Awaited.SAVING, Awaited.LOADER}:
        return False
    return any(still.means.get(metric, 0.0) >= LEAST_BYTES for metric in _NETWORK)
