"""Symbols of a library as it lies in a process's memory.

They are read from the loaded image, not from the file: a file may have been replaced since, or lie
in another mount namespace, and a wrong address must never be called. What the image says of itself
is the job's word alone: no size beyond those of real libraries is believed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Read = Callable[[int, int], bytes]

MACHINE_X86_64, MACHINE_AARCH64 = 62, 183
_CLASS_64 = 2
_LOADED, _DYNAMIC = 1, 2  # kinds of segments
_HASH, _STRINGS, _SYMBOLS, _GNU_HASH = 4, 5, 6, 0x6FFFFEF5  # kinds of dynamic entries
_SYMBOL = struct.Struct("<IBBHQQ")
_OBJECT, _FUNCTION = 1, 2
_SEGMENT = struct.Struct("<IIQQQQQQ")
# Real libraries have a dozen segments, 500 bytes of tables, and a few symbols a hash.
_MOST_SEGMENTS = 256
_MOST_DYNAMIC = 64 << 10
_LONGEST_CHAIN = 4096


class NotElf(Exception):  # noqa: N818  an answer, not a defect
    """The memory there holds no 64-bit program of the processor asked for."""


@dataclass(frozen=True, slots=True)
class Image:
    """A loaded library."""

    read: Read
    bias: int
    dynamic: dict[int, int]

    def function(self, name: str) -> int | None:
        """Return the address of an exported function."""
        found = self._found(name)
        if found is None:
            return None
        _, info, _, section, value, _ = found
        return self.bias + value if section and info & 15 == _FUNCTION else None

    def variable(self, name: str) -> int | None:
        """Return the address of an exported variable."""
        found = self._found(name)
        if found is None:
            return None
        _, info, _, section, value, _ = found
        return self.bias + value if section and info & 15 == _OBJECT else None

    def size(self, name: str) -> int:
        """Return how long an exported function is."""
        found = self._found(name)
        return 0 if found is None else int(found[5])

    def _found(self, name: str) -> tuple[int, int, int, int, int, int] | None:
        wanted = name.encode() + b"\0"
        for index in self._candidates(name):
            symbol = _SYMBOL.unpack(self.read(self.dynamic[_SYMBOLS] + index * 24, 24))
            if self._begins(self.dynamic[_STRINGS] + symbol[0], wanted):
                return symbol
        return None

    def _begins(self, address: int, wanted: bytes) -> bool:
        try:
            return self.read(address, len(wanted)) == wanted
        except OSError:
            return False

    def _candidates(self, name: str) -> Iterator[int]:
        if _GNU_HASH in self.dynamic:
            return self._in_gnu_hash(name)
        if _HASH in self.dynamic:
            return self._in_hash(name)
        return iter(())

    def _in_hash(self, name: str) -> Iterator[int]:
        """Walk the chain of the name's bucket in a table of the older kind; 0 ends a chain."""
        table = self.dynamic[_HASH]
        buckets, _ = struct.unpack("<II", self.read(table, 8))
        index = self._word(table, 2 + old_hash(name) % buckets) if buckets else 0
        for _ in range(_LONGEST_CHAIN):
            if not index:
                return
            yield index
            index = self._word(table, 2 + buckets + index)

    def _word(self, table: int, position: int) -> int:
        (value,) = struct.unpack("<I", self.read(table + 4 * position, 4))
        return int(value)

    def _in_gnu_hash(self, name: str) -> Iterator[int]:
        """Walk the chain of the name's bucket; the lowest bit of a hash marks a chain's end."""
        table = self.dynamic[_GNU_HASH]
        buckets, first, bloom, _ = struct.unpack("<4I", self.read(table, 16))
        if not buckets:
            return
        wanted = gnu_hash(name)
        at = table + 16 + 8 * bloom
        index = self._word(at, wanted % buckets)
        for step in range(index, index + _LONGEST_CHAIN) if index >= first else ():
            value = self._word(at, buckets + step - first)
            if (value ^ wanted) >> 1 == 0:
                yield step
            if value & 1:
                return


def gnu_hash(name: str) -> int:
    """Return the hash that the linker's table is sorted by."""
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def old_hash(name: str) -> int:
    """Return the hash of the older kind of table."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value


def image(read: Read, start: int, made_for: int = MACHINE_X86_64) -> Image:
    """Read the image whose header lies at an address."""
    try:
        return _image(read, start, made_for)
    except (OverflowError, struct.error) as error:
        raise NotElf(f"an address that cannot be ({error})") from None


def _image(read: Read, start: int, made_for: int) -> Image:
    header = read(start, 64)
    if header[:4] != b"\x7fELF" or header[4] != _CLASS_64:
        raise NotElf("no 64-bit ELF")
    (machine,) = struct.unpack_from("<H", header, 18)
    if machine != made_for:
        raise NotElf(f"made for machine {machine}")
    (offset,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    if size != _SEGMENT.size or count > _MOST_SEGMENTS:
        raise NotElf(f"{count} segments of {size} bytes")
    segments = list(_SEGMENT.iter_unpack(read(start + offset, size * count)))
    first = next((s[3] - s[2] for s in segments if s[0] == _LOADED and s[2] == 0), 0)
    bias = start - first
    section = next(((s[3], s[6]) for s in segments if s[0] == _DYNAMIC), None)
    return Image(read, bias, {} if section is None else _dynamic(read, bias, start, *section))


def _dynamic(read: Read, bias: int, start: int, address: int, size: int) -> dict[int, int]:
    """Read the table of tables. glibc has turned its offsets into addresses, musl has not."""
    raw = read(bias + address, min(size, _MOST_DYNAMIC) & -16)
    entries = dict(struct.iter_unpack("<QQ", raw))
    tables = {k: entries[k] for k in (_HASH, _STRINGS, _SYMBOLS, _GNU_HASH) if k in entries}
    if not {_STRINGS, _SYMBOLS} <= tables.keys():
        return {}
    return {k: v if v >= start else v + bias for k, v in tables.items()}
