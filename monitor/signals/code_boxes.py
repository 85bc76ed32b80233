"""The user's lines as boxes within boxes: the outermost line first, as wide as its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import PurePath
from typing import Final

from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.runs.stacks import CodeLine, summed
from whyidle.monitor.signals.account import HostAccount, HostRow
from whyidle.monitor.signals.limits import MOST_FRAMES

# Smaller boxes, or more of them, cannot be seen, and cost time.
MOST_BOXES: Final = 250
LEAST_BOX: Final = 1 / MOST_BOXES
NO_CODE: Final = "none of your lines"
RARER: Final = "rarer lines"
ROOT: Final = "main thread"


@dataclass(frozen=True, slots=True)
class Box:
    """A box of the chart: a line within a chain, or what the thread did at the end of one."""

    key: str
    parent: str
    # ``None``: words stand for it.
    line: CodeLine | None
    words: str
    share: float
    error: float
    doing: Mapping[HostClass, float]
    # Its class; ``None``: its time is of several, which the boxes in it show.
    colour: HostClass | None
    is_end: bool


def named(line: CodeLine | None) -> str:
    """Return a line in a few words."""
    if line is None:
        return NO_CODE
    return f"{PurePath(line.file).name}:{line.line} in {line.function}"


@dataclass(slots=True)
class _Branch:
    """A line on the way in, with all that was found below it."""

    line: CodeLine | None
    share: float = 0.0
    doing: dict[HostClass, float] = field(default_factory=dict)
    # Where the chain ends here.
    own: dict[HostClass, float] = field(default_factory=dict)
    inner: dict[CodeLine | None, _Branch] = field(default_factory=dict)

    def add(self, row: HostRow) -> None:
        self.share += row.share
        self.doing[row.doing] = self.doing.get(row.doing, 0.0) + row.share


def boxes(account: HostAccount) -> list[Box]:
    """Return the boxes, the outermost first."""
    root = _Branch(None)
    for way, row in _ways(account):
        at = root
        at.add(row)
        for line in way or (None,):
            known = at.inner.get(line)
            if known is None:
                known = at.inner[line] = _Branch(line)
            at = known
            at.add(row)
        at.own[row.doing] = at.own.get(row.doing, 0.0) + row.share
    return list(_drawn(root, "", account, _least(root)))


def _ways(account: HostAccount) -> Iterator[tuple[tuple[CodeLine, ...], HostRow]]:
    """Yield each row with its chain from the outermost line in.

    The agent sends the innermost lines of a deep chain: what called them, other chains show.
    """
    outer: dict[CodeLine, tuple[CodeLine, ...]] = {}
    for row in account.rows:
        for place, line in enumerate(row.frames[:-1]):
            outer.setdefault(line, row.frames[place + 1 :])
    for row in account.rows:
        frames = row.frames[:MOST_FRAMES]
        while frames and len(frames) < MOST_FRAMES:
            more = tuple(line for line in outer.get(frames[-1], ()) if line not in frames)
            if not more:
                break
            frames += more
        yield frames[::-1], row


def _least(root: _Branch) -> float:
    """Return the share that a box needs to be one of the largest."""
    shares, waiting = [], [root]
    while waiting:
        branch = waiting.pop()
        shares.append(branch.share)
        waiting.extend(branch.inner.values())
    shares.sort(reverse=True)
    return max(LEAST_BOX, shares[MOST_BOXES - 1] if len(shares) >= MOST_BOXES else 0.0)


def _drawn(branch: _Branch, parent: str, account: HostAccount, least: float) -> Iterator[Box]:
    shown = [each for each in branch.inner.values() if each.share >= least]
    ends: dict[HostClass | None, tuple[float, dict[HostClass, float]]] = {
        doing: (share, {doing: share}) for doing, share in branch.own.items()
    }
    hidden = (each.doing for each in branch.inner.values() if each.share < least)
    rare = summed(part for doing in hidden for part in doing.items())
    if rare:
        ends[None] = sum(rare.values()), rare
    # A line where every chain ends, and all do one thing, needs no box in it.
    is_end = not shown and len(ends) == 1
    words = named(branch.line) if parent else ROOT
    key = _key(parent, branch.line.file if branch.line else "", words)
    yield Box(key, parent, branch.line, words, branch.share, account.error(branch.share),
              summed(branch.doing.items()), _mostly(branch.doing), is_end)  # fmt: skip
    if is_end:
        return
    for each in shown:
        yield from _drawn(each, key, account, least)
    for kind, (share, doings) in ends.items():
        line, what = (None, RARER) if kind is None else (branch.line, "")
        yield Box(_key(key, str(kind)), key, line, what, share, account.error(share),
                  summed(doings.items()), _mostly(doings), is_end=True)  # fmt: skip


def _mostly(doing: Mapping[HostClass, float]) -> HostClass | None:
    first = max(doing, key=lambda each: doing[each])
    return first if doing[first] >= NEARLY_ALL * sum(doing.values()) else None


def _key(*parts: str) -> str:
    """Return a name that stays the same while the shares change."""
    return blake2b("\0".join(parts).encode(errors="replace"), digest_size=6).hexdigest()
