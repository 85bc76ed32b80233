"""What a range of NVTX means: an operator, a step of the job, or where the program is."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.model import Marks
from whyidle.monitor.traces.names import LONGEST_READ, STEP_MARK, host_cause, users_step
from whyidle.monitor.traces.nsys.strings import EMITTED

MARK: Final = -1
_EMITTED: Final = EMITTED.decode()
_NUMBER: Final = re.compile(r"[#\s]*\d+$")
_FRAME: Final = re.compile(r"^\S+\.py\(\d+\): ")
_OPERATOR: Final = re.compile(r"^[A-Za-z_][\w.]*::\w")
# Of XLA: a program that is launched, and an operation of it.
_PROGRAM: Final = re.compile(r"^(?:TSL:)?(XlaModule|Thunk):#.*?\b(?:hlo_module|hlo_op)=([^,#]+)")
_LIBRARY: Final = re.compile(r"^(?:nccl|rccl|cublas|cudnn|cusolver|cusparse|cufft|MPI_)\w")
# A pause between two steps belongs to the first of them unless it is so much longer than usual.
_PAUSE: Final = 2


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


def joined_up(marks: Marks, names: list[str]) -> Marks:
    """Let each step last until the next one begins: what lies between, as a loader, is its own.

    The profiler of PyTorch marks its steps so itself.
    """
    end = marks.end.copy()
    joins = np.array([*(not STEP_MARK.match(name) for name in names), False], np.bool_)[marks.name]
    labels: dict[str, int] = {}
    label = [labels.setdefault(_NUMBER.sub("", name), len(labels)) for name in names]
    threads = int(marks.thread.max(initial=0)) + 1
    series = np.array([*label, 0], np.int64)[marks.name] * threads + marks.thread
    for one in present(series[joins]):
        rows = np.flatnonzero(series == one)
        pause = marks.start[rows[1:]] - marks.end[rows[:-1]]
        if len(pause) and pause.min() >= 0:
            usual = pause <= _PAUSE * np.median(pause)
            end[rows[:-1][usual]] = marks.start[rows[1:][usual]]
    return Marks(marks.start, end, marks.name, marks.thread)
