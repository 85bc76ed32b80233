"""Where the user's code asked for each operation: what XLA wrote of it into its modules.

An instruction names its line itself (``source_file``, ``source_line``), or a frame in the module's
table of call stacks (``stack_frame_id``; jax 0.10 writes nothing else). Only modules that ran are
read, and of those only what a budget allows: a large model has hundreds of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import BYTES, VARINT, Damaged, fields, text, varint
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.traces.model import Ids, Site
from whyidle.monitor.traces.stream import Stream
from whyidle.monitor.traces.xplane.planes import Proto

# What is read of all modules together, and of one.
BUDGET: Final = 48 << 20
LARGEST: Final = 16 << 20
_DEEPEST: Final = 64  # frames of a call stack
# More programs at once than this are separated by sorting.
_FEW: Final = 16

_PROGRAM: Final = re.compile(r"\(\d+\)$")


@dataclass(slots=True)
class _Stacks:
    """A module's table of call stacks; numbers in it begin at 1."""

    files: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)  # file, function, line
    frames: list[tuple[int, int]] = field(default_factory=list)  # place, and who called

    def site(self, frame: int) -> Site | None:
        """Return the innermost line of the user's own code, else the innermost line."""
        innermost = None
        for _ in range(_DEEPEST):
            if not 0 < frame <= len(self.frames):
                break
            place, frame = self.frames[frame - 1]
            site = self._site(place)
            if site and is_users(site.file):
                return site
            innermost = innermost or site
        return innermost

    def _site(self, place: int) -> Site | None:
        if not 0 < place <= len(self.places):
            return None
        file, function, line = self.places[place - 1]
        if not 0 < file <= len(self.files):
            return None
        known = 0 < function <= len(self.functions)
        return Site(self.files[file - 1], line, self.functions[function - 1] if known else "")


class Programs:
    """Collects the operations of each program, by numbers of names."""

    def __init__(self) -> None:
        self._ran: dict[int, set[int]] = defaultdict(set)

    def note(self, modules: Ids, ops: Ids) -> None:
        """Take in operations; -1 is none."""
        known = (modules >= 0) & (ops >= 0)
        if not known.all():
            modules, ops = modules[known], ops[known]
        present = np.flatnonzero(np.bincount(modules)).tolist()
        if len(present) == 1:
            self._ran[present[0]].update(np.flatnonzero(np.bincount(ops)).tolist())
        elif len(present) <= _FEW:
            for module in present:
                mine = ops[modules == module]
                self._ran[module].update(np.flatnonzero(np.bincount(mine)).tolist())
        else:
            for pair in np.unique((modules.astype(np.int64) << 32) | ops).tolist():
                self._ran[pair >> 32].add(pair & 0xFFFFFFFF)

    def sources(self, names: list[str]) -> Sources:
        """Return what finds the lines of code behind them."""
        return Sources({names[m]: {names[op] for op in ops} for m, ops in self._ran.items()})


class Sources:
    """Finds the lines behind operations: of each module that ran, those of its operations."""

    def __init__(self, ran: dict[str, set[str]]) -> None:
        self._ran = ran
        self._left = BUDGET
        self.sites: dict[tuple[str, str], Site] = {}
        self.left_out = 0  # modules

    def choose(self, protos: list[Proto]) -> list[Proto]:
        """Return the modules to read, in the order of the file."""
        chosen = []
        for proto in sorted(protos, key=lambda p: p.begin):
            if module_name(proto) not in self._ran:
                continue
            size = proto.end - proto.begin
            if size > min(LARGEST, self._left):
                self.left_out += 1
            else:
                self._left -= size
                chosen.append(proto)
        return chosen

    def read(self, stream: Stream, protos: list[Proto]) -> None:
        """Read modules from a stream that stands at its begin."""
        for proto in protos:
            stream.skip(proto.begin - stream.position)
            data = stream.read(proto.end - proto.begin)
            name = module_name(proto)
            try:
                self._module(name, data)
            except (Damaged, IndexError):
                self.left_out += 1

    def _module(self, name: str, data: bytes) -> None:
        wanted = {op.encode() for op in self._ran[name]}
        found: list[tuple[str, int, int]] = []
        stacks = _Stacks()
        for begin, stop in _messages(data, 0, len(data), 1):
            for number, wire, at, end in fields(data, begin, stop):
                if (number, wire) == (3, BYTES):
                    found.extend(_instructions(data, at, end, wanted))
                elif (number, wire) == (17, BYTES):
                    stacks = _stacks(data, at, end)
        for op, begin, stop in found:
            site = _site(data, begin, stop, stacks)
            if site is not None:
                self.sites.setdefault((name, op), site)


def module_name(proto: Proto) -> str:
    """Return what events call a module: the profile numbers its programs, ``jit_step(8)``."""
    return _PROGRAM.sub("", proto.name)


def _messages(data: bytes, at: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Give the messages of one field."""
    for number, wire, begin, stop in fields(data, at, end):
        if (number, wire) == (wanted, BYTES):
            yield begin, stop


def _instructions(
    data: bytes, at: int, end: int, wanted: set[bytes]
) -> Iterator[tuple[str, int, int]]:
    """Give name and metadata of the instructions of a computation that are wanted."""
    while at < end:
        # Thousands of instructions: field by field only what is wanted.
        if data[at] != 0x12:
            at = next(fields(data, at, end))[3]
            continue
        length, body = varint(data, at + 1, end)
        at = body + length
        if at > end:
            raise Damaged
        if data[body] != 0x0A:
            continue
        size, name = varint(data, body + 1, at)
        if data[name : name + size] in wanted:
            for begin, stop in _messages(data, body, at, 7):
                yield text(data[name : name + size]), begin, stop


def _site(data: bytes, at: int, end: int, stacks: _Stacks) -> Site | None:
    """Read the metadata of an instruction."""
    file, line, frame = "", 0, 0
    for number, wire, value, stop in fields(data, at, end):
        if (number, wire) == (3, BYTES):
            file = text(data[value:stop])
        elif (number, wire) == (4, VARINT):
            line = value
        elif (number, wire) == (15, VARINT):
            frame = value
    return stacks.site(frame) or (Site(file, line) if file else None)


def _stacks(data: bytes, at: int, end: int) -> _Stacks:
    stacks = _Stacks()
    for number, wire, begin, stop in fields(data, at, end):
        if wire != BYTES:
            continue
        if number == 1:
            stacks.files.append(text(data[begin:stop]))
        elif number == 2:
            stacks.functions.append(text(data[begin:stop]))
        elif number in (3, 4):
            said = {n: v for n, w, v, _ in fields(data, begin, stop) if w == VARINT}
            if number == 3:
                stacks.places.append((said.get(1, 0), said.get(2, 0), said.get(3, 0)))
            else:
                stacks.frames.append((said.get(1, 0), said.get(2, 0)))
    return stacks
