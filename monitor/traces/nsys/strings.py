"""Texts by number: most columns refer to the table of strings, some hold the text itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from whyidle.monitor.traces.interning import Names
from whyidle.monitor.traces.model import Ids, Ints
from whyidle.monitor.traces.nsys.database import DAMAGE, Database, Row

# What PyTorch's emit_nvtx adds to the name of an operator, another one at each call.
EMITTED: Final = b", op_id ="
_ADDED: Final = (b", seq", b", op_id", b", sizes", b", input_op_ids", b", trace_id")
_NONE: Final = -1


class Strings(dict[Any, int]):
    """A number for what a column of names holds: an id of the table of strings, or a text.

    Texts have numbers below -1, each text one; -1 is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts = Names()

    def __missing__(self, value: Any) -> int:
        if isinstance(value, bytes) and value:
            name = value.partition(b" = ")[0]
            if name.endswith(_ADDED):
                # Another one at each call: only what they have in common has a place here.
                return self[name.rpartition(b", ")[0] + EMITTED]
            number = -2 - self.texts[value.decode(errors="replace")]
            if not self.texts.full:
                self[value] = number
            return number
        return max(value, _NONE) if isinstance(value, int) else _NONE

    def column(self, values: Iterable[Any]) -> Ints:
        """Return the numbers of these texts."""
        return np.fromiter(map(self.__getitem__, values), np.int64)

    def resolve(self, database: Database, refs: Ints) -> Ids:
        """Return for each of these references, distinct and in order, the place of its text.

        -1 for none; one walk of the table.
        """
        places = np.where(refs < _NONE, -2 - refs, _NONE)
        first = int(np.searchsorted(refs, 0))
        if first < len(refs):
            places[first:] = self._from_table(database, refs[first:])
        return places.astype(np.int32)

    def _from_table(self, database: Database, ids: Ints) -> Ints:
        table = database.tables.get("STRINGIDS")
        columns = [table.column("id"), table.column("value")] if table else [None]
        found = np.full(len(ids), _NONE)
        if table and None not in columns:
            where = f"WHERE {columns[0]} BETWEEN {ids[0]} AND {ids[-1]}"
            try:
                for rows in database.rows(table, [c for c in columns if c], where):
                    self._find(rows, ids, found)
            except DAMAGE:
                pass  # the names that were read before the damage stay
        return found

    def _find(self, rows: list[Row], ids: Ints, found: Ints) -> None:
        """Note the texts that are wanted among these rows."""
        there = np.array([row[0] if type(row[0]) is int else _NONE for row in rows], np.int64)
        at = np.minimum(np.searchsorted(ids, there), len(ids) - 1)
        for i in np.flatnonzero(ids[at] == there).tolist():
            text = rows[i][1]
            if type(text) is bytes:
                found[at[i]] = -2 - self[text]
