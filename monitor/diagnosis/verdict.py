"""The verdict: the largest part of the time that is no useful work, and the line of it.

It names that part whether a cure is known or not. Errors and risks that are sure stand before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from whyidle.monitor.core.amounts import MOSTLY
from whyidle.monitor.core.finding import LEAST_LOST, Knows, Place, Severity, at
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.diagnosis.claims import MOST_OF, Row, about
from whyidle.monitor.diagnosis.ranking import LOUD, Finding
from whyidle.monitor.rules import Kind
from whyidle.monitor.runs.stacks import summed
from whyidle.monitor.signals.account import by_line, ranked
from whyidle.monitor.signals.phases import WORDS, Phase
from whyidle.monitor.signals.user_lines import leaves, of_slice
from whyidle.monitor.signals.window import Window

HEALTHY: Final = f"Nothing worth fixing above {LEAST_LOST[Severity.LOW]:.0%} of the time was found"
NOTHING_LARGE: Final = (
    "Nothing stands out: compute takes {compute:.0%}, and no other part 5% of the time."
)
IDLE: Final = "is idle, nothing recorded says why"
NO_REASON: Final = f"No known cause: {{share:.0%}} of the time {IDLE}"
NOT_KNOWN: Final = "Too little is known for a verdict."
SERVES: Final = "No known fault; {}."
# So much of it is said first where nothing loud was found.
COMPUTING: Final = 0.8
# Only then does nothing else take time.
COMPUTES: Final = 0.95
# Smaller parts are no verdict.
LEAST: Final = LOUD
MOST_PLACES: Final = 3
# How a part of the account is said in a sentence, where its name alone does not say it.
_SAID: Final = {
    Slice.IDLE_INPUT: "waiting for input",
    Slice.IDLE_DISPATCH: "the host preparing work",
    Slice.IDLE_QUEUE: "launched work that has not started",
    Slice.IDLE_ALLOC: "the allocator of the device",
    Slice.IDLE_COMPILE: "compiling",
    Slice.IDLE_SYNC: "waiting for the device",
    Slice.IDLE_GC: "garbage collection",
    Slice.IDLE_IO: "waiting for files or others",
    Slice.IDLE_OTHER_PROCESS: "waiting for another process",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict, and the finding that it is about."""

    text: str
    share: float | None = None
    where: tuple[Place, ...] = ()
    finding: Finding | None = None
    # What takes more of the time than this does, and its line.
    rest: str = ""
    rest_at: tuple[Place, ...] = ()
    # What its cure gives, for places that say no factor.
    saves: str = ""

    @property
    def text_alone(self) -> str:
        """The sentence with what its cure gives."""
        return f"{self.text.rstrip('.')}{self.saves}." if self.saves else self.text


UNJUDGED: Final = Headline(NOT_KNOWN)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the time that is no useful work."""

    of: Slice | Phase
    # The shares of its rows, by their numbers in the account.
    rows: Mapping[int, float]
    # The user's lines in it, the largest first.
    where: tuple[Place, ...]

    @property
    def share(self) -> float:
        return sum(self.rows.values())

    @property
    def said(self) -> str:
        if isinstance(self.of, Phase):
            return WORDS[self.of]
        return _SAID.get(self.of) or LOOKS[self.of].words.removeprefix("idle: ")

    @property
    def unknown(self) -> str:
        """What is missing: why the device is idle, or what to do about the rest."""
        is_idle = isinstance(self.of, Slice) and self.of.idle
        return "No known cause" if is_idle else "No known fix"


def headline(
    window: Window, rows: Sequence[Row], findings: Sequence[Finding], *, is_known: bool
) -> Headline:
    """Return the verdict over a window, whose findings are in order."""
    for each in findings:
        # What its cause stands before ends with that.
        if each.is_risk and each.behind is None and each.is_loud:
            return Headline(f"{_title(each)}.", None, each.found.where, each)
    speak = [each for each in findings if each.severity is not Severity.INFO]
    share, part, by = _largest(window, rows, speak, is_known=is_known)
    first = next(iter(speak), None)
    # What is loud may be the cause of a part that nothing else is known of, if it gives back half.
    needed = share * (MOST_OF if by is None and first is not None and first.is_loud else 1.0)
    if first is not None and first is not by and first.weight >= needed:
        part, by = None, first
    elif first is not None and by is None and first.is_loud and _is_unknown(part):
        # How much it costs is not known, and yet it says why.
        part, by = None, first
    compute = _compute(rows)
    if part is not None or by is not None:
        said = _said(part, by, compute, _paced(window, by), at_once=window.job.computes_at_once)
        return _with_gain(window, said)
    if (serves := _serving(window)) is not None:
        return serves
    if not is_known:
        return UNJUDGED
    where = compute.where[:1]
    if compute.share <= COMPUTES:
        return Headline(NOTHING_LARGE.format(compute=compute.share), None, where)
    return Headline(
        f"{HEALTHY}: {compute.share:.0%} is compute." if where else f"{HEALTHY}.", None, where
    )


def _with_gain(window: Window, said: Headline) -> Headline:
    """Say what the cure gives in the sentence itself where no factor is given."""
    if window.serves:
        return replace(said, saves="")
    return said if window.paced_by else replace(said, text=said.text_alone, saves="")


def _serving(window: Window) -> Headline | None:
    """Say where a program works that answers requests, and does not train meanwhile."""
    serving = window.job.serving
    if serving is None or serving.trains:
        return None
    where = by_line(window.rows, lambda row: row.innermost)[:MOST_PLACES]
    said = "it answers requests, mostly here" if where else f"its main thread {serving.waits}"
    return Headline(SERVES.format(said), None, where)


def within(window: Window, said: Headline) -> list[Place]:
    """Return the functions of libraries that the line of an unknown cause was found in most."""
    if said.finding is not None or not said.where:
        return []
    found = leaves(window.job, said.where[0].file, said.where[0].line)
    lines = {(leaf.file, leaf.function): leaf.line for leaf, _ in reversed(found)}
    shares = summed(((leaf.file, leaf.function), share) for leaf, share in found)
    most = islice(shares.items(), MOST_PLACES)
    return [Place(at[0], lines[at], at[1], share) for at, share in most if share >= LEAST]


def led(findings: Sequence[Finding], first: Finding | None) -> tuple[Finding, ...]:
    """Put what the verdict is about before all that costs time; the rest stays in order."""
    at = next((i for i, each in enumerate(findings) if not each.is_risk), len(findings))
    if first is None or first in findings[: at + 1]:
        return tuple(findings)
    return (*findings[:at], first, *(each for each in findings[at:] if each is not first))


def _compute(rows: Sequence[Row]) -> _Part:
    """Return the compute, and the user's lines at which the main thread is meanwhile."""
    mine = {n: row.share for n, row in enumerate(rows) if row.of is Slice.COMPUTE}
    hosts = ((rows[n].host, share) for n, share in mine.items())
    lines = ((host.innermost, share) for host, share in hosts if host and host.innermost)
    return _Part(Slice.COMPUTE, mine, tuple(ranked(lines)))


def _said(
    part: _Part | None, by: Finding | None, compute: _Part, paced: str, *, at_once: bool
) -> Headline:
    where = part.where if part is not None else ()
    if by is not None:
        where, title = by.found.where or where, _title(by)
        share = by.reach if part is None else part.share
        # How large its part is; the number of its gain only where that is not said by itself.
        part_of_it = by.lost if by.found.gain else by.reach or share
        much = f"{part_of_it:.0%} {paced}" if share and "%" not in title else ""
        saves = f" (a fix saves about {much})" if much and by.found.gain else ""
        text = f"{title} ({much})." if much and not saves else f"{title}."
    else:
        saves = ""
        assert part is not None  # noqa: S101  a claim has its finding
        share, text = part.share, f"{part.unknown}: {part.share:.0%} of the time is {part.said}."
        if _is_unknown(part):
            text, where = f"{NO_REASON.format(share=share)}.", ()
    said = Headline(text, share or None, where[:MOST_PLACES], by, saves=saves)
    most = compute.where[:1]
    # Where a call only starts the work, the line that waits for it stands for what is not known.
    is_other = by is not None or not where or (at_once and _lines(most) != _lines(where[:1]))
    if (by is not None and by.is_loud) or not is_other or sum(map(_share, most)) <= share:
        return _compute_first(said, part, compute)
    longest = _share(most[0])
    much = "mostly" if longest >= MOSTLY * compute.share else f"{longest:.0%}"
    rest = f"{compute.share:.0%} is compute, {much} at {at(most[0].file, most[0].line)}"
    said = replace(said, where=where[: MOST_PLACES - 1], rest=rest, rest_at=most)
    return _compute_first(said, part, compute)


def _compute_first(said: Headline, part: _Part | None, compute: _Part) -> Headline:
    """Say first that most of the time is compute, where nothing loud is known to be at fault."""
    by = said.finding
    # A phase may be computing, too.
    if compute.share < COMPUTING or (part is not None and isinstance(part.of, Phase)):
        return said
    works = said.rest or f"{compute.share:.0%} is compute"
    if by is not None:
        text = f"{works}. Worth a look: {_title(by)}."
        return said if by.is_loud else replace(said, text=text, rest="")
    if part is None:
        return said
    why = f"is {part.said}, with {part.unknown.lower()}"
    text = f"{works}; {part.share:.0%} {IDLE if _is_unknown(part) else why}."
    return replace(said, text=text, rest="")


def _paced(window: Window, by: Finding | None) -> str:
    """Return of what a share is said: of more samples in a longer step it is none of a step."""
    in_steps = window.paced_by == "steps" and (by is None or by.rule.paced_by == "steps")
    return "of each step" if in_steps else "of the time"


def _is_unknown(part: _Part | None) -> bool:
    return part is not None and part.of is Slice.IDLE_UNKNOWN


def _lines(places: Sequence[Place]) -> list[tuple[str, int]]:
    return [(place.file, place.line) for place in places]


def _share(place: Place) -> float:
    return place.share or 0.0


def _title(finding: Finding) -> str:
    return finding.found.title or finding.rule.title


def _largest(
    window: Window, rows: Sequence[Row], speak: Sequence[Finding], *, is_known: bool
) -> tuple[float, _Part | None, Finding | None]:
    """Return how large the largest part that is no useful work is, and the finding about it."""
    parts: list[tuple[float, _Part | None, Finding | None]] = []
    for part in _parts(window, rows):
        about_it = [one for one in speak if _covers(one, part, rows)]
        by = min(about_it, key=lambda one: one.found.knows is Knows.LINES, default=None)
        # Where most of the time is unknown, the largest part may be another.
        if by is not None or is_known:
            parts.append((part.share, part, by))
    return max(parts, key=lambda one: one[0], default=(0.0, None, None))


def _parts(window: Window, rows: Sequence[Row]) -> Iterator[_Part]:
    """Yield what takes so much of the time, and is no useful work."""
    for part in (*Slice, *(() if window.host is None else window.host.phases)):
        # Of a phase the share of the main thread's time, which is what it takes.
        mine = {
            n: row.share if isinstance(part, Slice) or row.host is None else row.host.share
            for n, row in enumerate(rows)
            if part in {row.of, row.phase}
        }
        if part in {Slice.COMPUTE, Phase.STEP} or sum(mine.values()) < LEAST:
            continue
        hosts = [host for n in mine if (host := rows[n].host) is not None]
        if isinstance(part, Phase):
            yield _Part(part, mine, by_line(hosts, lambda row: row.begins or row.innermost))
            continue
        least = MOST_OF * sum(mine.values())
        if part is Slice.IDLE_DISPATCH and window.host and sum(x.share for x in hosts) < least:
            # Calls that compute prepare the next ones, too: it is where the thread mostly is.
            hosts = [*window.host.rows]
        where = of_slice(window, part) or by_line(hosts, lambda row: row.innermost)
        if part is Slice.IDLE_DISPATCH and window.host and not where:
            where = by_line(window.host.rows, lambda row: row.innermost)
        yield _Part(part, mine, where)


def _covers(finding: Finding, part: _Part, rows: Sequence[Row]) -> bool:
    if finding.rule.kind is not Kind.TIME:
        return False
    gain = finding.found.gain
    if gain is not None and gain.high < MOST_OF * part.share:
        return False
    mine = part.rows.keys() & about(rows, finding.found)
    return finding.found.slice is part.of or (
        sum(part.rows[n] for n in mine) >= MOST_OF * part.share
    )
