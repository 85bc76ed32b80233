"""A GPU reported an error, or is lost.

## What it sees
The XID errors that the driver reports during the recording, and lost GPUs.

## Why it costs
The job may hang in its next collective, or compute with damaged numbers.

## How to fix
XID 13 and 31 are errors of the program: use compute-sanitizer. Memory errors (48, 63, 64, 94, 95)
need a GPU reset, a lost GPU (79) a restart of the machine. `dmesg` names the process. If the error
returns, contact the maker.

## When it is wrong
Other programs' errors are reported too. XIDs 43 and 45 follow another error or a killed process.

## Documents
Beyond the five documents. The meanings are those of NVIDIA's XID catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.rules import Kind, Need, Rule, Severity, Verdict, Window, both

PROGRAM = (
    "Most likely a bug of the program: run it under compute-sanitizer, and look at custom kernels."
)
RESET = (
    "Stop what uses the GPU and reset it: nvidia-smi --gpu-reset -i N. If the error returns,"
    " ask the maker."
)
RESTART = "Restart the job from its last checkpoint."
REBOOT = (
    "Restart the machine. If the error returns, check power, cooling and the slot,"
    " then ask the maker."
)
FIRST = "Look in dmesg for the error before it: this one is a consequence."
# NVIDIA's XID catalogue: what it says, and what it wants done first.
MEANINGS: Final[dict[int, tuple[str, str]]] = {
    13: ("a kernel did what is not allowed", PROGRAM),
    31: ("a kernel read or wrote outside of its memory", PROGRAM),
    43: ("the GPU stopped the work of a program", FIRST),
    45: ("work was cleaned up after an error or a kill", FIRST),
    48: ("its memory has an error that cannot be corrected", RESET),
    61: ("its microcontroller stopped", RESET),
    62: ("its microcontroller halted", RESET),
    63: ("a row of its memory was replaced, from the next reset on", RESET),
    64: ("a row of its memory could not be replaced", RESET),
    74: ("an NVLink failed", RESET),
    79: ("it fell off the bus", REBOOT),
    92: ("many errors of its memory were corrected", RESET),
    94: ("an error of its memory was kept to one program", RESTART),
    95: ("an error of its memory may have reached every program", RESET),
    119: ("its system processor does not answer", RESET),
    120: ("its system processor failed", RESET),
    140: ("its memory has an error that cannot be corrected", RESET),
    149: ("an NVLink failed", RESET),
}
UNKNOWN: Final = (
    "the driver reported an error",
    "Look it up in NVIDIA's XID catalogue, and in dmesg.",
)
# Without a code the driver does not reach it; by this one it says why.
GONE: Final = frozenset({None, 79})
# These follow another error.
FOLLOWING: Final = frozenset({43, 45})
_GPU = re.compile(r"GPU (\d+(?::\d+)?)")


def detect(window: Window) -> Verdict:
    """Look for errors that the driver reported."""
    job = window.job
    errors = [*job.events.get("gpu_lost", ()), *job.events.get("xid", ())]
    if not errors:
        return None if job.gpus else window.lacks(Need.GPU)

    def order(error: Mapping[str, Any]) -> tuple[bool, ...]:
        # A lost GPU first, by the words of the driver where it has any, one's own before others'.
        # Then the errors that are no consequence of another.
        code = error.get("code")
        return code not in GONE, not _is_mine(window, error), code is None, code in FOLLOWING

    worst = min(errors, key=order)
    code, number = worst.get("code"), ""
    meaning, then = UNKNOWN
    if code is None:
        meaning, then = "it is lost: the driver no longer reaches it", REBOOT
    elif isinstance(code, int):
        (meaning, then), number = MEANINGS.get(code, UNKNOWN), f" (XID {code})"
    said = dict.fromkeys(str(error.get("text", "")) for error in errors)
    return Found(
        gain=None,
        evidence=(
            *(job.said("the driver said", text, "nvml") for text in list(said)[:3]),
            Evidence.of("errors", job.measure(len(errors), "count", "nvml")),
            Evidence("what to do first", then, "", "NVIDIA's XID catalogue"),
        ),
        severity=Severity.HIGH if _is_mine(window, worst) else Severity.MEDIUM,
        title=f"GPU {_index(worst) or '?'}: {meaning}{number}",
    )


def _index(error: Mapping[str, Any]) -> str | None:
    found = _GPU.search(str(error.get("text", "")))
    return found.group(1) if found else None


def _is_mine(window: Window, error: Mapping[str, Any]) -> bool:
    """Tell whether it is a GPU of the job; where that is not known, it may be."""
    owned, index = {gpu.index for gpu in window.gpus}, _index(error)
    return not owned or index is None or index in owned


rule = Rule(
    title="A GPU reported an error",
    fixes=both("Save a checkpoint if you can, then do what the error calls for."),
    kind=Kind.ERROR,
)
