"""A try in sentences, and the knobs as a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from whyidle.monitor.core.contracts.trying import KnobJson, SuggestedJson, TryJson
from whyidle.monitor.render.escape import printable
from whyidle.monitor.trying.sequential import SMALL

_STATE: Final = {
    "back": "back as it was",
    "kept": "kept",
    "left": "not taken back: the job has set it itself meanwhile",
}


def lines(found: TryJson) -> Iterator[str]:
    """Yield the answer first, then what it rests on."""
    state = _STATE[found.state]
    yield f"{printable(found.knob)}: {_effect(found)}, {state}"
    if found.stopped is not None:
        yield f"  It ended early: {found.stopped}."
    yield (
        f"  {found.pairs} pairs of blocks of {found.block_s:.1f} s in turns,"
        f" {found.steps:,} steps, {found.seconds:.0f} s"
    )
    without, with_it = found.step_s_without, found.step_s_with
    if without is not None and with_it is not None:
        yield f"  A step took {_time(without)} without it and {_time(with_it)} with it."
    if found.phases:
        yield f"  Left out: {found.phases} long steps, such as a checkpoint or a validation."
    if found.verdict == "faster" and found.state == "back":
        asked = printable(with_value(found.knob, found.value))
        yield f"  Let it stay: monitor try {found.pid} {asked} --keep"


def with_value(knob: str, value: object) -> str:
    """Return a knob as it is typed."""
    if isinstance(value, bool):
        return f"{knob}={'on' if value else 'off'}"
    return knob if value is None else f"{knob}={value}"


def _effect(found: TryJson) -> str:
    ratio = found.ratio
    if ratio is None:
        return "too few pairs to say what it gives"
    ends = f"{ratio.middle:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
    if found.verdict == "no difference":
        return f"no difference beyond {SMALL:.0%} ({ratio.low:.3f}x to {ratio.high:.3f}x)"
    if found.verdict == "not certain":
        return f"{ends}, which may be chance"
    return ends


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def knob_lines(knobs: Iterable[KnobJson]) -> Iterator[str]:
    """Yield each knob with what it needs, risks, and how it is undone."""
    for knob in knobs:
        yield f"{knob.knob}{'' if knob.takes is None else '=' + (knob.default or '…')}"
        yield f"  {knob.does}"
        if knob.takes is not None:
            yield f"  takes:   {knob.takes}"
        yield f"  needs:   {knob.needs}"
        yield f"  risk:    {knob.risk}"
        yield f"  undone:  {knob.undone}"
        if knob.numerics is not None:
            yield f"  results: {knob.numerics}; only with --allow-numerics"


def suggestions(pid: str, found: Sequence[SuggestedJson]) -> Iterator[str]:
    """Yield what to type for each finding."""
    if not found:
        yield "No finding points to a knob. See what was found: monitor diagnose " + printable(pid)
        return
    for each in found:
        gain = each.gain
        back = "" if gain is None else f", {gain[0]:.0%} to {gain[1]:.0%} of the time"
        yield f"{printable(each.title)} ({each.rule}{back})"
        for knob in each.knobs:
            value = "" if knob.default or knob.takes is None else "=…"
            more = " --allow-numerics" if knob.numerics else ""
            yield f"  monitor try {printable(pid)} {knob.knob}{value}{more}"
            yield f"    {knob.does}"
