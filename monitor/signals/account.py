"""The account of the host: where the main thread's time goes, by the user's lines and by class.

Its rows come from stack samples alone. Their shares sum to one; start-up is left out as far as it
is known by its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

from whyidle.monitor.code.callees import calls_of, reads_at
from whyidle.monitor.code.scopes import Calls
from whyidle.monitor.code.source import called, calls, imports, last
from whyidle.monitor.code.spinning import spins_at
from whyidle.monitor.code.trains import trains_around, trains_at
from whyidle.monitor.core.amounts import BEYOND_CHANCE
from whyidle.monitor.core.finding import Place
from whyidle.monitor.core.host_class import AWAITS, HostClass
from whyidle.monitor.libraries.frames import kind_of, package_of, plays
from whyidle.monitor.libraries.table import ARRAY_PACKAGES, DEVICE_PACKAGES, Kind, Role
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import Chain, CodeLine, Counts, StackSamples, summed
from whyidle.monitor.signals.phases import BESIDE, STOPPING, Aside, Phase, phase_of
from whyidle.monitor.signals.sampling import error_of, start_up

# The same by its name, where the call shows as the user's own line.
_PUT_CALLS: Final = frozenset(
    {"array", "asarray", "device_put", "device_put_replicated", "device_put_sharded"}
)
_HOST_WAITS: Final = re.compile(
    r"(.*\.)?(sleep|wait|join|get|put|recv\w*|read\w*|write\w*|acquire|result|select|poll|communicate"
    r"|run|call|check_output|urlopen|request|fsync|flush|open|load|save|dump)"
)
_OF_CALLS: Final = {
    Calls.HOST: HostClass.PYTHON,
    Calls.LIBRARY: HostClass.LIBRARY,
    Calls.FRAMEWORK: HostClass.FRAMEWORK,
    Calls.UNCLEAR: HostClass.UNCLEAR,
}


@dataclass(frozen=True, slots=True)
class HostRow:
    """A part of the main thread's time."""

    # The user's lines, the innermost first; none where no code of the user's was on the stack.
    frames: tuple[CodeLine, ...]
    doing: HostClass
    share: float
    phase: Phase = Phase.STEP
    # The line of the user's that begins the phase; and whether what is called there says so.
    begins: CodeLine | None = None
    surely: bool = False
    # Whether the source says that it is done every few steps.
    due: bool = False
    # Whether the job's own code marks the phase.
    marked: bool = False
    # In which looks of about a second, a bit each; 0: not known.
    when: int = 0

    @property
    def waits(self) -> bool:
        """Whether it may wait for what the device was given before."""
        return self.doing in AWAITS

    @property
    def innermost(self) -> CodeLine | None:
        """The user's line nearest to what it does; ``None``: no code of the user's."""
        return self.frames[0] if self.frames else None


def by_line(
    rows: Iterable[HostRow], line_of: Callable[[HostRow], CodeLine | None]
) -> tuple[Place, ...]:
    """Return the lines that answer for some rows, with their shares, the largest first."""
    return ranked((line, row.share) for row in rows if (line := line_of(row)) is not None)


def ranked(shares: Iterable[tuple[CodeLine, float]]) -> tuple[Place, ...]:
    """Return lines with what they have of the time in all, the largest first."""
    return tuple(Place(*line, share) for line, share in summed(shares).items())


@dataclass(frozen=True)
class HostAccount:
    """All rows, the largest first."""

    rows: tuple[HostRow, ...]
    samples: float
    # Whether samples say if the thread waited; else nothing is a wait.
    knows_waits: bool
    # How many looks there were; 0: not known.
    looks: int = 0
    # Whether who reads a value may wait for it: not where each operation ends with its call.
    reads_wait: bool = True

    def share(self, *classes: HostClass) -> float:
        """Return the share of some classes together."""
        return sum(row.share for row in self.rows if row.doing in classes)

    # Each row is held against them.
    @cached_property
    def phases(self) -> Mapping[Phase, float]:
        """The share of each phase, the largest first.

        Where nothing is seen to learn, what takes most of the time are the steps: a program that
        only evaluates does so in steps, and one that does so now and then does not. What the job's
        own code marks is what it says. Who waits to print a loss waits for steps.
        """
        found = summed((_phase(row), row.share) for row in self.rows)
        always = summed((_phase(row), row.share) for row in self.rows if not row.due)
        if not always and any(trains_around(line) for row in self.rows for line in row.frames):
            # A long one may fill all of the time that was looked at.
            return found
        most = next(iter(always or found))
        # Who does nothing else does that in steps, whatever a trainer calls it.
        is_marked = found.get(Phase.STEP, 0.0) >= BEYOND_CHANCE and any(
            row.marked and row.phase is most for row in self.rows
        )
        steps = (row for row in self.rows if row.phase is Phase.STEP)
        learns = any(trains_at(line) for row in steps for line in row.frames)
        if most is not Phase.STEP and not is_marked and not learns:
            found[Phase.STEP] = found.get(Phase.STEP, 0.0) + found.pop(most)
        return summed(found.items())

    def phase_of(self, row: HostRow) -> Phase:
        """Return the phase that the time of a row counts for."""
        phase = _phase(row)
        return phase if phase in self.phases else Phase.STEP

    def without(self, doing: HostClass) -> HostAccount:
        """Return it without the rows of a class; the shares of the others stay."""
        return replace(self, rows=tuple(row for row in self.rows if row.doing is not doing))

    def within(self, part: float) -> HostAccount:
        """Return it with shares of a time of which it is a part."""
        return replace(self, rows=tuple(replace(row, share=part * row.share) for row in self.rows))

    def lines(self, does: Callable[[HostRow], bool]) -> tuple[Place, ...]:
        """Return the user's innermost lines of some rows with their shares, the largest first."""
        return by_line(self.rows, lambda row: row.innermost if row.frames and does(row) else None)

    def callers(self, file: str, line: int) -> tuple[CodeLine, ...]:
        """Return the user's lines that called one, as it was found most often; none: never."""
        for row in self.rows:
            for depth, frame in enumerate(row.frames):
                if (frame.file, frame.line) == (file, line):
                    return row.frames[depth + 1 :]
        return ()

    def error(self, share: float) -> float:
        """Return by how much a share may be wrong by chance."""
        return error_of(share, self.samples)


def _phase(row: HostRow) -> Phase:
    """Return the phase of a row: who waits to print a loss waits for steps."""
    return Phase.STEP if row.waits and row.phase in BESIDE - STOPPING else row.phase


_Key: TypeAlias = tuple[tuple[CodeLine, ...], HostClass, Aside]


def account_of(
    stacks: StackSamples, *, by_time: bool = False, reads_wait: bool = True
) -> HostAccount | None:
    """Return the account; ``None`` without samples; ``by_time``: start-up is cut off already."""
    out = {(x.file, x.line) for x in start_up(stacks.lines(), by_time=by_time)}
    shares: dict[_Key, float] = {}
    when: dict[_Key, int] = {}
    total = known = 0.0
    for chain, counts in stacks.chains.items():
        if chain.user is not None and chain.user[:2] in out:
            continue
        total += counts.samples
        known += counts.known
        phase = phase_of(chain)
        for doing, samples in divided(chain, counts):
            key = chain.frames, doing, phase
            shares[key] = shares.get(key, 0.0) + samples
            when[key] = when.get(key, 0) | counts.when
    if not total:
        return None
    rows = [
        HostRow(frames, doing, n / total, *aside, when[frames, doing, aside])
        for (frames, doing, aside), n in shares.items()
        if n
    ]
    settled = tuple(sorted(_settled(rows), key=lambda x: -x.share))
    return HostAccount(settled, total, known > 0, stacks.looks, reads_wait)


def _settled(rows: Sequence[HostRow]) -> Iterator[HostRow]:
    """Yield the rows; of a line that was mostly found in a framework the rest is there, too.

    Of a call into C that the source does not tell apart no sample shows whose it is.
    """
    sums = summed(((row.doing, row.innermost), row.share) for row in rows if row.frames)
    for row in rows:
        at = row.innermost
        clear = sums.get((HostClass.FRAMEWORK, at), 0.0)
        if row.doing is HostClass.UNCLEAR and clear >= sums.get((row.doing, at), 0.0) > 0:
            yield replace(row, doing=HostClass.FRAMEWORK)
        else:
            yield row


def divided(chain: Chain, counts: Counts) -> Iterator[tuple[HostClass, float]]:
    """Yield what a chain was doing, and in how many samples."""
    waited, locked = counts.of(counts.waited), counts.of(counts.locked)
    if locked:
        yield HostClass.LOCK, locked
    samples = counts.samples - locked
    if plays(Role.COLLECTOR, chain.leaf):
        # JAX's part in Python's garbage collector runs in the midst of any line.
        asked = None if chain.called == chain.leaf else chain.called
        chain = Chain(chain.frames, asked or chain.user, asked)
    leaf = chain.innermost
    if plays(Role.LOADER, leaf, chain.called):
        yield HostClass.LOADER, samples
    elif plays(Role.COMPILE, leaf, chain.called):
        yield HostClass.COMPILE, samples
    elif leaf is None:
        yield HostClass.UNCLEAR, samples
    elif plays(Role.SPIN, leaf) or spins_at(leaf):
        # Asleep or not: it only asks whether the other one is done.
        yield HostClass.PEER_WAIT, samples
    elif plays(Role.EAGER, leaf):
        # Who waits in one has launched it, and the device is behind.
        yield HostClass.EAGER, samples - waited
        yield HostClass.FRAMEWORK_WAIT, waited
    elif _puts_at(leaf) or plays(Role.PUT, leaf, chain.called):
        yield HostClass.PUT, samples
    else:
        whose = _whose(leaf, chain)
        reads = plays(Role.READ, leaf, chain.called)
        yield HostClass.READ if reads else whose, samples - waited
        if waited:
            # Of an array that is not there yet; for a disk it waits in another way.
            reads = reads or (plays(Role.DRAW, leaf) and counts.blocked < waited / 2)
            yield HostClass.READ if reads else _waits(whose, leaf, chain.called), waited


def _puts_at(line: CodeLine) -> bool:
    """Tell whether all that a line of the user's calls hands arrays to the framework."""
    names = [last(call) for call in calls(line.file, line.line)] if is_users(line.file) else []
    return (
        bool(names)
        and all(name in _PUT_CALLS for name in names)
        and calls_of(line.file, line.line) is Calls.FRAMEWORK
    )


def _waits(whose: HostClass, leaf: CodeLine, called_first: CodeLine | None) -> HostClass:
    """Return what a thread waits for that does not run."""
    if plays(Role.PEER, leaf, called_first):
        return HostClass.PEER_WAIT
    package = package_of(leaf.file)
    # Arrays of the host never wait: what does is a framework's that they are made of.
    if package in ARRAY_PACKAGES:
        return HostClass.READ
    if package is not None:
        return HostClass.FRAMEWORK_WAIT if _is_devices(leaf.file) else HostClass.WAIT
    if is_users(leaf.file) and reads_at(leaf.file, leaf.line):
        return HostClass.READ
    # In whose call it sleeps the line does not say, unless it names what the host waits for.
    names = called(leaf.file, leaf.line) if whose is HostClass.UNCLEAR else ()
    if whose is HostClass.UNCLEAR and (not names or any(map(_HOST_WAITS.fullmatch, names))):
        return HostClass.UNCLEAR
    is_in_framework = whose in {HostClass.FRAMEWORK, HostClass.UNCLEAR}
    return HostClass.FRAMEWORK_WAIT if is_in_framework else HostClass.WAIT


def _whose(leaf: CodeLine, chain: Chain) -> HostClass:
    """Return whose code runs where the thread was found."""
    if is_users(leaf.file):
        return _OF_CALLS[calls_of(leaf.file, leaf.line)]
    if plays(Role.COPY, chain.called):
        return HostClass.LIBRARY
    for line in (leaf, chain.called):
        # The standard library works for its caller.
        if line is not None and package_of(line.file) is not None:
            return HostClass.FRAMEWORK if _is_devices(line.file) else HostClass.LIBRARY
    return HostClass.LIBRARY


def _is_devices(file: str) -> bool:
    """Tell whether a package's calls are the device's work.

    A package that no table knows calls the framework that its file imports: its layers, solvers.
    """
    if (kind := kind_of(file)) is not None:
        return kind is Kind.DEVICE
    heads = (name.partition(".")[0] for name in imports(file).values())
    return not DEVICE_PACKAGES.isdisjoint(heads)
