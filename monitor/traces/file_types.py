"""What a file is, by its first bytes: a trace that we read, or a sentence about it."""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.traces.model import Format

_BOM: Final = b"\xef\xbb\xbf"
_TRACE: Final = "monitor trace FILE.json.gz"
_UNPACK: Final = f"Unpack it, then: {_TRACE}"
_AGAIN: Final = f"Trace again with torch.profiler or jax.profiler, then: {_TRACE}"
_STORE_ID: Final = b"whid"  # the application id of our own store
_STORE_ID_AT: Final = 68

# What a file begins with, what it is then, and what to do about it.
_MAGIC: Final = (
    (b"PK\x03\x04", "a zip archive (torch.save writes one, too)", _UNPACK),
    (b"PK\x05\x06", "an empty zip archive", _AGAIN),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", f"Run `unzstd` on it, then: {_TRACE}"),
    (b"\xfd7zXZ\x00", "compressed with xz", f"Run `unxz` on it, then: {_TRACE}"),
    (b"BZh", "compressed with bzip2", f"Run `bunzip2` on it, then: {_TRACE}"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", f"Run `unlz4` on it, then: {_TRACE}"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (b"\x1f\x8b", "compressed twice", f"Run `gunzip` on it once, then: {_TRACE}"),
    (b"\x7fELF", "a program or a library (ELF)", _AGAIN),
    (b"\x93NUMPY", "a NumPy array", _AGAIN),
    (b"\x89PNG", "a picture", _AGAIN),
    (b"\x89HDF", "an HDF5 file", _AGAIN),
    (b"%PDF", "a PDF document", _AGAIN),
)
FILE: Final = "{file}"  # stands for the name of the file
_EXPORT: Final = (
    "Export it where Nsight Systems is installed, then read that: nsys export --type sqlite"
    f" -o trace.sqlite {FILE} && monitor trace trace.sqlite"
)
# Not documented by their maker: known by name only.
_SUFFIXES: Final = {
    ".nsys-rep": ("a report of Nsight Systems, which only its own programs read", _EXPORT),
    ".qdrep": ("a report of Nsight Systems, which only its own programs read", _EXPORT),
    ".qdstrm": (
        "a recording of Nsight Systems that is no report yet",
        "Make a report of it with QdstrmImporter, then: nsys export --type sqlite REPORT",
    ),
    ".ncu-rep": (
        "a report of Nsight Compute, which is about single kernels",
        "Record the job with Nsight Systems, torch.profiler or jax.profiler.",
    ),
}
_SQLITE: Final = b"SQLite format 3\0"
# A packet of Perfetto carries its time, its sequence, its writer, or a snapshot of the clocks.
_PACKET: Final[dict[int, type]] = {3: int, 6: bytes, 8: int, 10: int, 58: int, 79: int}


def format_of(head: bytes, *, whole: bool) -> Format | None:
    """Return which of our readers may try; ``whole``: the file has no more bytes than these."""
    # First, since the length of a plane may look like a bracket after an empty line.
    if _xplane(head):
        return "xplane"
    if head.startswith(_SQLITE) and not _ours(head):
        return "nsys"
    text = _text(head)
    if text[:1] in (b"{", b"["):
        return "kineto" if _may_hold_events(text, whole=whole) else None
    return None


def describe(head: bytes, suffix: str) -> tuple[str, str]:
    """Say what a file is that we do not read, and what to do."""
    if suffix.lower() in _SUFFIXES:
        return _SUFFIXES[suffix.lower()]
    for begin, what, step in _MAGIC:
        if head.startswith(begin):
            return what, step
    if _ours(head):
        return "the store of our own recordings", "See what is in it: monitor runs"
    if head[257:262] == b"ustar":
        return "a tar archive", _UNPACK
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "a pickle (torch.cuda.memory._dump_snapshot writes one: memory, not time)", _AGAIN
    return _readable(head) or _protobuf(head)


def _text(head: bytes) -> bytes:
    return head.removeprefix(_BOM).lstrip()


def _may_hold_events(text: bytes, *, whole: bool) -> bool:
    if text[:1] == b"[":
        inside = text[1:].lstrip()
        return inside[:1] == b"{" and (b'"ph"' in inside or not whole)
    return b'"traceEvents"' in text or not whole


def _ours(head: bytes) -> bool:
    return head[_STORE_ID_AT : _STORE_ID_AT + len(_STORE_ID)] == _STORE_ID and head.startswith(
        _SQLITE
    )


def _readable(head: bytes) -> tuple[str, str] | None:
    text = _text(head)
    if text[:1] == b"{":
        return "a JSON file without traceEvents", _AGAIN
    if text[:1] == b"[":
        return "a JSON list that is no list of trace events", _AGAIN
    if re.match(rb"<!doctype html|<html", text, re.IGNORECASE):
        return "a web page (HTML)", "Download the file itself, not the page that shows it."
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "text in UTF-16", f"Run `iconv -f utf-16 -t utf-8` on it, then: {_TRACE}"
    if head.strip() and not re.search(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]", head):
        return ("an XML file" if text[:1] == b"<" else "plain text, such as a log"), _AGAIN
    return None


def _protobuf(head: bytes) -> tuple[str, str]:
    if not head.strip(b"\0"):
        return "nothing but zero bytes (a copy that did not finish?)", "Copy it again."
    first = _first_message(head)
    if any(isinstance(value, _PACKET.get(field, ())) for field, value in first):
        return "a Perfetto trace (protobuf)", _AGAIN
    if first:
        return "a protobuf file of another kind", "The one to read ends in .xplane.pb."
    return "no kind of file that is known here", _AGAIN


def _xplane(head: bytes) -> bool:
    """An XSpace begins with a plane: perhaps an id, then a name that a person can read."""
    fields = _first_message(head)
    if fields and fields[0][0] == 1 and isinstance(fields[0][1], int):
        fields = fields[1:]
    if not fields or fields[0][0] != 2 or not isinstance(fields[0][1], bytes):
        return False
    try:
        return fields[0][1].decode().isprintable()
    except UnicodeDecodeError:
        return False


def _first_message(head: bytes) -> list[tuple[int, int | bytes]]:
    """Return what field 1 of a protobuf message holds, as far as it is a message and is here."""
    if head[:1] != b"\x0a":
        return []
    size, at = _varint(head, 1)
    end = min(at + size, len(head))
    fields: list[tuple[int, int | bytes]] = []
    while size > 0 and at < end:
        tag, at = _varint(head, at)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(head, at)
            fields.append((field, value))
        elif wire == 2:
            length, at = _varint(head, at)
            fields.append((field, head[at : at + length]))
            at += length
        else:
            at += {1: 8, 5: 4}.get(wire, len(head))
        if not field or wire in (3, 4, 6, 7):
            return []
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(at, min(at + 10, len(data))):  # noqa: B020, PLR1704
        value |= (data[at] & 127) << shift
        shift += 7
        if data[at] < 128:
            break
    return value, at + 1
