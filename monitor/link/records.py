"""The records in an agent's spool, typed: whatever does not fit is damaged, and counted."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from whyidle.agents import wire

# The columns of the store end at 64 bits, and so do the clocks.
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=256)]
# Half of a surrogate pair, which UTF-8 cannot hold; a whole pair is one character.
_HALF = rb"\\u[dD][%s][0-9a-fA-F]{2}"
_SURROGATE = re.compile(
    rb"(" + _HALF % b"89abAB" + _HALF % b"c-fC-F" + rb")|" + _HALF % b"89a-fA-F"
)


class Frame(Struct, array_like=True, frozen=True):
    """A line of code in a stack."""

    file: Annotated[str, Meta(max_length=wire.LONGEST_FILE)]
    line: Natural
    function: Annotated[str, Meta(max_length=wire.LONGEST_NAME)]


class StackCount(Struct, array_like=True, frozen=True):
    """How often a thread had this stack: the leaf, and the user's own frames, innermost first.

    ``called`` is what the innermost of these called; of ``known`` samples the thread waited for
    Python's lock in ``locked``, and for anything else in ``waited``; in ``blocked`` of these, for a
    disk. ``phase`` is what the job's own code says that it does beside its steps.
    """

    count: Natural
    leaf: Frame | None = None
    frames: Annotated[list[Frame], Meta(max_length=wire.STACK_DEPTH)] = []
    called: Frame | None = None
    known: Natural = 0
    waited: Natural = 0
    locked: Natural = 0
    blocked: Natural = 0
    phase: Annotated[str, Meta(max_length=wire.PHASE_BYTES)] | None = None


class Hello(Struct, array_like=True, frozen=True, tag="hello"):
    """The first record."""

    t: Natural
    facts: dict[Name, object] = {}


class Clock(Struct, array_like=True, frozen=True, tag="clock"):
    """Both clocks at one moment."""

    t: Natural
    realtime_ns: Natural
    error_ns: Natural = 0


class Gauges(Struct, array_like=True, frozen=True, tag="gauges"):
    """Figures of one moment; totals count from the agent's start."""

    t: Natural
    values: Annotated[dict[Name, float | None], Meta(max_length=256)]


class LongGc(Struct, array_like=True, frozen=True, tag="gc"):
    """One long pause of the garbage collector, at its end."""

    t: Natural
    generation: Natural
    ns: Natural
    collected: Natural = 0


class Stacks(Struct, array_like=True, frozen=True, tag="stacks"):
    """Where the main thread was during the ``span_ns`` before ``t``."""

    t: Natural
    span_ns: Natural
    samples: Natural
    counts: Annotated[list[StackCount], Meta(max_length=wire.MOST_PLACES)]
    # Where other threads were that had Python's lock while this one waited for it.
    holders: Annotated[list[StackCount], Meta(max_length=wire.MOST_PLACES)] = []
    # What those that waited read from, and how often: only seen from outside.
    reads: Annotated[dict[Name, Natural], Meta(max_length=wire.MOST_PLACES)] = {}


class Steps(Struct, array_like=True, frozen=True, tag="steps"):
    """Steps that ended during the ``span_ns`` before ``t``, and some of their durations, sorted.

    ``unit``: which of what the source may count; steps of two units are not the same.
    """

    t: Natural
    source: Name
    span_ns: Natural
    count: Natural
    durations: Annotated[list[Natural], Meta(max_length=wire.MOST_DURATIONS)]
    unit: Natural = 0


class Compile(Struct, array_like=True, frozen=True, tag="compile"):
    """One compilation, at its end."""

    t: Natural
    framework: Name
    function: Name
    ns: Natural
    reason: Annotated[str, Meta(max_length=wire.LONGEST_REASON)] | None = None
    caller: Frame | None = None
    cached: bool = False


class Read(Struct, array_like=True, frozen=True):
    """A line of the user's code that reads values back."""

    count: Natural
    ns: Natural
    frame: Frame | None = None


class Reads(Struct, array_like=True, frozen=True, tag="reads"):
    """Where values were read back from the device, as sampled."""

    t: Natural
    kind: Name
    places: Annotated[list[Read], Meta(max_length=wire.MOST_PLACES)]


class State(Struct, array_like=True, frozen=True, tag="state"):
    """Facts of a framework that seldom change."""

    t: Natural
    probe: Name
    facts: Annotated[dict[Name, Any], Meta(max_length=256)]


class Traced(Struct, array_like=True, frozen=True, tag="trace"):
    """The state of a requested trace."""

    t: Natural
    id: Natural
    state: Name
    facts: Annotated[dict[Name, Any], Meta(max_length=32)] = {}


class Pace(Struct, array_like=True, frozen=True, tag="pace"):
    """How long steps took, one after another, up to one that ended at ``end_ns``."""

    t: Natural
    source: Name
    end_ns: Natural
    # How many steps each of the values is of.
    each: Annotated[int, Meta(ge=1, le=2**31)]
    durations: Annotated[list[Natural], Meta(max_length=wire.MOST_PACED)]


class Turned(Struct, array_like=True, frozen=True, tag="knob"):
    """A knob was turned, or went back."""

    t: Natural
    name: Name
    state: Name
    facts: Annotated[dict[Name, Any], Meta(max_length=32)] = {}


class Probe(Struct, array_like=True, frozen=True, tag="probe"):
    """A probe began or ended."""

    t: Natural
    name: Name
    state: Name
    reason: str | None = None


class Bye(Struct, array_like=True, frozen=True, tag="bye"):
    """The last record, and why there are no more."""

    t: Natural
    reason: Name = ""


Record: TypeAlias = (
    Hello
    | Clock
    | Gauges
    | LongGc
    | Stacks
    | Steps
    | Compile
    | Reads
    | State
    | Traced
    | Pace
    | Turned
    | Probe
    | Bye
)
KINDS = frozenset(str(c.__struct_config__.tag) for c in Record.__args__)
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class _Unknown(Struct, array_like=True):
    kind: str


_UNKNOWN = msgspec.json.Decoder(_Unknown)


class Damaged(ValueError):  # noqa: N818  a line, not a defect of ours
    """A line that is no record."""


def decode(line: bytes) -> Record | None:
    """Return the record of a line; ``None`` for a kind that a newer agent knows and we do not."""
    try:
        return _decode(line)
    except (ValueError, RecursionError) as error:
        try:
            kind = _UNKNOWN.decode(line).kind
        except (ValueError, RecursionError):
            raise Damaged(str(error)) from None
        if kind in KINDS:
            raise Damaged(str(error)) from None
        return None


def _decode(line: bytes) -> Record:
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError:
        if _SURROGATE.search(line) is None:
            raise
    # A file's name may not be text: the record is worth more than the name.
    return _DECODER.decode(_SURROGATE.sub(lambda found: found[1] or b"?", line))
