"""The screen of ``monitor trace``: what a trace says, at a glance. Made from the JSON alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from whyidle.monitor.core.contracts.trace import BudgetJson, DeviceJson, TraceJson
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.render.activity import collectives, copies, kernels
from whyidle.monitor.render.budget import (
    NARROWEST,
    bar,
    clock,
    in_order,
    legend,
    owners,
    share,
    words,
)
from whyidle.monitor.render.devices import devices, kind_words, label, total_of
from whyidle.monitor.render.escape import printable
from whyidle.monitor.traces.window import is_mostly_outside, is_too_short

# What a loss must reach to be worth a word: the design calls it medium from here on.
NOTABLE: Final = 0.05
# Where so much computes, no fix gives much back.
HEALTHY: Final = 0.9
# Of the whole time: what lies outside the steps is told from here on.
OUTSIDE: Final = 0.1
_FORMATS = {
    "kineto": "PyTorch (Kineto)",
    "xplane": "JAX or TensorFlow (XPlane)",
    "nsys": "Nsight Systems",
}
# For terminals that know no other letters; one for one, so that columns stay in line.
_ASCII = str.maketrans("█▓▒·–…µ▏", "#=-.-~u|")  # noqa: RUF001  the dash is the point
_NUMBERS = re.compile(r"\d+")


def screen(told: TraceJson, *, name: str, top: int, console: Console | None = None) -> str:
    """Return the whole page as text for this terminal, colours included where it has them."""
    console = console or Console(highlight=False)
    return fitted(console, page(told, name=name, top=top, width=max(console.width, NARROWEST)))


def fitted(console: Console, shown: Group) -> str:
    """Return what a terminal prints of it, in letters that it knows."""
    with console.capture() as captured:
        console.print(shown)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    return text if _knows_blocks(console.encoding) else text.translate(_ASCII)


def _knows_blocks(encoding: str) -> bool:
    try:
        "█▓▒·–…µ".encode(encoding)  # noqa: RUF001
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def page(told: TraceJson, *, name: str, top: int, width: int) -> Group:
    """Return the parts of the page, an empty line between them."""
    budget = told["budget"]
    parts: list[RenderableType] = [head(told, name)]
    if total_of(budget):
        parts.append(bar(budget, width))
        parts.append(Group(*legend(budget, _of_a_step(told), width, len(told["devices"]))))
    parts += [Text(said, "bold")] if (said := verdict(told)) else []
    parts += owners(budget, told.get("where") or [], width)
    parts += devices(told["devices"], width)
    parts += [*kernels(told, top, width), *copies(told, width), *collectives(told, width)]
    if told["warnings"]:
        parts.append(Group(*_warnings(told["warnings"])))
    return Group(parts[0], *(Padding(part, (1, 0, 0, 0)) for part in parts[1:]))


def _of_a_step(told: TraceJson) -> BudgetJson | None:
    """Return the account of the steps; where only the job counts them, the shares of one of its."""
    window, budget = told.get("window"), told["budget"]
    if told.get("step_budget") or window is None or window["step_ns"] is None:
        return told.get("step_budget")
    total = total_of(budget)
    if is_too_short(window) or is_mostly_outside(window, total):
        return None
    each = window["step_ns"] * len(told["devices"])
    slices = {part: each * ns // total for part, ns in budget["slices"].items()}
    return {"total_ns": each, "steps": 1, "slices": slices, "details": {}}


def _warnings(found: Sequence[str]) -> Iterator[Text]:
    """Yield each warning once: of those that differ by their numbers only, the first."""
    alike: dict[str, list[str]] = {}
    for text in found:
        alike.setdefault(_NUMBERS.sub("", text), []).append(text)
    for texts in alike.values():
        more = f" ({len(texts) - 1} more like this)" if len(texts) > 1 else ""
        yield Text(f"! {printable(texts[0])}{more}", "yellow")


def head(told: TraceJson, name: str) -> Text:
    """Say what file this is, what it holds, and what the account covers."""
    kind = _FORMATS.get(told["format"], str(told["format"]))
    facts = [kind, *_ranks(told["devices"]), _count(told["events"], "event")]
    return Text.assemble(
        (printable(name), "bold"),
        f": {printable(', '.join(facts))}\n",
        (printable(_covered(told)), "dim"),
    )


def _ranks(found: Sequence[DeviceJson]) -> list[str]:
    """Name the one device, or count them; with their ranks."""
    if not found:
        return ["no device"]
    if len(found) == 1:
        return [label(found[0], found)]
    ranks = sorted({rank for d in found if (rank := d.get("rank")) is not None})
    said = [f"{len(found)} {kind_words(found)}"]
    if ranks:
        said.append(f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}")
    return said


def _covered(told: TraceJson) -> str:
    steps, budget = told["steps"], told["budget"]
    ways = {"markers": "as the trace marks them", "repetition": "found by repetition"}
    how = steps.get("how") or ways.get(steps["source"], "")
    if steps["source"] == "none" or not steps["count"]:
        found = f"no steps found{f' ({how})' if how else ''}"
        window = told.get("window")
        if window is not None and window["step_ns"] is not None:
            found = f"{found}, one of the job takes {clock(window['step_ns'])}"
    else:
        found = f"{_count(steps['count'], 'step')} of {clock(steps['median_ns'] or 0)} ({how})"
    if not (total := total_of(budget)):
        return found
    several = len(told["devices"])
    of = f" of {several} {kind_words(told['devices'])}" if several > 1 else ""
    return f"{found}; {clock(total)}{of} from first operation to last"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def verdict(told: TraceJson) -> str | None:
    """Return the plain sentence that a tired person reads first; none where it would mislead."""
    if not total_of(told["budget"]):
        what = "This holds no event" if not told["events"] else "This shows no work of any device"
        return f"{what}: there is no time to account for."
    window, whole = told.get("window"), total_of(told["budget"])
    if is_too_short(window):
        return None
    if window is not None and is_mostly_outside(window, whole):
        return _outside(window["outside_ns"] / (window["outside_ns"] + whole), told["devices"])
    budget, where = _judged(told)
    total = total_of(budget)
    computes = budget["slices"][Slice.COMPUTE]
    others = [(s, ns) for s, ns in in_order(budget) if s is not Slice.COMPUTE]
    begin = f"{where}{_subject(told['devices'])} {share(computes, total)} of the time"
    if not others or others[0][1] < NOTABLE * total or computes >= HEALTHY * total:
        return f"{begin}: nothing worth fixing in how it is fed."
    part, ns = others[0]
    most = "Most of the rest" if 2 * ns > total - computes else "The largest part of the rest"
    second = [
        f", then {words(s)}, {share(n, total)}" for s, n in others[1:2] if n >= NOTABLE * total
    ]
    said = f"{most}: {words(part)}, {share(ns, total)} ({_meaning(budget, part)})"
    return f"{begin}. {said}{''.join(second)}."


def _outside(part: float, found: Sequence[DeviceJson]) -> str:
    worked = kind_words(found) if len(found) == 1 else f"{len(found)} {kind_words(found)}"
    return (
        f"For {share(part, 1)} of the window there is no operation of the {worked}:"
        " what came before the first and after the last decides, not the account above."
    )


def _meaning(budget: BudgetJson, part: Slice) -> str:
    """Say what a slice means; of what is unknown, all that is known."""
    details = budget.get("details", {}).get(part) or {}
    if part is Slice.IDLE_UNKNOWN and details:
        return printable(max(details, key=lambda label: details[label]))
    return LOOKS[part].meaning


def _judged(told: TraceJson) -> tuple[BudgetJson, str]:
    """Return the budget of the steps where most work is in them: a start comes only once."""
    whole, steps = told["budget"], told.get("step_budget")
    if steps and steps["steps"] > 1 and 2 * _busy(steps) > _busy(whole):
        outside = total_of(whole) - total_of(steps)
        if outside > OUTSIDE * total_of(whole):
            return steps, f"{clock(outside)} lie outside the steps. Within them the "
    return whole, "The "


def _busy(budget: BudgetJson) -> int:
    return sum(ns for part, ns in budget["slices"].items() if not Slice(part).idle)


def _subject(found: Sequence[DeviceJson]) -> str:
    if len(found) == 1:
        return f"{kind_words(found)} computes"
    return f"{len(found)} {kind_words(found)} compute"
