"""A GPU reported an error, or is lost.

## What it sees
The XID errors that the driver reports while the job is watched, and a GPU that the driver no longer
reaches. Beside an XID stands what it means and what to do first.

## Why it costs
Some errors end the process that used the GPU, some leave a GPU that does not answer until it is
reset, and some only announce that its memory wears out. A job that goes on after one of them may
hang in its next collective, or compute with damaged numbers.

## How to fix
Save a checkpoint if the job still answers. Then do what the error asks for: an error of the program
(XID 13, 31) is found with compute-sanitizer; an error of the memory (48, 63, 64, 94, 95) wants a
reset of the GPU at the next opportunity; a lost GPU (79) wants a restart of the machine. The log of
the kernel (`dmesg`) names the process. What comes back after that is for the maker to look at.

## When it is wrong
An error that another program caused on the same machine is reported too. XIDs 43 and 45 follow
another error, or a process that was killed: look at what came before.

## Documents
None of the five mentions it: beyond the documents. The meanings are those of NVIDIA's XID
catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from whyidle.monitor.core.finding import Evidence, Fix, Found, Need, Severity, Verdict
from whyidle.monitor.rules import Kind, Rule
from whyidle.monitor.signals.window import Window

XID, LOST = "xid", "gpu_lost"
PROGRAM = (
    "It is most likely the program's: run it under compute-sanitizer, and look at custom kernels."
)
RESET = (
    "Stop what uses the GPU and reset it: nvidia-smi --gpu-reset -i N. If it comes back: the maker."
)
RESTART = "Restart the job from its last checkpoint."
REBOOT = "Restart the machine. If it comes back: check power, cooling, the slot, then the maker."
FIRST = "Look in dmesg for the error before it: this one follows."
# NVIDIA's XID catalogue: what it says, and what it wants done first.
MEANINGS: Final[dict[int, tuple[str, str]]] = {
    13: ("a kernel did what is not allowed", PROGRAM),
    31: ("a kernel read or wrote outside of its memory", PROGRAM),
    43: ("the GPU stopped the work of a program", FIRST),
    45: ("work was cleared away after an error or a kill", FIRST),
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
    errors = [*window.job.events.get(LOST, ()), *window.job.events.get(XID, ())]
    if not errors:
        return None if window.job.gpus else window.lacks(Need.GPU)
    worst = min(errors, key=lambda error: _order(window, error))
    code = worst.get("code")
    meaning, then = _meaning(code)
    number = f" (XID {code})" if isinstance(code, int) else ""
    return Found(
        gain=None,
        evidence=tuple(_evidence(window, errors, then)),
        severity=Severity.HIGH if _is_mine(window, worst) else Severity.MEDIUM,
        title=f"GPU {_index(worst) or '?'}: {meaning}{number}",
    )


def _order(window: Window, error: Mapping[str, Any]) -> tuple[bool, ...]:
    """A lost GPU first, by the words of the driver where it has any, one's own before others'.

    Then the errors that are no consequence of another.
    """
    code = error.get("code")
    return code not in GONE, not _is_mine(window, error), code is None, code in FOLLOWING


def _meaning(code: object) -> tuple[str, str]:
    if code is None:
        return "it is lost, the driver no longer reaches it", REBOOT
    return MEANINGS.get(code, UNKNOWN) if isinstance(code, int) else UNKNOWN


def _index(error: Mapping[str, Any]) -> str | None:
    found = _GPU.search(str(error.get("text", "")))
    return found.group(1) if found else None


def _is_mine(window: Window, error: Mapping[str, Any]) -> bool:
    """Tell whether it is a GPU of the job; where that is not known, it may be."""
    owned = {gpu.index for gpu in window.job.gpus if gpu.owned}
    index = _index(error)
    return not owned or index is None or index in owned


def _evidence(window: Window, errors: list[Mapping[str, Any]], then: str) -> list[Evidence]:
    job = window.job
    said = list(dict.fromkeys(str(error.get("text", "")) for error in errors))
    found = [Evidence("the driver said", s, "", "nvml", job.age_s, job.seconds) for s in said[:3]]
    found.append(Evidence.of("errors", job.measure(len(errors), "count", "nvml")))
    found.append(Evidence("what to do first", then, "", "NVIDIA's XID catalogue"))
    return found


_SAVE: Final = Fix("Save a checkpoint if the job still answers, then do what the error asks for.")

rule = Rule(
    title="A GPU reported an error",
    documents=("beyond the documents",),
    fixes={"pytorch": _SAVE, "jax": _SAVE},
    detect=detect,
    kind=Kind.ERROR,
)
