"""Text that is nearly JSON, made readable: what profilers, and the names they print, do to it.

PyTorch writes a quote within a name as it is, which ends the text for any reader. Newer versions
write each key on a line of its own, older ones a few on a line, the oldest a whole event. What
stands between the quotes is left alone wherever it can be read.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

_CONTROLS: Final = bytes.maketrans(bytes(range(32)), b" " * 32)
# Escapes that are ones (kept), half of a surrogate pair, a backslash of a Windows path.
_ESCAPE: Final = re.compile(
    rb'((?:\\["\\/bfnrt]|\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}'
    rb"|\\u(?![dD][89a-fA-F])[\da-fA-F]{4})++)|(\\u[dD][89a-fA-F][\da-fA-F]{2})|\\"
)
_NO_NUMBER: Final = re.compile(
    rb"([:,\[]\s*)(?:[-+]?(?:nan|inf|infinity)|undefined|none)(?=\s*[,}\]])", re.IGNORECASE
)
_LAST_COMMA: Final = re.compile(rb",(?=\s*[\]}])")
# Not at the very end of the text, where the other half may be yet to come.
_HALF_PAIR: Final = re.compile(
    rb"\\u[dD][89abAB][\da-fA-F]{2}(?!\\u[dD][c-fC-F])(?=.{6})"
    rb"|(?<!\\u[dD][89abAB][\da-fA-F]{2})\\u[dD][c-fC-F]",
    re.DOTALL,
)
# A line of one key whose text has a quote; older versions go on with these keys.
_LINE: Final = re.compile(
    rb'^([ \t]*"[^"\\\n]{1,60}": ")([^"\n]*"[^\n]*?)(", "pid": [^\n]*|",?[ \t\r]*)$', re.MULTILINE
)
# Elsewhere a name ends where another key follows, or the event ends. It is seldom longer, and holds
# no key of an event: else two events that are damaged between would be taken for one.
_NAME: Final = re.compile(
    rb'("name":\s*")((?:(?!"(?:ph|cat|name|pid|tid|ts|dur|args)"\s*:).){0,500}?)'
    rb'("\s*(?=,\s*"[\w ]{1,40}"\s*:|(?:\}\s*)++(?:,\s*\{\s*"\w|\]|\Z)))',
    re.DOTALL,
)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


def looks_unfinished(text: bytes | bytearray) -> bool:
    """Whether the text holds what a decoder takes for its end: one half of a surrogate pair."""
    return _HALF_PAIR.search(text) is not None


def repair(text: bytes) -> bytes:
    """Return the text with what no JSON may hold replaced; the same text where there is none."""
    text = text.translate(_CONTROLS)
    text = _ESCAPE.sub(_escape, text)
    text = _NO_NUMBER.sub(rb"\1null", text)
    text = _LAST_COMMA.sub(b"", text)
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()
    return text


def _escape(match: re.Match[bytes]) -> bytes:
    return match[1] or (rb"\ufffd" if match[2] else rb"\\")


def escape_quotes(text: bytes) -> tuple[bytes, int]:
    """Return the text with the quotes inside of names escaped, and how many names had some."""
    escaped = 0

    def escape(match: re.Match[bytes]) -> bytes:
        nonlocal escaped
        begin, name, end = match.groups()
        if b'"' not in name or _is_text(name) or _are_members(match[0]):
            return match[0]
        escaped += 1
        return begin + name.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + end

    return _NAME.sub(escape, _LINE.sub(escape, text)), escaped


def _is_text(text: bytes) -> bool:
    return _can_read(_TEXT, b'"%b"' % text.translate(_CONTROLS))


def _are_members(text: bytes) -> bool:
    return _can_read(_MEMBERS, b"{%b}" % text.translate(_CONTROLS).rstrip(b" ,"))


def _can_read(decoder: msgspec.json.Decoder[Any], text: bytes) -> bool:
    try:
        decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
