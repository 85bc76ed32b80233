"""The devices of a trace side by side: a short bar each, and how much they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from whyidle.monitor.core.contracts.trace import AccountJson, DeviceJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.render.budget import NARROWEST, bar, clock, share
from whyidle.monitor.render.escape import printable

# More lines cannot be read at a glance.
LINES: Final = 8
# A smaller difference between devices is not worth a word.
SPREAD: Final = 0.05
_KINDS = {"gpu": ("GPU", "GPUs"), "tpu": ("TPU", "TPUs"), "cpu": ("CPU", "CPUs")}
_FIGURES = 24  # columns for the two figures and the gaps


def total_of(budget: AccountJson) -> int:
    """Return what the slices add up to."""
    return sum(budget["slices"].values())


def kind_words(devices: Sequence[DeviceJson]) -> str:
    """Return what to call these devices, singular or plural."""
    kinds = {d["kind"] for d in devices}
    one, several = _KINDS.get(next(iter(kinds)), ("device", "devices"))
    if len(kinds) > 1:
        one, several = "device", "devices"
    return one if len(devices) == 1 else several


def label(device: DeviceJson, among: Sequence[DeviceJson]) -> str:
    """Return a device's name, with host and process only if devices differ by them."""
    parts = [f"{kind_words([device])} {device['index']}"]
    if device.get("rank") is not None:
        parts.append(f"rank {device['rank']}")
    host, pid = device.get("host"), device.get("pid")
    if host is not None and len({d.get("host") for d in among}) > 1:
        parts.append(host)
    if pid is not None and len({d.get("pid") for d in among}) > 1:
        parts.append(f"pid {pid}")
    return printable(", ".join(parts))


def devices(found: Sequence[DeviceJson], width: int) -> list[RenderableType]:
    """Return one bar per device, the excess summed up in one; nothing for a single device."""
    if len(found) < 2:
        return []
    shown = found if len(found) <= LINES else found[: LINES - 1]
    rows: list[tuple[str, AccountJson]] = [(label(d, found), d["budget"]) for d in shown]
    if rest := found[len(shown) :]:
        rows.append((f"{len(rest)} more", _sum([d["budget"] for d in rest])))
    names = min(max(cell_len(name) for name, _ in rows), width // 3)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=names)
    table.add_column("", no_wrap=True)
    table.add_column("compute", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for name, budget in rows:
        total = total_of(budget)
        line: Text | str = "no work"
        if total:
            line = bar(budget, max(NARROWEST, width - names - _FIGURES), labels=False)
        part = share(budget["slices"][Slice.COMPUTE], total)
        # A device name may contain what rich takes for markup.
        table.add_row(Text(name), line, part, clock(total))
    return [table, *_spread(found)]


def _sum(budgets: Sequence[AccountJson]) -> AccountJson:
    slices = {str(s): sum(b["slices"].get(s, 0) for b in budgets) for s in Slice}
    return {"slices": slices, "details": {}}


def _spread(found: Sequence[DeviceJson]) -> list[Text]:
    """Say how much the devices differ, if they do."""
    shares = [
        (d["budget"]["slices"][Slice.COMPUTE] / total, label(d, found))
        for d in found
        if (total := total_of(d["budget"]))
    ]
    if not shares:
        return []
    (least, idle), (most, busy) = min(shares), max(shares)
    if most - least < SPREAD:
        return []
    said = f"They differ: from {share(least, 1)} compute on {idle} to {share(most, 1)} on {busy}."
    return [Text(said)]
