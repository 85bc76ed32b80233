"""What PyTorch notes beside communication: which collective of which group, of how many bytes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from whyidle.monitor.traces.interning import Names
from whyidle.monitor.traces.kineto.header import whole
from whyidle.monitor.traces.kineto.record import Args
from whyidle.monitor.traces.model import Ids, Ints, Messages, Ops

# As PyTorch calls its types.
_BYTES: Final = {
    **dict.fromkeys(("byte", "char", "bool"), 1),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "complexfloat"), 8),
}
# A trace of so many collectives is none of a few steps.
_MOST: Final = 2_000_000


class Sent:
    """The notes of a file, on kernels and on the operators that asked for them."""

    def __init__(self) -> None:
        self.names = Names()
        self._kernels = 0
        self._by_kernel = array("q")  # five numbers each
        self._by_operator: dict[int, tuple[int, int, int, int]] = {}

    def by_kernel(self, notes: Sequence[tuple[int, Args]], count: int) -> None:
        """Note what some of the next kernels of the file say."""
        if len(self._by_kernel) < 5 * _MOST:
            for at, args in notes:
                self._by_kernel.extend((self._kernels + at, *self._read(args)))
        self._kernels += count

    def by_operator(self, notes: Sequence[tuple[int, Args]], externals: Ints) -> None:
        """Note what operators say; kernels carry their ids."""
        for at, args in notes:
            if len(self._by_operator) < _MOST:
                self._by_operator[int(externals[at])] = self._read(args)

    def _read(self, args: Args) -> tuple[int, int, int, int]:
        name = self.names[str(args.collective)]
        group = -1
        if args.group is not None:
            ranks = str(args.ranks or "").replace(" ", "")
            # Long lists are cut off, with dots.
            group = self.names[f"{args.group}:{ranks}" if ranks[-1:] == "]" else str(args.group)]
        sequence = whole(args.sequence)
        return name, group, -1 if sequence is None else sequence, _bytes_of(args)

    def of(self, ops: Ops, rows: Ids | Ints, first: int) -> Messages:
        """Return the notes on the operations of a device, which stood in these rows of the file.

        ``first``: the index of the first of our names in those of the trace.
        """
        found = _of_kernels(self._by_kernel, rows)
        known: Mapping[int, Any] = self._by_operator
        if not len(found) and known:
            ids = np.fromiter(known, np.int64)
            mine = np.flatnonzero(np.isin(ops.external, ids) & (ops.external >= 0))
            notes = [known[id_] for id_ in ops.external[mine].tolist()]
            found = _table(mine, notes)
        found.name += np.int32(first)
        found.group[found.group >= 0] += np.int32(first)
        return found


def _of_kernels(notes: array[int], rows: Ids | Ints) -> Messages:
    if not notes or not len(rows):
        return Messages.of()
    table = np.frombuffer(notes, np.int64).reshape(-1, 5)
    order = np.argsort(rows)
    at = np.searchsorted(rows[order], table[:, 0])
    at = np.minimum(at, len(rows) - 1)
    mine = rows[order][at] == table[:, 0]
    return _table(order[at[mine]], table[mine, 1:])


def _table(row: Any, notes: Any) -> Messages:
    name, group, sequence, size = np.array(notes, np.int64).reshape(-1, 4).T
    by_row = np.argsort(row)
    return Messages.of(
        row=row[by_row],
        name=name[by_row],
        group=group[by_row],
        sequence=sequence[by_row],
        bytes=size[by_row],
    )


def _bytes_of(args: Args) -> int:
    """Return the larger side of what a rank sends and receives; -1: not known."""
    size = _BYTES.get(str(args.dtype).lower())
    counts = [n for n in (whole(args.sent), whole(args.received)) if n is not None]
    # Each is no more than a column holds, their product may be.
    found = None if size is None or not counts else whole(size * max(counts))
    return -1 if found is None else found
