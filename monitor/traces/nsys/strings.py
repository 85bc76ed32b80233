"""Texts by number: most columns refer to the table of strings, some hold the text itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from whyidle.monitor.traces.interning import Names
from whyidle.monitor.traces.model import Ids, Ints
from whyidle.monitor.traces.nsys.database import DAMAGE, Database

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
        """Return for each reference the place of its text, -1 for none: one walk of the table."""
        distinct, where = np.unique(refs, return_inverse=True)
        places = np.where(distinct < _NONE, -2 - distinct, _NONE)
        ids = distinct[distinct >= 0]
        if len(ids):
            places[distinct >= 0] = self._from_table(database, ids)
        return places[where].astype(np.int32)

    def _from_table(self, database: Database, ids: Ints) -> Ints:
        table = database.tables.get("STRINGIDS")
        columns = [table.column("id"), table.column("value")] if table else [None]
        found: dict[Any, int] = {}
        if table and None not in columns:
            wanted = frozenset(ids.tolist())
            where = f"WHERE {columns[0]} BETWEEN {ids[0]} AND {ids[-1]}"
            try:
                for rows in database.rows(table, [c for c in columns if c], where):
                    used = [row for row in rows if row[0] in wanted and type(row[1]) is bytes]
                    found.update((id_, -2 - self[text]) for id_, text in used)
            except DAMAGE:
                pass  # the names that were read before the damage stay
        return np.array([found.get(i, _NONE) for i in ids.tolist()], np.int64)
