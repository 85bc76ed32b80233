"""What the agent sees inside the job, in words: how it got in, where the main thread is."""

from __future__ import annotations

from pathlib import PurePath

from whyidle.monitor.attach.answers import AGENT, OUTSIDE, REMOTE_EXEC, RUN
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.processes.process import JULIA
from whyidle.monitor.processes.roles import Order
from whyidle.monitor.recording.snapshot import Member, Snapshot, stood_still
from whyidle.monitor.render import numbers
from whyidle.monitor.render.escape import printable
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.summary import RunSummary, Watched

# Methods as a sentence names them.
_WORDS = {AGENT: "an agent that was there", REMOTE_EXEC: "sys.remote_exec", RUN: "monitor run"}
MOST_LINES = 3
# Reads that take at least this share of the time are named with their line.
NOTABLE_READS = 0.01
MOST_OUTSIDERS = 4


def entered(method: str, stops_ms: tuple[float, ...]) -> str:
    """Return how the agent got in, and what that cost the job."""
    by = f"attached by {_WORDS.get(method, method)}"
    return f"{by}; the job paused for {stood_still(stops_ms)}" if stops_ms else by


def how(snapshot: Snapshot) -> str:
    """Return how the job is watched."""
    members = snapshot.members
    inside = [member for member in members if member.method not in {None, OUTSIDE}]
    if inside:
        said = entered(str(inside[0].method), inside[0].stops_ms)
        several = f" ({len(inside)} of {len(members)} processes)" if len(members) > 1 else ""
        return said + several
    if any(member.method is None for member in members):
        return "the agent is on its way in"
    refusal = next((member.refusal for member in members if member.refusal), None)
    if snapshot.not_entered and not members:
        said = f"{snapshot.not_entered.what} {snapshot.not_entered.next_step}".rstrip()
        return printable(f"from outside. {said}")
    return printable(f"from outside. {refusal.what}" if refusal else "from outside")


def is_inside(snapshot: Snapshot) -> bool:
    """Return whether an agent is in any process of the job."""
    return any(member.method not in {None, OUTSIDE} for member in snapshot.members)


def is_on_the_way(snapshot: Snapshot) -> bool:
    """Return whether an agent may still get in."""
    members = snapshot.members
    nobody = all(member.method in {None, OUTSIDE} for member in members)
    return nobody and any(member.method is None for member in members)


def place(line: SourceLine | ReadBack) -> str:
    """Return a line of code as a short name."""
    name = PurePath(line.file).name or line.file
    return printable(f"{name}:{line.line} {line.function}")


def placed(line: SourceLine) -> str:
    """Return a line of code with its share of the main thread's samples."""
    return f"{place(line)} {numbers.show(line.share, 'ratio')}"


def top_line(snapshot: Snapshot) -> str | None:
    """Return the line where the main thread of the lowest rank, or the first process, is most.

    Of a job of several parts that of the one that computes. If there are several processes, it says
    which one this is.
    """
    order = Order(member.role for member in snapshot.members)
    first = min(
        (member for member in snapshot.members if member.where),
        key=lambda member: (order.place(member.role, trains=member.trains), _rank(member)),
        default=None,
    )
    if first is None:
        return None
    line = placed(first.where[0])
    if len(snapshot.members) < 2:
        return line
    title = f"{printable(first.title)}, " if first.title else ""
    return f"{line} ({title}{_which(first.rank, first.key.pid)})"


def read_line(snapshot: Snapshot) -> str | None:
    """Return how long the job waits for values from the device, and at which line the longest."""
    shares = [(x.reading.get(m.PROCESS_SYNC_WAIT) or 0.0, x.read_line) for x in snapshot.members]
    notable = [
        (share, line) for share, line in shares if line is not None and share >= NOTABLE_READS
    ]
    if not notable:
        return None
    share, line = max(notable, key=lambda pair: pair[0])
    return f"reads of values {numbers.show(share, 'ratio')}, most at {place(line)}"


def _rank(member: Member) -> float:
    return float("inf") if member.rank is None else member.rank


def _which(rank: int | None, pid: int) -> str:
    return f"pid {pid}" if rank is None else f"rank {rank}, pid {pid}"


def name(member: Member) -> str:
    """Return a process as its pid, with its rank if it has one."""
    return f"{member.key.pid}" if member.rank is None else f"{member.key.pid} rank {member.rank}"


def briefly(summary: RunSummary) -> str:
    """Return what watching cost the job, or why nothing of ours was in it."""
    principal = summary.principal
    if principal is None:
        return f"from outside: {printable(summary.not_entered)}" if summary.not_entered else ""
    if not principal.inside:
        why = f"{principal.refused or ''} {principal.next_step or ''}".strip()
        return printable(f"from outside: {why}" if why else "from outside")
    stops = principal.stops_ms
    return f"the job paused for {stood_still(stops)} to attach" if stops else ""


def page(summary: RunSummary) -> list[str]:
    """Return the summary lines about the agent; none for a job without Python or Julia."""
    principal = summary.principal
    if principal is None:
        return [f"  agent    none. {printable(summary.not_entered)}"] if summary.not_entered else []
    lines = [f"  agent    {_agent_line(summary, principal)}"]
    if not principal.inside and principal.next_step:
        lines.append(f"           {printable(principal.next_step)}")
    python = _python_line(summary)
    others = [w for w in summary.watched if not w.inside and w.refused and w != principal]
    lines += [f"           {_out(watched)}" for watched in others[:MOST_OUTSIDERS]]
    if more := others[MOST_OUTSIDERS:]:
        lines.append(f"           {len(more)} more are watched from outside")
    name = "python" if principal.inside or JULIA not in principal.frameworks else "julia"
    return [*([f"  {name:<9}{python}"] if python else []), *lines]


def _whose(watched: Watched) -> str:
    rank, pid = watched.rank, watched.pid
    return f"process {pid}" if rank is None else f"rank {rank} (pid {pid})"


def _out(watched: Watched) -> str:
    """Return why one of several processes has no agent."""
    which = _which(watched.rank, watched.pid)
    return printable(f"not in {which}: {watched.refused} {watched.next_step or ''}".rstrip())


def _python_line(summary: RunSummary) -> str:
    gc = summary.of(m.JOB_GC_PAUSE, summary.run.id)
    parts = [] if gc is None else [f"garbage collector {numbers.show(gc.mean, 'ratio')}"]
    if summary.where:
        lines = ", ".join(placed(line) for line in summary.where[:MOST_LINES])
        who = summary.where_of if len(summary.watched) > 1 else None
        whose = f" of {_whose(who)}" if who else ""
        parts.append(f"main thread{whose} at {lines}")
    return "; ".join(parts)


def _agent_line(summary: RunSummary, principal: Watched) -> str:
    if not principal.inside:
        why = f". {printable(principal.refused)}" if principal.refused else ""
        return f"none, watched from outside{why}"
    parts = [entered(principal.method, principal.stops_ms)]
    cost = summary.of(m.JOB_AGENT_CPU, summary.run.id)
    if cost is not None:
        parts.append(f"took {numbers.show(cost.mean, 'ratio')} of a core")
    if len(summary.watched) > 1:
        inside = sum(1 for watched in summary.watched if watched.inside)
        parts.append(f"{inside} of {len(summary.watched)} processes")
    return ", ".join(parts)
