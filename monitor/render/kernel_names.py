"""Names of kernels, as short as possible while still saying what runs."""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.render.escape import printable

# Nobody reads further: some template names are a megabyte long.
LONGEST: Final = 2000
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::")
_LAMBDA = re.compile(r"\{lambda[^{}]*\}(#\d+)?|'lambda\d*'(#\d+)?|operator\(\)")
_CALLED = re.compile(r"\([^()]*\)")
_NAMESPACE = re.compile(r"\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_~])")
_LEFT_OVER = re.compile(r"::(?=\W|$)|(?<=\s)const(?=::|[>,\s]|$)")
# How wide a loop is unrolled, and over how many pointers.
_SHAPE = re.compile(r", [Aa]rray<char\*, \d+(?:ul)?>|(?<=<)(?:\d+u?, )+(?=[A-Za-z])")
_EMPTY = re.compile(r"\s+(?=[>,\]])|(?<=<)\s+|<>")
_LENGTH = re.compile(r"\d{1,4}")


def short_name(name: str) -> str:
    """Return a C++ name without return type, namespaces, arguments and lambdas."""
    whole = printable(name[:LONGEST])
    text = _LAMBDA.sub("", _ANONYMOUS.sub("", _unmangled(whole)))
    while (fewer := _CALLED.sub("", text)) != text:
        text = fewer
    # A name that was cut may have an unclosed bracket.
    text = text.partition("(")[0].removeprefix("void ")
    text = _EMPTY.sub("", _LEFT_OVER.sub("", _NAMESPACE.sub("", text)))
    return _SHAPE.sub("", text).strip().removesuffix(".kd") or whole


def _unmangled(name: str) -> str:
    """Return the last word of a mangled name's path: ``_ZN2ck6device6kernelI...`` is kernel."""
    if not name.startswith("_Z"):
        return name
    at, word = 3 if name.startswith("_ZN") else 2, ""
    while (length := _LENGTH.match(name, at)) and (size := int(length[0])) > 0:
        at = length.end() + size
        word = name[length.end() : at]
    return word or name
