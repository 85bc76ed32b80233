"""The answer of ``monitor fix --json``."""

from __future__ import annotations

from msgspec import Struct


class PatchJson(Struct, frozen=True, kw_only=True):
    """A change of one file that mends a finding."""

    rule: str
    codemod: str
    title: str
    file: str
    diff: str
    # What is different afterwards, in sentences.
    notes: list[str]
    # What the finding predicts.
    speedup: list[float] | None
    expected: float | None


class RefusedJson(Struct, frozen=True, kw_only=True):
    """A finding without a patch: each reason, and the advice instead."""

    rule: str
    why: list[str]
    advice: dict[str, str]
    # What to do instead, where an option of the user's sets it: "start with --workers 8".
    instead: str | None


class VerifiedJson(Struct, frozen=True, kw_only=True):
    """The original and the changed program, run in turns."""

    command: list[str]
    turns: int
    step_ms: list[float | None]
    predicted: list[float] | None
    # How many times faster: at least, on average, at most.
    measured: list[float | None]
    verdict: str
    # "equal", "different" or "unknown".
    results: str
    compared: int
    largest_difference: float | None
    tolerance: float
    why: list[str]


class FixJson(Struct, frozen=True, kw_only=True):
    """All of it."""

    target: str
    patches: list[PatchJson]
    refused: list[RefusedJson]
    written: list[str] = []
    verified: VerifiedJson | None = None
