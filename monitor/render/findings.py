"""The screen of ``monitor diagnose``: what costs time, what to change, and where the time goes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from whyidle.monitor.core.contracts.diagnosis import (
    ComputeJson,
    DiagnosisJson,
    FindingJson,
    HostJson,
    NotCheckedJson,
    OverheadJson,
)
from whyidle.monitor.core.contracts.ranks import SeenRanksJson
from whyidle.monitor.core.contracts.trace import AccountJson, cut_off
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.host_class import HOST_LOOKS, HostClass
from whyidle.monitor.core.slices import LOOKS
from whyidle.monitor.diagnosis.device_activity import NO_PIPES
from whyidle.monitor.render import finding_text
from whyidle.monitor.render.budget import NARROWEST, bar, in_order, legend, words
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_lines import STYLES
from whyidle.monitor.render.finding_text import PlaceText
from whyidle.monitor.render.numbers import amount
from whyidle.monitor.render.trace import fitted
from whyidle.monitor.signals.cores import FULL, RUNNERS, Runner
from whyidle.monitor.signals.phases import WORDS, Phase

_INDENT: Final = "  "
# Of the rules that lack the same data, this many are named; the rest are counted.
MOST_NAMES: Final = 6
# Of the host's account the largest rows, none smaller than what a few samples make.
MOST_ROWS: Final = 5
LEAST_ROW: Final = 0.05
# Of cores: less is drawn as nothing.
LEAST_CORES: Final = 0.05
# Of ranks as many lines, the latest first; of what each is at as many words.
MOST_RANKS: Final = 8
MOST_CLASSES: Final = 3
# As a share is written.
NOTHING: Final = "0%"
NO_CODE: Final = "none of your code"
# The most telling, and what it is compared with.
MOST_EVIDENCE: Final = 2
NOT_KNOWN: Final = "not known: "
NO_GAIN: Final = "What it costs in time is not known."


def screen(
    answer: DiagnosisJson, *, everything: bool = False, console: Console | None = None
) -> str:
    """Return the page as text for this terminal; with everything also what tools go by."""
    console = console or Console(highlight=False)
    return fitted(console, page(answer, max(console.width, NARROWEST), everything=everything))


def page(answer: DiagnosisJson, width: int, *, everything: bool = False) -> Group:
    """Return the parts of the page, separated by empty lines: the answer before its grounds."""
    cut = cut_off(answer.warnings)
    what, *rest = finding_text.verdict(answer)
    first = Text(f"{printable(answer.target)}: {what}", style="bold")
    head = [first, *(_line(each, width) for each in rest)]
    parts: list[RenderableType] = [Group(*([Text(f"! {printable(cut)}")] if cut else []), *head)]
    if warnings := list(_warnings(answer, width, without=cut)):
        parts.append(Group(*warnings))
    shown = [x for x in answer.findings if everything or not _is_little(x)]
    parts.extend(Group(*finding(x, width, everything=everything)) for x in shown)
    if little := len(answer.findings) - len(shown):
        parts.append(
            Text(f"Not shown: {little} of little or unknown effect; --all shows them", style="dim")
        )
    budget = answer.budget
    if budget is None:
        parts.append(Text(f"Where the time goes is not known: {answer.unknown['budget']}."))
    else:
        by = Text(" ".join(_budget_source(answer, budget)), style="dim")
        parts.append(Group(bar(budget, width), *legend(budget, None, width, 1), by))
    if (computes := answer.compute) and not _is_of_gpu(computes):
        parts.append(Group(*(_line(text, width) for text in while_it_computes(computes))))
    tables = (list(_host(answer, width)), list(_ranks(answer.ranks, width)))
    parts.extend(Group(*rows) for rows in tables if rows)
    if computes and _is_of_gpu(computes):
        parts += [Group(*said) for said in [_compute(computes, width, everything)] if said]
    if answer.not_checked:
        not_checked = answer.not_checked
        parts.append(
            Group(*(_not_checked(not_checked, width) if everything else _unjudged(not_checked)))
        )
    if said := overhead(answer.overhead):
        parts.append(Group(*textwrap.wrap(said, width)))
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text("")]
    return Group(*spaced[:-1])


def _budget_source(answer: DiagnosisJson, budget: AccountJson) -> Iterator[str]:
    """Say what the bar rests on, and what its largest idle part means."""
    yield f"By {printable(answer.budget_source or '')}."
    least = LEAST_ROW * sum(budget["slices"].values())
    idle = (part for part, ns in in_order(budget) if part.idle and ns >= least)
    for part in islice(idle, 1):
        name = words(part)
        yield f"{name[0].upper()}{name[1:]}: {LOOKS[part].meaning}."


def code_lines(host: HostJson) -> list[tuple[str, str, float]]:
    """Return the lines of the user's that most of the main thread's time is at, and what it did."""
    shares: dict[tuple[str, str], float] = {}
    for row in host.rows:
        at = row.chain[0] if row.chain else None
        name = f"{finding_text.short(at)} in {at.function}" if at else NO_CODE
        key = name, HOST_LOOKS[HostClass(row.doing)].words
        shares[key] = shares.get(key, 0.0) + row.share
    most = sorted(shares.items(), key=lambda item: -item[1])[:MOST_ROWS]
    return [(name, doing, share) for (name, doing), share in most if share >= LEAST_ROW]


def who_worked(host: HostJson) -> str:
    """Say whose lines are shown."""
    serving = host.serving
    if serving is None:
        return "the main thread was"
    return "the threads that work were" if serving.by_threads else "the main thread was at work"


def without_work(host: HostJson) -> str:
    """Say what its main thread waits for where it is given its work, and for how long."""
    serving = host.serving
    if serving is None:
        return ""
    idle = serving.idle
    only = f"its main thread only {serving.waits}"
    if not idle or idle < LEAST_ROW:
        return only if serving.by_threads else f"its main thread hardly {serving.waits}"
    if not serving.by_threads:
        return f"its main thread {serving.waits} {idle:.0%} of the time"
    return f"{only}, and its threads have no work for about {idle:.0%} of the time"


def phases(answer: DiagnosisJson) -> str:
    """Say what the loop does besides its steps; empty where nothing takes much."""
    beside = (
        f"{WORDS[Phase(each.name)]} {each.share:.0%}"
        for each in answer.phases
        if each.name != Phase.STEP and each.share >= LEAST_ROW
    )
    return ", ".join(beside)


def _host(answer: DiagnosisJson, width: int) -> Iterator[Text]:
    host = answer.host
    shown = code_lines(host)
    if not shown:
        return
    yield Text(f"Where {who_worked(host)}, by your lines ({host.samples} samples)", style="dim")
    longest = max(len(doing) for _, doing, _ in shown)
    for name, doing, share in shown:
        yield _line(f"{share:>4.0%}  {doing:<{longest}}  {name}", width)
    if idle := without_work(host):
        yield _line(f"Without idle time: {idle}.", width)
    elif beside := phases(answer):
        yield _line(f"Besides the steps: {beside}.", width)
    cores = host.cores
    if cores is not None and cores.runs[Runner.FREE] <= (1 - FULL) * cores.total:
        runs = [(RUNNERS[Runner(who)], n) for who, n in cores.runs.items() if n >= LEAST_CORES]
        parts = ", ".join(f"{who} {n:.1f}" for who, n in runs)
        total = cores.total
        which = "Its one core is" if total == 1 else f"All {total:g} cores are"
        yield _line(f"{which} taken: {parts}.", width)


def _ranks(ranks: SeenRanksJson | None, width: int) -> Iterator[Text]:
    """Say how much each rank waits, and what it is at; of many the latest and some others."""
    if ranks is None:
        return
    # Of a trace it is not known where main threads were.
    each = sorted((rank for rank in ranks.each if rank.host_shares), key=lambda rank: -rank.late[0])
    if not each:
        return
    straggler = None if ranks.straggler is None else ranks.straggler.rank
    late = {straggler, *ranks.alike} - {None}
    there = max(ranks.world_size or 0, len(each))
    yield Text(f"Its ranks, by their main threads ({len(each)} of {there} seen)", style="dim")
    for rank in sorted(each[:MOST_RANKS], key=lambda rank: rank.rank or 0):
        shares = dict(rank.host_shares)
        waits = shares.pop("waits", 0.0)
        words = [f"{HOST_LOOKS[HostClass(c)].words} {n:.0%}" for c, n in shares.items()]
        last = "   comes last" if rank.rank in late else ""
        at = ", ".join(words[:MOST_CLASSES])
        text = f"rank {rank.rank!s:<3} waits {waits:>4.0%}   {at}{last}"
        yield _line(text, width)
    if len(each) > MOST_RANKS:
        yield _line(f"and {len(each) - MOST_RANKS} more", width)


def finding(finding: FindingJson, width: int, *, everything: bool = False) -> Iterator[Text]:
    """Yield a finding with its place, its fix and its best evidence; everything: with all of it."""
    said = finding_text.of(finding)
    head = Text(f"{said.severity.upper():<7}", style=STYLES[said.severity])
    head.append(said.title, style="bold")
    if everything:
        head.append(f"  [{said.rule}]{said.unsure and f' {said.unsure}'}", style="dim")
    yield head
    if said.gain is not None:
        yield _line(said.gain, width)
    elif finding.severity != Severity.INFO:
        yield _line(NO_GAIN, width)
    for number, place in enumerate(_places(said.places, everything=everything)):
        yield _line(f"at {place}", width)
        if said.callers and not number:
            yield _line(said.callers, width)
    for remedy in said.remedies:
        code = remedy.code if everything else finding_text.own_code(remedy.code)
        example = f" An example: {said.more}" if remedy.code and not code else ""
        yield _line(f"{remedy.words}{example}", width)
        # A line that a terminal breaks is still one line when it is copied.
        for row in code.splitlines():
            yield Text(f"{_INDENT * 3}{row}", style="cyan", no_wrap=True, overflow="ignore")
    for e in said.evidence if everything else said.evidence[:MOST_EVIDENCE]:
        yield _line(f"{e.words}  ({e.aged})" if everything else e.words, width)
    if everything:
        yield _line(f"Documents: {', '.join(said.documents)}.  More: {said.more}", width)
    elif said.references:
        yield _line(f"Read more: {'; '.join(said.references)}", width)
    if everything and said.also_seen:
        yield _line(f"Also seen: {', '.join(said.also_seen)}.", width)


def _places(places: Sequence[PlaceText], *, everything: bool) -> Iterator[str]:
    """Yield the lines of a finding, each once, by the name of its file; everything: as they are."""
    if everything:
        yield from (place.words for place in places)
        return
    seen = set[tuple[str, int]]()
    for place in places:
        at = place.json.file, place.json.line
        if at in seen or (seen and place.share == NOTHING):
            continue
        seen.add(at)
        yield f"{finding_text.in_function(place.json)}{place.share and f', {place.share}'}"


def overhead(cost: OverheadJson) -> str | None:
    """Say what watching took of the job and its machine; ``None``: nothing is known."""
    agent, ours, held = cost.agent_cores, cost.monitor_cores, cost.traces_held_s
    parts = [] if agent is None else [f"{agent:.1%} of a core in the job"]
    if ours is not None:
        parts.append(f"{ours:.1%} of a core outside it")
    if cost.entering_s:
        parts.append(f"a stop of {amount(cost.entering_s, 's')} to enter")
    if held is not None:
        traces = "1 trace" if cost.traces == 1 else f"{cost.traces} traces"
        parts.append(f"{amount(held, 's')} for {traces}")
    if cost.profiler_share is not None:
        parts.append(f"{cost.profiler_share:.1%} of the trace's own time")
    return f"Watching cost {', '.join(parts)}." if parts else None


def _line(text: str, width: int) -> Text:
    wrapped = textwrap.wrap(printable(text), max(20, width - 4)) or [""]
    joined = f"\n{_INDENT * 2}".join(wrapped)
    return Text(f"{_INDENT}{joined}")


def while_it_computes(compute: ComputeJson) -> list[str]:
    """Return how well the device computes while it computes."""
    said = list(compute.said)
    if compute.efficiency is not None:
        share = amount(compute.efficiency, "ratio")
        said.append(f"{share} of the chip's peak is used ({compute.efficiency_source}).")
    if _is_of_gpu(compute):
        said += [f"{NOT_KNOWN}{text}" for text in dict.fromkeys(compute.unknown.values())]
    return said


def _is_of_gpu(compute: ComputeJson) -> bool:
    """Tell whether counters are missed where they are not known: those of a GPU."""
    return NO_PIPES not in compute.unknown.values()


def _compute(compute: ComputeJson, width: int, everything: bool) -> list[Text]:
    """Return how well a GPU computes; what is not known of that only with everything."""
    said = [x for x in while_it_computes(compute) if everything or not x.startswith(NOT_KNOWN)]
    lines = [_line(text, width) for text in said]
    return [Text("While it computes", style="bold"), *lines] if lines else []


def _warnings(answer: DiagnosisJson, width: int, without: str | None) -> Iterator[Text]:
    """Return the warnings about the trace, and the rules that failed."""
    for text in answer.warnings:
        if text != without:
            yield _line(f"! {text}", width)
    for rule, why in answer.failed.items():
        yield _line(f"! {rule} failed, a defect of whyidle: {why}", width)


def _not_checked(not_checked: list[NotCheckedJson], width: int) -> Iterator[Text]:
    yield Text("Not checked", style="bold")
    for need, names in by_need(not_checked).items():
        shown = ", ".join(names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        yield _line(f"{shown}{more}: needs {need}", width)


def _is_little(found: FindingJson) -> bool:
    """Whether it is expected to give nothing, or less than what a finding of any weight costs."""
    lost = found.lost_share
    if found.severity != Severity.INFO or lost is None:
        return False
    is_nothing = found.expected is not None and found.expected < 1 / (1 - Severity.LOW.least)
    return is_nothing or lost[1] < Severity.MEDIUM.least


def _unjudged(not_checked: Sequence[NotCheckedJson]) -> Iterator[Text]:
    """Say in one line that something is not known, and how to see what."""
    faults = "1 kind of fault" if len(not_checked) == 1 else f"{len(not_checked)} kinds of faults"
    yield Text(f"Not checked: {faults}, for lack of data; which and why: --all", style="dim")


def by_need(not_checked: Sequence[NotCheckedJson]) -> dict[str, list[str]]:
    """Return the rules that could not be checked, by the data they lack."""
    found: dict[str, list[str]] = {}
    for each in not_checked:
        found.setdefault(each.needs, []).append(each.rule)
    return found
