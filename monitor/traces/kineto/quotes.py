"""Names as PyTorch writes them: a quote within stands as it is, and ends the text for any reader.

Newer versions write each key on a line of its own, older ones a few on a line, the oldest all of an
event. What stands between the quotes is left as it is wherever it can be read.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

_CONTROLS: Final = bytes.maketrans(bytes(range(32)), b" " * 32)
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
