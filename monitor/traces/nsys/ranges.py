"""What a range of NVTX means: an operator, a step of the job, or where the program is."""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.names import LONGEST_READ, STEP_MARK, host_cause, users_step
from whyidle.monitor.traces.nsys.strings import EMITTED

MARK: Final = -1
_EMITTED: Final = EMITTED.decode()
_FRAME: Final = re.compile(r"^\S+\.py\(\d+\): ")
_OPERATOR: Final = re.compile(r"^[A-Za-z_][\w.]*::\w")
# Of XLA: a program that is launched, and an operation of it.
_PROGRAM: Final = re.compile(r"^(?:TSL:)?(XlaModule|Thunk):#.*?\b(?:hlo_module|hlo_op)=([^,#]+)")
_LIBRARY: Final = re.compile(r"^(?:nccl|rccl|cublas|cudnn|cusolver|cusparse|cufft|MPI_)\w")


def meaning(text: str) -> tuple[str, int]:
    """Return the name of a range, and its cause; ``MARK`` for a step.

    A range of the user's says where the program is, not what it does there: it owns no time, and
    what is recorded inside of it counts.
    """
    name = text.removesuffix(_EMITTED)
    if name != text:
        return name, MARK if STEP_MARK.match(name) else host_cause("operator", name)
    if _FRAME.match(text[:LONGEST_READ]):
        return text, host_cause("python", text)
    if program := _PROGRAM.match(text[:LONGEST_READ]):
        return f"{program[1]}:{program[2]}", Cause.OP
    if _OPERATOR.match(text):
        return text, host_cause("operator", text)
    cause = host_cause("annotation", text)
    if cause is not Cause.AROUND or _LIBRARY.match(text):
        return text, cause
    step = users_step(text)
    return (text, Cause.HOLE) if step is None else (step, MARK)
