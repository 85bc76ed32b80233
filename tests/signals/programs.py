"""Programs whose lines tell in comments how often the main thread was found there.

``# step 30 of b c``: thirty samples in a framework's call, and the line was called by that with the
mark ``# b``, which the one with ``# c`` called. ``# host 30``: in a library of the host.
"""

from __future__ import annotations

import re
from pathlib import Path

from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples

TORCH = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"
NUMPY = "/venv/lib/python3.11/site-packages/numpy/_core/fromnumeric.py"
_MARK = re.compile(
    r"# (?P<kind>host|step) (?P<count>\d+)(?: of (?P<callers>[\w ]+))?|# (?P<at>\w)$"
)
_FUNCTION = re.compile(r"\s*def (\w+)")


def watched(source: str, folder: Path) -> tuple[StackSamples, list[Chain]]:
    """Return the samples that a program's marks tell, and the chains of the host's work."""
    file = folder / "train.py"
    file.write_text(source)
    callers: dict[str, CodeLine] = {}
    found, hosts, function = StackSamples(), [], "<module>"
    frames: list[tuple[re.Match[str], CodeLine]] = []
    for number, text in enumerate(source.splitlines(), 1):
        if head := _FUNCTION.match(text):
            function = head[1]
        elif text and not text.startswith(" "):
            function = "<module>"
        for mark in _MARK.finditer(text):
            line = CodeLine(str(file), number, function)
            if mark["at"]:
                callers[mark["at"]] = line
            else:
                frames.append((mark, line))
    for mark, line in frames:
        outer = (callers[each] for each in (mark["callers"] or "").split())
        leaf = CodeLine(NUMPY if mark["kind"] == "host" else TORCH, 9, "sort")
        chain = Chain((line, *outer), leaf, leaf)
        found.samples += int(mark["count"])
        found.count(chain, int(mark["count"]), int(mark["count"]))
        hosts += [chain] if mark["kind"] == "host" else []
    return found, hosts
