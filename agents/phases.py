"""How long a thread compiled, where one compilation lies within another."""

from __future__ import annotations

# Phases of a thread that might lie within a later one.
MOST_SPANS = 64


class Phases:
    """The phases on one thread, by their ends; they lie within each other or one after another.

    Tracing a function may compile another one on the way: its time counts once in the total.
    """

    def __init__(self) -> None:
        # Whether a cache had what is being compiled; what was traced last, and why.
        self.hit = False
        self.traced: tuple[str, str | None] = ("", None)
        # Begin, end, and whether a record has counted it.
        self._spans: list[tuple[int, int, bool]] = []

    def add(self, begin: int, end: int) -> int:
        """Add a phase; returns how much of it is new."""
        new = end - begin
        while self._spans and self._spans[-1][1] > begin:
            inner_begin, inner_end, _ = self._spans.pop()
            new -= inner_end - inner_begin
        self._spans.append((begin, end, False))
        del self._spans[:-MOST_SPANS]
        return max(0, new)

    def take(self) -> int:
        """Return the time of all phases since the last call."""
        took = sum(end - begin for begin, end, is_counted in self._spans if not is_counted)
        self._spans = [(begin, end, True) for begin, end, _ in self._spans]
        return took
