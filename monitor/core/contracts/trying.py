"""What ``monitor try --json`` answers."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

TryVerdict = Literal["faster", "slower", "no difference", "not certain"]


class RatioJson(Struct, frozen=True, kw_only=True):
    """How many times faster, with its ends; above 1 the change helps."""

    low: float
    middle: float
    high: float


class TryJson(Struct, frozen=True, kw_only=True):
    """One try."""

    schema: int
    pid: int
    run: int
    knob: str
    value: Any
    old: Any
    # ``None``: too little was measured to say.
    ratio: RatioJson | None
    verdict: TryVerdict
    step_s_without: float | None
    step_s_with: float | None
    pairs: int
    most_pairs: int
    block_s: float
    settle_s: float
    seed: int
    steps: int
    phases: int
    seconds: float
    # Why it ended before its plan did.
    stopped: str | None
    # "back" as it was, "kept" on, or "left": the job has set it itself meanwhile.
    state: Literal["back", "kept", "left"]


class KnobJson(Struct, frozen=True, kw_only=True):
    """One knob, as ``--list`` and ``--suggest`` show it."""

    knob: str
    does: str
    takes: str | None
    default: str | None
    needs: str
    risk: str
    undone: str
    numerics: str | None
    rules: list[str]


class SuggestedJson(Struct, frozen=True, kw_only=True):
    """A finding, and what can be tried for it."""

    rule: str
    title: str
    gain: list[float] | None
    knobs: list[KnobJson]
