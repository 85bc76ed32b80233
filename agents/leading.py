"""Of several that count, those of the one that counts most: another may take over."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_COUNTED = 64


class Leading:
    """Adds up each second what the one counted that counts most.

    ``fades``: what is left of a second after the next. 0.999 halves it in twelve minutes: no
    validation takes over. 0.93 does in ten seconds.
    """

    __slots__ = ("_fades", "_lately", "_total")

    def __init__(self, fades: float) -> None:
        self._fades = fades
        self._lately: dict[int, float] = {}
        self._total = 0.0

    def second(self, counts: Mapping[int, float]) -> int:
        """Take the counts of a second, by who counted; return the total."""
        lately = {who: n for who, was in self._lately.items() if (n := self._fades * was) >= 1}
        for who, number in counts.items():
            if who in lately or len(lately) < MOST_COUNTED:
                lately[who] = lately.get(who, 0.0) + number
        self._lately = lately
        if counts and lately:
            self._total += counts.get(max(lately, key=lately.__getitem__), 0.0)
        return round(self._total)
