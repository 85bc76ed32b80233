"""Details of what the user clicked on: a gap and what the host did in it, or an event."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import streamlit as st

from whyidle.dashboard import markup, settings, widgets
from whyidle.dashboard.figures.lanes import Selected
from whyidle.dashboard.pages import _timeline_tools as tools
from whyidle.dashboard.views import (
    findings,
    job,
    timeline,
    timeline_event,
    timeline_gap,
    timeline_host,
)
from whyidle.dashboard.views.timeline_event import EventRef, TraceEvent
from whyidle.dashboard.views.timeline_gap import Gap
from whyidle.dashboard.views.timeline_host import HostEventTotal, StackSamples
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.core.contracts.trace import OwnerJson
from whyidle.monitor.core.slices import LOOKS
from whyidle.monitor.render import numbers
from whyidle.monitor.render.budget import clock, share
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.kernel_names import short_name
from whyidle.monitor.store import Reader
from whyidle.monitor.store.stored_traces import KeptTrace

AT: Final = "at"
# Its kind, its device or thread, and its start and end in nanoseconds of the trace.
_AT: Final = re.compile(r"(idle|work|host)-(\d{1,6})-(\d{1,18})-(\d{1,18})")
_LINES_MOST: Final = 4


def choose(data: object) -> bool:
    """Select what was clicked on, and return whether that changed anything."""
    if not isinstance(data, list) or len(data) != 4:
        return False
    text = "-".join(str(part) for part in data)
    if not _AT.fullmatch(text) or st.query_params.get(AT) == text:
        return False
    st.query_params[AT] = text
    return True


def _chosen(trace: KeptTrace) -> tuple[str, int, int, int] | None:
    found = _AT.fullmatch(st.query_params.get(AT, ""))
    if found is None:
        return None
    what, of, *times = found.groups()
    start, end = (trace.start + int(ns) * trace.ticks_per_ns for ns in times)
    return what, int(of), start, end


def selected(trace: KeptTrace) -> Selected | None:
    """Return the range of the selected piece; for a gap, the whole gap."""
    chosen = _chosen(trace)
    if chosen is None:
        return None
    what, of, start, end = chosen
    if what == "idle" and (gap := _gap(trace, of, start)) is not None:
        return Selected(gap.start, gap.end)
    return Selected(start, end)


def about(trace: KeptTrace, reader: Reader) -> None:
    """Show the details of the selected piece."""
    chosen = _chosen(trace)
    if chosen is None:
        widgets.write(
            '<p class="w-note">Click on a gap in a "why idle" lane to see here what the host did'
            " in it. Click on a step to zoom to it, drag over the lanes to zoom in, and"
            " double-click to see the whole trace.</p>"
        )
        return
    what, of, start, end = chosen
    if what == "idle":
        _about_gap(trace, _gap(trace, of, start), reader)
        return
    find = timeline_event.operation if what == "work" else timeline_event.host_event
    _about_event(trace, find(settings.current().store, trace.id, EventRef(of, start, end)))


def _about_event(trace: KeptTrace, event: TraceEvent | None) -> None:
    if event is None:
        widgets.unknown("The clicked item", "it is not in this trace")
        return
    part = LOOKS[event.cause.slice]
    widgets.write(
        f'<p class="w-verdict"><span class="w-chip" style="background:{part.colour}">'
        f"{markup.safe(event.cause.words)}</span>"
        f"<b>{clock(timeline.ns(trace, event.end - event.start))}</b></p>"
    )
    st.code(printable(event.name) or "without a name", language=None, wrap_lines=True)
    widgets.write(_rows(event.facts))
    if event.activity.totals:
        widgets.title("What was in it")
        widgets.write(_totals(event.activity.totals, event.end - event.start, "of it"))


def _gap(trace: KeptTrace, device: int, at: int) -> Gap | None:
    return _cached_gap(str(settings.current().store), trace.id, trace.ts_ms, (device, at), trace)


@st.cache_data(show_spinner=False, max_entries=24)
def _cached_gap(
    store: str, number: int, ts_ms: int, place: tuple[int, int], _trace: KeptTrace
) -> Gap | None:
    # The time distinguishes a trace from an earlier one with the same number.
    del number, ts_ms
    return timeline_gap.gap_at(Path(store), _trace, *place)


def _about_gap(trace: KeptTrace, gap: Gap | None, reader: Reader) -> None:
    if gap is None:
        widgets.unknown("The gap", "the device has none at that moment")
        return
    device = timeline.device_names(trace.answer)[gap.device]
    part = LOOKS[gap.slice]
    head = (
        f'<p class="w-verdict"><span class="w-chip" style="background:{part.colour}">'
        f"{markup.safe(part.words)}</span><b>{clock(timeline.ns(trace, gap.ticks))}</b>"
        f" of {markup.safe(device)}: {markup.safe(part.meaning)}.</p>"
    )
    rows = [head, markup.note(_causes(trace, gap))]
    rows += [markup.note(_late(trace, gap))]
    widgets.write("".join(rows))
    if gap.unknown is not None:
        widgets.unknown("What the host did", gap.unknown)
    else:
        widgets.title(f"What {gap.thread} did meanwhile")
        widgets.write(_totals(gap.activity.totals, gap.ticks, "of the gap"))
    _stack(gap.activity.stack)
    samples = timeline_host.samples_at(reader, trace, gap.start)
    if not _code(trace, gap) and samples is None:
        _found(trace, gap)
    _samples(samples)


def _causes(trace: KeptTrace, gap: Gap) -> str:
    found = [f"{cause.words} {share(ticks, gap.ticks)}" for cause, ticks in gap.parts]
    begins = clock(timeline.ns(trace, gap.start - trace.start))
    return f"Begins {begins} into the trace: {', '.join(found)}."


def _late(trace: KeptTrace, gap: Gap) -> str:
    """Return which launch ended the gap, and how late it came."""
    if gap.then is None:
        return "Nothing of the device follows in the trace."
    name = short_name(gap.then)
    launch = gap.launch
    if trace.answer["devices"][gap.device]["kind"] == "cpu":
        return f"Then {name} ran."
    if launch is None:
        return f"Then {name} ran; the trace does not show what launched it."
    thread = trace.threads[launch.thread].label
    begins, returns = (
        clock(timeline.ns(trace, abs(at - gap.start))) for at in (launch.start, launch.end)
    )
    if launch.start < gap.start:
        return f"Then {name} ran: {thread} had called {launch.name} {begins} before the gap."
    late = f"{thread} called {launch.name} only {begins} into the gap"
    back = f", and returned {returns} into it" if launch.end <= gap.end else ""
    return f"Then {name} ran: {late}{back}."


def _totals(found: Sequence[HostEventTotal], ticks: int, of: str) -> str:
    """Return a table of the open events, the one with most time of its own first."""
    rows = "".join(
        f"<tr>{tools.name_cell(one.name)}"
        f'<td class="w-when">{markup.safe(one.cause.words)}</td><td class=n>{one.count:,}</td>'
        f"<td class=n>{share(one.own, ticks)}</td><td class=n>{share(one.open, ticks)}</td></tr>"
        for one in found
    )
    rest = ticks - sum(one.own for one in found)
    if rest > 0:
        rows += (
            "<tr><td>not recorded, or smaller</td><td></td><td></td>"
            f"<td class=n>{share(rest, ticks)}</td><td></td></tr>"
        )
    head = (
        "<tr><th>innermost event</th><th>is</th><th class=n>times</th>"
        f"<th class=n>{of}</th><th class=n>with its calls</th></tr>"
    )
    return f'<table class="w-grid">{head}{rows}</table>'


def _stack(stack: Sequence[str]) -> None:
    if len(stack) > 1:
        widgets.title("Longest stretch, innermost first")
        st.code("\n".join(printable(name) for name in stack), language=None)


def _code(trace: KeptTrace, gap: Gap) -> bool:
    """Show the lines of user code that cause such time in the whole trace, if any."""
    found = timeline_gap.lines_of(trace.answer, gap.slice)[:_LINES_MOST]
    words = LOOKS[gap.slice].words
    if not found:
        why = trace.answer.get("unknown", {}).get("where", "no line of the user's code owns it")
        widgets.unknown(f"Lines of code for {words}", why)
        return False
    widgets.title(f"Lines of your code that own {words} in this trace")
    widgets.write(_rows([(_place(place), share(place["share"], 1)) for place in found]))
    if trace.run is not None:
        widgets.write(f"<p>{markup.link('fix', 'How to fix it', run=trace.run)}</p>")
    return True


def _found(trace: KeptTrace, gap: Gap) -> None:
    """Show the lines that a finding of the run names for such time, if the trace has none."""
    if trace.run is None:
        return
    finding = findings.of_slice(_diagnosed(str(settings.current().store), trace.run), gap.slice)
    if finding is None:
        return
    widgets.title("Lines that the run's finding names", str(finding.title))
    shares = (numbers.show(place.share, "ratio") for place in finding.where)
    rows = [
        (f"{p.file}:{p.line} in {p.function}", s)
        for p, s in zip(finding.where, shares, strict=True)
    ][:_LINES_MOST]
    fix = markup.link("fix", "How to fix it", run=trace.run, finding=finding.rule)
    widgets.write(f"{_rows(rows)}<p>{fix}</p>")


@st.cache_data(show_spinner=False, max_entries=4, ttl=60)
def _diagnosed(store: str, run: int) -> DiagnosisJson:
    return job.diagnosis(Path(store), run)


def _place(place: OwnerJson) -> str:
    """Return a line of code; if only its function is known, also what that called."""
    calls = [call["name"] for call in place.get("calls") or ()]
    within = f", mostly in {calls[0]}" if calls and not place.get("exact_line", True) else ""
    return f"{place['file']}:{place['line']} in {place['function']}{within}"


def _samples(found: StackSamples | None) -> None:
    """Show where the recording saw the main thread around then: traces have blind spots, too."""
    if found is None:
        return
    widgets.title(
        "Where the main thread was around then",
        f"{found.samples} samples in {found.seconds:.0f} s of the recording",
    )
    rows = [
        (f"{line.file}:{line.line} in {line.function}", share(line.share, 1))
        for line in found.lines[:_LINES_MOST]
    ]
    widgets.write(_rows(rows))


def _rows(found: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><td>{markup.safe(a)}</td><td>{markup.safe(b)}</td></tr>" for a, b in found)
    return f'<table class="w-grid">{rows}</table>'
