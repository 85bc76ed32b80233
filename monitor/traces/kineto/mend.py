"""Text that is nearly JSON: what profilers, and what they print names of, do to it."""

from __future__ import annotations

import re
from typing import Final

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


def looks_unfinished(text: bytes | bytearray) -> bool:
    """Whether the text holds what a decoder takes for its end: one half of a surrogate pair."""
    return _HALF_PAIR.search(text) is not None


def mend(text: bytes) -> bytes:
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
