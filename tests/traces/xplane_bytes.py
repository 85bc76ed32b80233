"""XPlane files by hand, and read again field by field, to hold the reader against."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whyidle.monitor.traces import xplane
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.opening import Source

EPOCH = 1_771_595_650_000_000_000
Stat = int | float | str | bytes | tuple[str, str]


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field_: int, value: int) -> bytes:
    return varint(field_ << 3) + varint(value)


def block(field_: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(field_ << 3 | 2) + varint(len(data)) + data


@dataclass
class Plane:
    """A plane under construction; events and stats are named, the numbers come by themselves."""

    name: str
    lines: list[bytes] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Stat] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    protos: list[tuple[str, bytes]] = field(default_factory=list)

    def stat(self, name: str, value: Stat) -> bytes:
        """Encode a stat: a pair ("ref", text) refers to the text."""
        key = number(1, self.stats.setdefault(name, len(self.stats) + 1))
        match value:
            case tuple():
                text = value[1]
                return key + number(7, self.stats.setdefault(text, len(self.stats) + 1))
            case str():
                return key + block(5, value)
            case bytes():
                return key + block(6, value)
            case float():
                return key + b"\x11" + struct.pack("<d", value)
        return key + number(3 if value >= 0 else 4, value)

    def event(self, name: str, start: int, duration: int = 0, **stats: Stat) -> bytes:
        key = self.events.setdefault(name, len(self.events) + 1)
        body = number(1, key) + number(2, start) + (number(3, duration) if duration else b"")
        for stat, value in stats.items():
            body += block(4, self.stat(stat.replace("__", " "), value))
        return block(4, body)

    def line(
        self, name: str, *events: bytes, key: int = 0, at: int = EPOCH, shown: str = ""
    ) -> None:
        head = (number(1, key) if key else b"") + block(2, name) + number(3, at)
        tail = number(9, 5) + number(10, key) + (block(11, shown) if shown else b"")
        self.lines.append(head + b"".join(events) + tail)

    def encode(self) -> bytes:
        facts = b"".join(block(6, self.stat(n, v)) for n, v in self.facts.items())
        parts = [number(1, 1), block(2, self.name), *(block(3, line) for line in self.lines)]
        for i, (name, proto) in enumerate(self.protos):
            stat = block(5, self.stat("Hlo Proto", proto))
            parts.append(_entry(4, 1000 + i, block(2, name) + stat))
        for name, key in self.events.items():
            shown = block(4, self.shown[name]) if name in self.shown else b""
            parts.append(_entry(4, key, block(2, name) + shown))
        parts += [_entry(5, key, block(2, name)) for name, key in self.stats.items()]
        return b"".join(parts) + facts


def _entry(table: int, key: int, value: bytes) -> bytes:
    return block(table, number(1, key) + block(2, number(1, key) + value))


def space(*planes: Plane, warnings: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> bytes:
    data = b"".join(block(1, plane.encode()) for plane in planes)
    return (
        data
        + b"".join(block(3, warning) for warning in warnings)
        + b"".join(block(4, host) for host in hosts)
    )


def load(path: Path, data: bytes) -> Trace:
    file = path / "made.xplane.pb"
    file.write_bytes(data)
    return xplane.read(Source(file, "xplane", compressed=False, size=len(data)))


# Reading, one field after the other.
def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value % (1 << 64), at


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def reread(data: bytes) -> dict[str, list[tuple[str, str, int, int, dict[str, Any]]]]:
    """Return plane -> events: line, name, start and end in ps since the epoch, stats."""
    found: dict[str, list[tuple[str, str, int, int, dict[str, Any]]]] = {}
    for number_, plane in fields(data):
        if number_ == 1:
            parts = list(fields(plane))
            name = next((v.decode() for n, v in parts if n == 2), "")
            found.setdefault(name, []).extend(_events(parts))
    return found


def _table(parts: list[tuple[int, Any]], which: int) -> dict[int, str]:
    entries = [dict(fields(v)) for n, v in parts if n == which]
    return {
        signed(e.get(1, 0)): dict(fields(e.get(2, b""))).get(2, b"").decode("utf-8", "replace")
        for e in entries
    }


def _events(parts: list[tuple[int, Any]]) -> Iterator[tuple[str, str, int, int, dict[str, Any]]]:
    names, stats = _table(parts, 4), _table(parts, 5)
    for line in (list(fields(v)) for n, v in parts if n == 3):
        head = {n: v for n, v in line if n != 4}
        label = head.get(11, b"") or head.get(2, b"")
        for event in (list(fields(v)) for n, v in line if n == 4):
            core = {n: v for n, v in event if n != 4}
            # One of the two may be there: the last one counts, 5 says how often and not when.
            if [n for n, _ in event if n in (2, 5)][-1:] == [5]:
                continue
            start = head.get(3, 0) * 1000 + signed(core.get(2, 0))
            values = [dict(fields(v)) for n, v in event if n == 4]
            said = {
                stats.get(v.get(1, 0), ""): stats.get(v[7]) if 7 in v else _value(v) for v in values
            }
            name = names.get(signed(core.get(1, 0)), "")
            yield label.decode(), name, start, start + signed(core.get(3, 0)), said


def _value(stat: dict[int, Any]) -> Any:
    for kind in (2, 3, 4, 5, 6):
        if kind in stat:
            value = stat[kind]
            return value.decode() if kind == 5 else signed(value) if kind in (3, 4) else value
    return None
