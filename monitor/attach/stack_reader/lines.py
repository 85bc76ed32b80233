"""Which line an instruction belongs to, from the table in its code object."""

from __future__ import annotations

from collections.abc import Iterator

from whyidle.monitor.attach.stack_reader.layout import Lines

# (where the instructions end, their line; ``None``: they belong to none)
Span = tuple[int, int | None]
_UNIT = 2
# Kinds of entries in a table of locations.
_NONE, _LONG, _NO_COLUMNS, _ONE_LINE = 15, 14, 13, 10


def spans(lines: Lines, table: bytes, first_line: int) -> list[Span]:
    """Return the spans of instructions, in their order; a damaged table raises ``IndexError``."""
    read = {
        Lines.LNOTAB: _lnotab,
        Lines.LINE_TABLE: _line_table,
        Lines.LOCATIONS: _locations,
    }
    return list(read[lines](table, first_line))


def line_at(found: list[Span], instruction: int) -> int | None:
    """Return the line of an instruction, or the last one before it; ``None``: there is none."""
    known = None
    for end, line in found:
        known = known if line is None else line
        if instruction < end:
            return known
    return None


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _lnotab(table: bytes, line: int) -> Iterator[Span]:
    """Go through pairs: so many bytes further begins a line so many lines further."""
    end = 0
    for at in range(0, len(table) - 1, 2):
        if table[at]:
            end += table[at]
            yield end, line
        line += _signed(table[at + 1])
    # Nothing says how long the last line is.
    yield 1 << 62, line


def _line_table(table: bytes, line: int) -> Iterator[Span]:
    end = 0
    for at in range(0, len(table) - 1, 2):
        end += table[at]
        step = _signed(table[at + 1])
        if step == -128:
            yield end, None
            continue
        line += step
        yield end, line


def _locations(table: bytes, line: int) -> Iterator[Span]:
    end, at = 0, 0
    while at < len(table):
        kind, end = table[at] >> 3 & 15, end + ((table[at] & 7) + 1) * _UNIT
        at += 1
        if kind == _NONE:
            yield end, None
            continue
        if kind in {_LONG, _NO_COLUMNS}:
            step, at = _signed_varint(table, at)
            line += step
        elif kind >= _ONE_LINE:
            line += kind - _ONE_LINE
        # The columns that follow are of no interest; a new entry begins with the highest bit.
        while at < len(table) and table[at] < 128:
            at += 1
        yield end, line


def _signed_varint(table: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = table[at]
        value |= (byte & 63) << shift
        shift += 6
        at += 1
        if not byte & 64:
            return (-(value >> 1) if value & 1 else value >> 1), at
