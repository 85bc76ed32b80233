"""An export of Nsight Systems -> a ``Trace``, with a warning for all that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.core.contracts.trace import CUT_OFF
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.nsys.assemble import assemble
from whyidle.monitor.traces.nsys.database import DAMAGE, Database, Table, integers
from whyidle.monitor.traces.nsys.facts import Facts
from whyidle.monitor.traces.nsys.gpu_metrics import gpu_metrics
from whyidle.monitor.traces.nsys.naming import Naming
from whyidle.monitor.traces.nsys.rows import Rows
from whyidle.monitor.traces.nsys.strings import Strings
from whyidle.monitor.traces.nsys.tables import HOST, KNOWN, WORK, HostTable, WorkTable
from whyidle.monitor.traces.opening import Progress, Source, show
from whyidle.monitor.traces.stretches import Stretches

_GRAPHS: Final = "graph"


@dataclass(frozen=True, slots=True)
class _Part:
    """One table to read."""

    number: int  # in WORK or HOST
    of: WorkTable | HostTable
    table: Table
    count: int


class _Reader:
    """One file on its way into columns."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.rows = Rows(Strings())
        self.warnings: list[str] = []
        self.parts = [part for part in self._parts() if self._has_times(part)]

    def _parts(self) -> Iterator[_Part]:
        known: list[tuple[int, WorkTable | HostTable]] = [*enumerate(WORK), *enumerate(HOST)]
        for number, of in known:
            if table := self.database.tables.get(of.name):
                yield _Part(number, of, table, self.database.count(table))

    def _has_times(self, part: _Part) -> bool:
        if part.table.column("start") and part.table.column("end"):
            return True
        self.warnings.append(f"Table {part.table.name} has no start or no end: it is left out.")
        return False

    def read(self, source: Source, progress: Progress | None) -> None:
        """Read all tables."""
        total, done = sum(part.count for part in self.parts), 0
        for part in self.parts:
            for count in self._read(part):
                done += count
                self.rows.make_room()
                if progress and total:
                    progress(min(source.size, source.size * done // total), source.size)

    def _read(self, part: _Part) -> Iterator[int]:
        """Read a table; yield how many rows each block has."""
        rows, before = self.rows, self.rows.events
        query = (
            rows.work_query(part.of, part.table)
            if isinstance(part.of, WorkTable)
            else rows.host_query(part.of, part.table)
        )
        refer = rows.strings.__getitem__
        try:
            texts = self._texts(part)
            for found in self.database.rows(part.table, query):
                block = integers(found, refer)
                if isinstance(part.of, WorkTable):
                    rows.add_work(part.number, part.of, block)
                else:
                    rows.add_host(part.number, block, next(texts, None))
                yield len(found)
        except DAMAGE as error:
            self.warnings.append(
                f"Table {part.table.name} was read up to row {rows.events - before:,} only:"
                f" {error}."
            )

    def _texts(self, part: _Part) -> Iterator[list[Any]]:
        """Yield the texts that stand in a table itself, in blocks of the same rows."""
        name = part.of.text if isinstance(part.of, HostTable) else ""
        if column := name and part.table.column(name):
            for rows in self.database.rows(part.table, [column]):
                yield [text for (text,) in rows]

    def trace(self) -> Trace:
        """Return what was read."""
        naming, facts = Naming(self.rows, self.database), Facts(self.database)
        if self.rows.spill is None:
            trace = assemble(self.rows, naming, facts)
        else:
            trace = Trace("nsys", ticks_per_ns=1, events=self.rows.events)
            trace.stretches = Stretches(
                self.rows,
                self.rows.spill,
                lambda rows, origin: assemble(rows, naming, facts, origin),
            )
        trace.gpu_metrics = gpu_metrics(self.database)
        return trace


def read(source: Source, progress: Progress | None = None) -> Trace:
    """Read an export; what cannot be read is left out, with a warning."""
    with Database(source) as database:
        if not KNOWN & database.tables.keys():
            raise _no_export(source, database)
        reader = _Reader(database)
        reader.read(source, progress)
        trace = reader.trace()
    if database.cut_off:
        reader.warnings.insert(0, f"{CUT_OFF} or damaged: what could be read counts.")
    trace.warnings = [*reader.warnings, *_odd(reader.rows), *trace.warnings]
    trace.warnings += [*_of_graphs(reader), *_of_journal(source), *_of_cuda(reader.rows)]
    return trace


def _no_export(source: Source, database: Database) -> UsageProblem:
    name = show(source.path)
    if _journal(source):
        return UsageProblem(
            f"{name} is an SQLite database whose tables are still in its journal, {name}-wal.",
            f"Let the program that writes it end, or: sqlite3 {name} 'PRAGMA wal_checkpoint'",
        )
    what = "has no tables" if not database.tables else "has none of the tables of one"
    return UsageProblem(
        f"{name} is an SQLite database, but no export of Nsight Systems: it {what}.",
        "Export the report: nsys export --type sqlite -o trace.sqlite REPORT.nsys-rep",
    )


def _journal(source: Source) -> bool:
    beside = Path(f"{source.path}-wal")
    return beside.exists() and beside.stat().st_size > 0


def _odd(rows: Rows) -> Iterator[str]:
    if rows.unreadable:
        yield f"{_count(rows.unreadable, 'event')} could not be read: no time that can be."
    if rows.negative:
        yield f"{_count(rows.negative, 'event')} ended before the start: taken as without duration."
    if rows.open:
        yield f"{_count(rows.open, 'range')} had not ended when the recording did: left out."
    if rows.strings.texts.full:
        yield "The file holds too many different names: the last ones are shown as others."
    for keys, what in ((rows.threads, "threads"), (rows.devices, "devices")):
        if keys.full:
            yield f"The file names more than {len(keys):,} {what}: the others count as the last."


def _of_graphs(reader: _Reader) -> Iterator[str]:
    count = sum(
        part.count
        for part in reader.parts
        if isinstance(part.of, WorkTable) and part.of.work == _GRAPHS
    )
    if count:
        yield (
            f"{_count(count, 'launch', 'es')} of CUDA graphs count as compute, whatever is in"
            " them: copies and communication too. Record with --cuda-graph-trace=node."
        )


def _of_journal(source: Source) -> Iterator[str]:
    if _journal(source):
        yield (
            f"What is still in the journal {show(source.path)}-wal was not read:"
            f" sqlite3 {show(source.path)} 'PRAGMA wal_checkpoint' brings it in."
        )


def _of_cuda(rows: Rows) -> Iterator[str]:
    if rows.events and not rows.devices:
        yield (
            "The file holds no work of CUDA: it was recorded without --trace=cuda, or while no GPU"
            " worked."
        )


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else plural}"
