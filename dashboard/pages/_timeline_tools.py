"""Beside the lanes: the kernels of the trace, and other programs that can show it."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Final

import streamlit as st

from whyidle.dashboard import markup, settings, widgets
from whyidle.dashboard.views import perfetto
from whyidle.monitor.render.budget import clock, share
from whyidle.monitor.render.kernel_names import short_name
from whyidle.monitor.store.stored_traces import KeptTrace

_KERNELS: Final = 10
STYLE: Final = """
<style>
.w-grid td.w-name { width: 60%; }
</style>
"""
# Some template names are a megabyte long: what is shown of one, and when the pointer rests on it.
_SHOWN_MOST: Final = 160
_NAME_MOST: Final = 1000


def kernels(trace: KeptTrace) -> None:
    """List what took the most time in the whole trace."""
    for found, title in (
        (trace.answer.get("top_kernels"), "Kernels"),
        (trace.answer.get("top_operators"), "Operators"),
    ):
        if not found:
            continue
        whole = trace.answer["budget"]["slices"].get("compute", 0)
        rows = "".join(
            f"<tr>{name_cell(short_name(each['name']), each['name'])}"
            f"<td class=n>{each['count']:,}</td>"
            f"<td class=n>{clock(each['total_ns'])}</td>"
            f"<td class=n>{share(each['total_ns'], whole)}</td></tr>"
            for each in found[:_KERNELS]
        )
        head = (
            f"<tr><th>{title} of the trace</th><th class=n>times</th><th class=n>time</th>"
            "<th class=n>of compute</th></tr>"
        )
        widgets.write(f'<table class="w-grid">{head}{rows}</table>')


def name_cell(short: str, whole: str = "") -> str:
    """Return a table cell that shows a name in as many lines as it needs."""
    title = markup.safe((whole or short)[:_NAME_MOST])
    shown = markup.safe(short[:_SHOWN_MOST])
    return f'<td class="w-mono w-name" title="{title}">{shown}</td>'


def elsewhere(trace: KeptTrace) -> None:
    """Offer the trace file to other programs."""
    if settings.current().is_sample:
        widgets.note("Perfetto and XProf need the trace file, which the sample lacks.")
        return
    if not trace.path.is_file():
        widgets.unknown("Perfetto and XProf", f"the trace's file {trace.path} is gone")
        return
    st.download_button(
        "For Perfetto", partial(perfetto.packed, trace.path),
        f"{_stem(trace.path)}.perfetto.json.gz", "application/gzip",
        key="perfetto", on_click="ignore", icon=":material/download:",
        help="For ui.perfetto.dev, which works in the browser: nothing leaves this machine.",
    )  # fmt: skip
    if trace.format == "xplane":
        widgets.write('<p class="w-note">In XProf (TensorBoard), from a terminal:</p>')
        st.code(f"monitor trace view {shlex.quote(str(trace.path))}", language=None)


def _stem(path: Path) -> str:
    name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pb")
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:80] or "trace"
