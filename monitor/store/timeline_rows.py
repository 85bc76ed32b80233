"""From an analysed trace to the rows and columns in the store.

Call stacks and source sites are not stored: the answer holds what was derived from them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from whyidle.monitor.core.contracts.trace import BudgetJson, JsonObject, TakenJson, TraceJson
from whyidle.monitor.store import SIZE_CAP
from whyidle.monitor.store.blocks import Block, Columns, cut, longest
from whyidle.monitor.store.columns import pack_all
from whyidle.monitor.store.timelines import SHARE
from whyidle.monitor.store.traces import NewTrace, Row, put
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Ids, Ints, Links, Table, Trace

OP, SPAN, MARK, SEGMENT, NAME = "op", "span", "mark", "segment", "name"
LINKS: Final = ("calls", "externals")
# Limits on Python frames, and on rows of any table; the longest are kept. The transaction that
# writes them is then short enough for a recorder's tick to wait for it.
FRAMES_MOST: Final = 1 << 20
ROWS_MOST: Final = 1 << 21
KERNELS_MOST: Final = 200
NAMES_AT_ONCE: Final = 1 << 12
# Columns that are indices into the names.
NAMED: Final = ("name", "stream", "hlo_op", "hlo_module")
# The fields of a device that are columns of its row; its index is ``idx`` there.
_FIGURES: Final = (
    "kind", "host", "pid", "rank", "model", "span_ns", "busy_ns", "idle_ns", "compute_ns",
    "comm_ns", "exposed_comm_ns", "copy_ns", "exposed_copy_ns", "kernels", "comm_kernels", "copies",
)  # fmt: skip


def keep(  # noqa: PLR0913  what a trace consists of, by name
    store: Path,
    trace: Trace,
    answer: TraceJson,
    *,
    file: Path | None = None,
    segments: Sequence[Segments] = (),
    steps: tuple[Ints, Ints] | None = None,
    run: int | None = None,
    taken: TakenJson | None = None,
    size_cap: int = SIZE_CAP,
) -> int:
    """Store the trace of a file with the answer of ``monitor trace``; return its id.

    ``segments`` are those of each device's budget, ``steps`` when each began and ended. Without a
    run (a trace outside of any recording) it replaces an earlier one of the same file, by default
    the answer's. ``taken`` describes a trace that we took ourselves: ``began_ms`` is when its
    window began, by the recording's clock.
    """
    new = whole(
        trace, answer, file=file, segments=segments, steps=steps, run=run, taken=taken,
        size_cap=size_cap,
    )  # fmt: skip
    return put(store, new, size_cap)


def whole(  # noqa: PLR0913  likewise
    trace: Trace,
    answer: TraceJson,
    *,
    file: Path | None = None,
    segments: Sequence[Segments] = (),
    steps: tuple[Ints, Ints] | None = None,
    run: int | None = None,
    taken: TakenJson | None = None,
    size_cap: int = SIZE_CAP,
) -> NewTrace:
    """Return all that ``keep`` stores: making this is slow, storing it is not."""
    notes: list[str] = []
    blocks = _timeline(trace, segments, notes)
    if sum(len(block.data) for block in blocks) > SHARE * size_cap:
        notes.append("The timeline is too large to be kept.")
        blocks = []
    began_ms = None if taken is None else taken.get("began_ms")
    return NewTrace(
        run=run,
        format=trace.format,
        path=str((file or Path(answer["file"])).absolute()),
        header={"answer": answer, **_header(trace, blocks), "notes": notes, "taken": taken},
        rows=_rows(answer, steps),
        blocks=blocks,
        ts_ms=time.time_ns() // 1_000_000 if began_ms is None else began_ms,
    )


def _header(trace: Trace, blocks: list[Block]) -> JsonObject:
    events = [block for block in blocks if block.table != NAME]
    return {
        "ticks_per_ns": trace.ticks_per_ns,
        "origin_ns": trace.origin_ns,
        "start": min((block.start for block in events), default=0),
        "end": max((block.stop for block in events), default=0),
        "threads": [(t.label, t.pid, t.tid) for t in trace.threads],
        "blocks": len(blocks),
    }


def _rows(answer: TraceJson, steps: tuple[Ints, Ints] | None) -> dict[str, list[Row]]:
    """Return the rows that SQL can query without decoding our blobs."""
    devices = answer["devices"]
    rows: dict[str, list[Row]] = {
        "trace_device": [
            {"device": i, "idx": device["index"], **{name: device.get(name) for name in _FIGURES}}
            for i, device in enumerate(devices)
        ],
        "trace_slice": [
            {"device": i, "budget": name, **part}
            for i, device in enumerate(devices)
            for name, budget in (
                ("budget", device["budget"]),
                ("step_budget", device.get("step_budget")),
            )
            for part in _slices(budget)
        ],
        "trace_kernel": [
            {"place": i, **{name: kernel[name] for name in ("name", "count", "total_ns")}}
            for i, kernel in enumerate(answer["top_kernels"][:KERNELS_MOST])
        ],
    }
    if steps is not None:
        pairs = zip(steps[0].tolist(), steps[1].tolist(), strict=True)
        rows["trace_step"] = [
            {"ordinal": i, "start": start, "stop": stop} for i, (start, stop) in enumerate(pairs)
        ]
    return rows


def _slices(budget: BudgetJson | None) -> Iterator[Row]:
    """Yield the parts of a budget; the rest of a slice without details has an empty name."""
    for name, total in budget["slices"].items() if budget else ():
        details = budget["details"].get(name, {}) if budget else {}
        rest = total - sum(details.values())
        for detail, ns in {**details, **({"": rest} if rest else {})}.items():
            yield {"slice": str(name), "detail": detail, "ns": ns}


def _timeline(trace: Trace, segments: Sequence[Segments], notes: list[str]) -> list[Block]:
    tables = {
        OP: _limited(OP, [_columns(device.ops) for device in trace.devices], notes),
        SPAN: _limited(SPAN, [_without_frames(_host(trace), notes)], notes),
        MARK: [_columns(trace.marks)],
        SEGMENT: _limited(SEGMENT, [_columns(some) for some in segments], notes),
    }
    names = _renamed([lane for lanes in tables.values() for lane in lanes], trace.names)
    blocks = [block for table, lanes in tables.items() for block in cut(table, lanes)]
    return blocks + list(_names(names))


def _columns(table: Table) -> Columns:
    return {name: getattr(table, name) for name in table.columns()}


def _host(trace: Trace) -> Columns:
    """Return the host's spans, with their ids as columns."""
    columns = _columns(trace.host)
    for name in LINKS:
        links: Links = getattr(trace, name)
        columns[name] = np.full(len(trace.host), -1, np.int64)
        columns[name][links.row] = links.id
    return columns


def _without_frames(spans: Columns, notes: list[str]) -> Columns:
    frames = np.flatnonzero(spans["kind"] == Cause.PYTHON)
    if len(frames) <= FRAMES_MOST:
        return spans
    length = (spans["end"] - spans["start"])[frames]
    keep = np.ones(len(spans["start"]), np.bool_)
    keep[frames] = longest(length, FRAMES_MOST)
    notes.append(f"Of {len(frames)} Python frames the {FRAMES_MOST} longest are in the timeline.")
    return {name: column[keep] for name, column in spans.items()}


def _limited(table: str, lanes: list[Columns], notes: list[str]) -> list[Columns]:
    """Drop the shortest if there are too many."""
    counts = [len(lane["start"]) for lane in lanes]
    if sum(counts) <= ROWS_MOST:
        return lanes
    keep = longest(np.concatenate([lane["end"] - lane["start"] for lane in lanes]), ROWS_MOST)
    notes.append(f"Of {sum(counts)} {table}s the {ROWS_MOST} longest are in the timeline.")
    parts = np.split(keep, np.cumsum(counts)[:-1])
    return [
        {name: column[part] for name, column in lane.items()}
        for lane, part in zip(lanes, parts, strict=True)
    ]


def _renamed(lanes: list[Columns], names: list[str]) -> list[str]:
    """Renumber the used names, commonest first, and return them."""
    columns = [(lane, name) for lane in lanes for name in NAMED if name in lane]
    uses = np.zeros(len(names), np.int64)
    for lane, name in columns:
        uses += np.bincount(lane[name][lane[name] >= 0], minlength=len(names))
    order = np.argsort(-uses, kind="stable")[: int((uses > 0).sum())]
    # One more than there are names: index -1, which means none, finds it and stays -1.
    new: Ids = np.full(len(names) + 1, -1, np.int32)
    new[order] = np.arange(len(order))
    for lane, name in columns:
        lane[name] = new[lane[name]]
    return [names[i] for i in order.tolist()]


def _names(names: list[str]) -> Iterator[Block]:
    for first in range(0, len(names), NAMES_AT_ONCE):
        some = names[first : first + NAMES_AT_ONCE]
        text = np.frombuffer(json.dumps(some).encode(), np.uint8)
        yield Block(NAME, 0, 0, first, first + len(some), len(some), pack_all({"json": text}))
