"""The window of a trace that we took ourselves, and what its account cannot tell because of it.

The account of a trace begins with the first operation of a device and ends with its last. Of a
trace that somebody else wrote there is nothing else to know; of ours it is known how long was
recorded, and often how long a step of the job takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

NOT_RECORDED: Final = "nothing recorded: Python, compiling, or waiting"
# Of what was asked for; a shorter window is told where nobody knows how long a step takes.
SHORT: Final = 0.5
# A trace may begin and end between two steps, and not every step takes as long as the middle one.
LEAST_OF_A_STEP: Final = 0.75

Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Window:
    """How long was recorded, how long was asked for, and how long the job's steps take."""

    ns: int
    asked_ns: int | None = None
    # As counted in the job, not as found in the trace.
    step_ns: int | None = None

    @classmethod
    def of(cls, taken: Told | None) -> Window | None:
        """Return that of a trace, by how it was taken."""
        found = (taken or {}).get("window")
        return cls(**found) if found else None

    def facts(self) -> dict[str, int | None]:
        """Return it as ``of`` understands it."""
        return asdict(self)

    def told(self, spans: Sequence[int]) -> dict[str, int | None]:
        """Return it as programs are told; ``spans``: of each device, from first to last operation.

        ``outside_ns`` adds up, over the devices, what lies before the first and after the last.
        """
        outside = sum(max(0, self.ns - span) for span in spans)
        return {**self.facts(), "outside_ns": outside}


def is_too_short(told: Told | None) -> bool:
    """Tell whether not even one step of the job fits into it."""
    if told is None or told["step_ns"] is None:
        return False
    return bool(told["ns"] < LEAST_OF_A_STEP * told["step_ns"])


def is_mostly_outside(told: Told | None, total_ns: int) -> bool:
    """Tell whether the account is of less than half of it; ``total_ns``: all that the account has.

    Without any operation there is no account that could mislead.
    """
    return told is not None and 0 < total_ns < told["outside_ns"]


def too_short(told: Told) -> str:
    """Say by how much."""
    return f"{_clock(told['ns'])}, less than one of the job's steps ({_clock(told['step_ns'])})"


def warnings(told: Told, total_ns: int) -> Iterator[str]:
    """Yield what a reader must be told of the window."""
    asked = told["asked_ns"]
    of = "" if asked is None or asked <= told["ns"] else f" of the {_seconds(asked)} asked for"
    covers = f"The trace covers {_seconds(told['ns'])}{of}"
    if is_too_short(told):
        step = _clock(told["step_ns"])
        yield f"{covers}, less than one of the job's steps ({step}): its shares say little."
    elif told["step_ns"] is None and asked is not None and told["ns"] < SHORT * asked:
        yield f"{covers}."
    if is_mostly_outside(told, total_ns):
        outside = told["outside_ns"] / (told["outside_ns"] + total_ns)
        yield (
            f"In {outside:.0%} of the {_seconds(told['ns'])} that it covers, before the first"
            " operation and after the last, nothing was recorded: the job was in Python,"
            " compiled, or waited."
        )


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.2g} s"


def _clock(ns: int) -> str:
    return f"{ns / 1e9:.3g} s" if ns >= 1_000_000_000 else f"{ns / 1e6:.3g} ms"
