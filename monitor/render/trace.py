"""The screen of ``monitor trace``: what a trace shows, at a glance. Made from the JSON alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from whyidle.monitor.core.contracts.trace import BudgetJson, DeviceJson, TraceJson, cut_off
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
from whyidle.monitor.render.ranks import ranks
from whyidle.monitor.traces.window import is_mostly_outside, is_too_short, judged

# A loss is worth mentioning from here on, where findings call it medium.
NOTABLE: Final = 0.05
NO_WORK: Final = "This trace shows no device work"
# If this much computes, no fix gains much.
HEALTHY: Final = 0.9
_FORMATS = {
    "kineto": "PyTorch (Kineto)",
    "xplane": "JAX or TensorFlow (XPlane)",
    "nsys": "Nsight Systems",
    "mixed": "several profilers",
}
# For ASCII terminals; one for one, so that columns stay aligned.
_ASCII = str.maketrans("█▓▒░·–…µ▏", "#=-:.-~u|")  # noqa: RUF001  the dash is the point
_NUMBERS = re.compile(r"\d+")


def screen(answer: TraceJson, *, name: str, top: int, console: Console | None = None) -> str:
    """Return the page as text for this terminal, in colour if it has colours."""
    console = console or Console(highlight=False)
    return fitted(console, page(answer, name=name, top=top, width=max(console.width, NARROWEST)))


def fitted(console: Console, shown: Group) -> str:
    """Return what the terminal prints, in characters that it knows."""
    with console.capture() as captured:
        console.print(shown)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    return text if _knows_blocks(console.encoding) else text.translate(_ASCII)


def _knows_blocks(encoding: str) -> bool:
    try:
        "█▓▒░·–…µ".encode(encoding)  # noqa: RUF001
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def page(answer: TraceJson, *, name: str, top: int, width: int) -> Group:
    """Return the parts of the page, separated by empty lines."""
    budget = answer["budget"]
    cut = cut_off(answer["warnings"])
    parts: list[RenderableType] = [Group(*_warnings([cut] if cut else []), head(answer, name))]
    if total_of(budget):
        parts.append(bar(budget, width))
        parts.append(Group(*legend(budget, _of_a_step(answer), width, len(answer["devices"]))))
    parts += [Text(text, "bold")] if (text := verdict(answer)) else []
    parts += owners(budget, answer.get("where") or [], width)
    several = answer.get("ranks")
    parts += devices(answer["devices"], width) if several is None else ranks(several, width)
    parts += [*kernels(answer, top, width), *copies(answer, width), *collectives(answer, width)]
    if more := [text for text in answer["warnings"] if text != cut]:
        parts.append(Group(*_warnings(more)))
    return Group(parts[0], *(Padding(part, (1, 0, 0, 0)) for part in parts[1:]))


def _of_a_step(answer: TraceJson) -> BudgetJson | None:
    """Return the budget of the steps; if only the job counts them, the shares of one step."""
    window, budget = answer.get("window"), answer["budget"]
    if answer.get("step_budget") or window is None or window["step_ns"] is None:
        return answer.get("step_budget")
    total = total_of(budget)
    if is_too_short(window) or is_mostly_outside(window, total):
        return None
    each = window["step_ns"] * len(answer["devices"])
    slices = {part: each * ns // total for part, ns in budget["slices"].items()}
    return {"total_ns": each, "steps": 1, "slices": slices, "details": {}}


def _warnings(found: Sequence[str]) -> Iterator[Text]:
    """Yield each warning once: of those that differ only in numbers, the first."""
    alike: dict[str, list[str]] = {}
    for text in found:
        alike.setdefault(_NUMBERS.sub("", text), []).append(text)
    for texts in alike.values():
        more = f" ({len(texts) - 1} more like this)" if len(texts) > 1 else ""
        yield Text(f"! {printable(texts[0])}{more}", "yellow")


def head(answer: TraceJson, name: str) -> Text:
    """Return which file this is, what it holds, and what the account covers."""
    kind = _FORMATS.get(answer["format"], str(answer["format"]))
    facts = [kind, *_ranks(answer["devices"]), _count(answer["events"], "event")]
    return Text.assemble(
        (printable(name), "bold"),
        f": {printable(', '.join(facts))}\n",
        (printable(_covered(answer)), "dim"),
    )


def _ranks(found: Sequence[DeviceJson]) -> list[str]:
    """Return the name of the only device, or the number of devices, with ranks."""
    if not found:
        return ["no device"]
    if len(found) == 1:
        return [label(found[0], found)]
    ranks = sorted({rank for d in found if (rank := d.get("rank")) is not None})
    text = [f"{len(found)} {kind_words(found)}"]
    if ranks:
        text.append(f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}")
    return text


def _covered(answer: TraceJson) -> str:
    steps, budget = answer["steps"], answer["budget"]
    ways = {"markers": "as the trace marks them", "repetition": "found by repetition"}
    how = steps.get("how") or ways.get(steps["source"], "")
    if steps["source"] == "none" or not steps["count"]:
        found = f"no steps found{f' ({how})' if how else ''}"
        window = answer.get("window")
        if window is not None and window["step_ns"] is not None:
            found = f"{found}, one of the job takes {clock(window['step_ns'])}"
    else:
        median = steps["median_ns"]
        each = "" if median is None else f" of {clock(median)}"
        found = f"{_count(steps['count'], 'step')}{each} ({how})"
    if not (total := total_of(budget)):
        return found
    several = len(answer["devices"])
    of = f" of {several} {kind_words(answer['devices'])}" if several > 1 else ""
    return f"{found}; {clock(total)}{of} from first operation to last"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def verdict(answer: TraceJson) -> str | None:
    """Return the sentence that a tired person reads first; none if it would mislead."""
    if not total_of(answer["budget"]):
        what = "This trace holds no events" if not answer["events"] else NO_WORK
        return f"{what}: there is no time to account for."
    window, whole = answer.get("window"), total_of(answer["budget"])
    if is_too_short(window):
        return None
    if window is not None and is_mostly_outside(window, whole):
        return _outside(window["outside_ns"] / (window["outside_ns"] + whole), answer["devices"])
    budget = judged(answer)
    total = total_of(budget)
    computes = budget["slices"][Slice.COMPUTE]
    others = [(s, ns) for s, ns in in_order(budget) if s is not Slice.COMPUTE]
    subject = f"{_within(answer, budget)}{_subject(answer['devices'])}"
    begin = f"{subject} {share(computes, total)} of the time"
    if not others or others[0][1] < NOTABLE * total or computes >= HEALTHY * total:
        return f"{begin}: nothing worth fixing in how it is fed."
    part, ns = others[0]
    most = "Most of the rest" if 2 * ns > total - computes else "The largest part of the rest"
    second = [
        f", then {words(s)}, {share(n, total)}" for s, n in others[1:2] if n >= NOTABLE * total
    ]
    text = f"{most}: {words(part)}, {share(ns, total)} ({_meaning(budget, part)})"
    return f"{begin}. {text}{''.join(second)}."


def _outside(part: float, found: Sequence[DeviceJson]) -> str:
    worked = kind_words(found) if len(found) == 1 else f"{len(found)} {kind_words(found)}"
    return (
        f"For {share(part, 1)} of the window no operation ran on the {worked}: what came before"
        " the first one and after the last one matters more than the account above."
    )


def _meaning(budget: BudgetJson, part: Slice) -> str:
    """Return what a slice means; for unknown time, what is known about it."""
    details = budget.get("details", {}).get(part) or {}
    if part is Slice.IDLE_UNKNOWN and details:
        return printable(max(details, key=lambda label: details[label]))
    return LOOKS[part].meaning


def _within(answer: TraceJson, budget: BudgetJson) -> str:
    """Say what the verdict is of, where that is another part of the file than the account."""
    whole = answer["budget"]
    total, of_whole = total_of(budget), total_of(whole)
    alike = all(
        share(ns, total) == share(whole["slices"].get(part, 0), of_whole)
        for part, ns in budget["slices"].items()
    )
    if alike:
        return "The "
    steps = f"{budget['steps']:,} whole steps" if budget["steps"] > 1 else "one whole step"
    return f"Within its {steps}, as monitor diagnose judges it, the "


def _subject(found: Sequence[DeviceJson]) -> str:
    if len(found) == 1:
        return f"{kind_words(found)} computes"
    return f"{len(found)} {kind_words(found)} compute"
