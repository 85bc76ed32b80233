"""The folders of this machine taken out of what is kept: a recording names nobody."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

from record_pairs import FOLDER, ROOT

# The longer first: the checkout may be imported through its links.
PREFIXES = (f"{ROOT}/.typing/whyidle/", f"{ROOT}/")
HOME = f"{Path.home()}/"
# Everybody's, and nobody's.
NOBODYS = "/root/"
_UUID = re.compile(rb"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_UUID = b"GPU-00000000-0000-4000-8000-000000000000"
_HOST = re.compile(rb'("host_name"\s*:\s*)"[^"]*"')
# A shorter name may stand for something else.
LEAST = 5


def without(text: bytes) -> bytes:
    """Return a text in which the project lies in a folder that means no machine."""
    for prefix in PREFIXES:
        text = text.replace(prefix.encode(), FOLDER.encode())
    if HOME != NOBODYS:
        text = text.replace(HOME.encode(), b"/home/user/")
    return _UUID.sub(_NO_UUID, text)


def blanked(trace: bytes) -> bytes:
    """Return a trace without this machine's names, each place in it as long as it was.

    In a binary file what follows must stay where it is; more slashes than one mean one.
    """
    for prefix in PREFIXES:
        trace = trace.replace(prefix.encode(), _as_long(FOLDER, len(prefix)))
    if HOME != NOBODYS:
        trace = trace.replace(HOME.encode(), _as_long("/user/", len(HOME)))
    trace = _UUID.sub(_NO_UUID, trace)
    name = platform.node()
    if len(name) >= LEAST:
        trace = trace.replace(name.encode(), b"x" * len(name.encode()))
    return _HOST.sub(rb'\1"host"', trace)


def _as_long(folder: str, length: int) -> bytes:
    return (folder.rstrip("/")[: length - 1].ljust(length, "/")).encode()


def document(told: object) -> bytes:
    """Return a document as it is kept."""
    return without(json.dumps(told).encode())
