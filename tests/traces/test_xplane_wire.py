"""The columnar reader against one that goes field by field, on whatever a writer may write."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.longer import examples
from tests.traces.xplane_bytes import EPOCH, Plane, block, load, number, reread, space, varint
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.xplane import chunks
from whyidle.monitor.traces.xplane.vector import Buffer, varints

ENDS = [0, 1, 127, 128, 16_383, 16_384, (1 << 49) - 1, 1 << 49, (1 << 56) - 1]
Row = tuple[Any, ...]


def plane_of(seed: int, events: int) -> Plane:
    """A plane as no writer writes it: every length, order and omission that the format allows."""
    rng = random.Random(seed)
    plane = Plane("/device:GPU:0")
    for i in range(rng.choice((0, 5, 200, 20_000))):
        plane.stats[f"text {i}"] = i + 1
    for key in range(rng.randrange(1, 4)):
        made = b"".join(_event(plane, rng, i) for i in range(events))
        plane.line(f"Stream #{key}", made, key=key, at=EPOCH + rng.randrange(1000))
    return plane


def _event(plane: Plane, rng: random.Random, i: int) -> bytes:
    key = plane.events.setdefault(name := f"kernel {rng.randrange(300)}", len(plane.events) + 1)
    if rng.random() < 0.8:
        return plane.event(name, i * 999, rng.choice(ENDS) % (1 << 40), **_stats(rng))
    parts = [
        number(1, key),
        number(2, i * rng.choice((0, 1, 1 << 30)) - rng.choice((0, 0, 5))),
        number(3, rng.choice(ENDS)),
        *(block(4, plane.stat(stat, value)) for stat, value in _stats(rng).items()),
    ]
    for _ in range(rng.randrange(3)):
        rng.choice(ODDITIES)(parts, rng)
    return block(4, b"".join(parts))


def _no_duration(parts: list[bytes], _: random.Random) -> None:
    parts[:] = [part for part in parts if part[0] != 0x18]


def _long_tag(parts: list[bytes], _: random.Random) -> None:
    if parts[-1][0] == 0x22:
        parts[-1] = b"\xa2\x80\x00" + parts[-1][1:]


ODDITIES: tuple[Callable[[list[bytes], random.Random], None], ...] = (
    lambda parts, rng: rng.shuffle(parts),
    lambda parts, _: parts.append(number(15, 3)),
    lambda parts, _: parts.insert(0, block(9, b"unknown")),
    _no_duration,
    lambda parts, _: parts.append(number(5, 2)),
    _long_tag,
)


def _stats(rng: random.Random) -> dict[str, Any]:
    choices: dict[str, Any] = {
        "context_id": "$$1",
        "correlation_id": rng.choice((0, 1, 127, 128, 1 << 20, 1 << 40)),
        "theoretical_occupancy_pct": 50.0,
        "hlo_op": rng.choice((("ref", f"fusion.{rng.randrange(9)}"), "fusion.x", b"bytes")),
        "kernel_details": ("ref", "regs:32"),
        "shape": "f32[8]" * rng.choice((1, 20, 30, 400)),
        "run_id": -rng.randrange(1, 1 << 40),
    }
    names = rng.choice((list(choices)[:5], rng.sample(list(choices), rng.randrange(8))))
    return {name: choices[name] for name in names}


def rows(trace: Trace) -> list[Row]:
    ops = trace.devices[0].ops if trace.devices else None
    if ops is None:
        return []
    names = [*trace.names, None]
    return sorted(
        zip(
            [names[i] for i in ops.stream.tolist()],
            [names[i] for i in ops.name.tolist()],
            ops.start.tolist(),
            (ops.end - ops.start).tolist(),
            ops.correlation.tolist(),
            [names[i] or "" for i in ops.hlo_op.tolist()],
            strict=True,
        )
    )


def wanted(data: bytes, origin_ns: int) -> list[Row]:
    origin = origin_ns * 1000
    found = []
    for line, name, start, end, stats in reread(data)["/device:GPU:0"]:
        op = stats.get("hlo_op", "")
        text = op if isinstance(op, str) else ""
        key = stats.get("correlation_id", -1)
        found.append((line, name, start - origin, end - start, key, text))
    return sorted(found)


def seeded(path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Write a small file as the benchmark's large one."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.find_spec("xplane_file")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.write(path, 1, 1)
    return path.read_bytes()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers so small that a little file meets every edge of them."""
    monkeypatch.setattr(chunks, "CHUNK", 24 << 10)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(8))
def test_every_event_in_small_buffers(tmp_path: Path, seed: int) -> None:
    data = space(plane_of(seed, 500))
    trace = load(tmp_path, data)
    assert trace.warnings == []
    assert rows(trace) == wanted(data, trace.origin_ns or 0)


@pytest.mark.parametrize("seed", [2])
def test_every_event_in_large_buffers(tmp_path: Path, seed: int) -> None:
    data = space(plane_of(seed, 5_000))
    trace = load(tmp_path, data)
    assert trace.warnings == []
    assert rows(trace) == wanted(data, trace.origin_ns or 0)


@pytest.mark.usefixtures("small")
def test_many_lines_of_few_events(tmp_path: Path) -> None:
    plane = Plane("/device:GPU:0")
    for i in range(700):
        event = plane.event("k", i, 5, correlation_id=i)
        plane.line(f"Stream #{i}", *[event] * (i % 4), key=i)
    data = space(plane)
    trace = load(tmp_path, data)
    assert rows(trace) == wanted(data, EPOCH)
    assert trace.events == sum(i % 4 for i in range(700))


@pytest.mark.usefixtures("small")
def test_what_looks_like_an_event_inside_an_event(tmp_path: Path) -> None:
    plane = Plane("/device:GPU:0")
    bait = plane.event("bait", 3, 3) * 60
    events = [plane.event("k", i * 10, 5, correlation_id=i, data=bait) for i in range(200)]
    plane.line("Stream #1", *events)
    data = space(plane)
    trace = load(tmp_path, data)
    assert rows(trace) == wanted(data, EPOCH)


@pytest.mark.usefixtures("small")
def test_an_event_larger_than_the_buffer_is_left_out(tmp_path: Path) -> None:
    plane = Plane("/device:GPU:0")
    large = plane.event("large", 5, 5, data=b"x" * 100_000)
    plane.line("Stream #1", plane.event("a", 0, 1), large, plane.event("b", 9, 1))
    trace = load(tmp_path, space(plane))
    assert [row[1] for row in rows(trace)] == ["a", "b"]
    assert trace.events == 3
    assert len(trace.warnings) == 1


@pytest.mark.usefixtures("small")
def test_the_seeded_file_of_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = seeded(tmp_path / "seeded.xplane.pb", monkeypatch)
    trace = load(tmp_path, data)
    assert rows(trace) == wanted(data, trace.origin_ns or 0)
    assert trace.events == sum(map(len, reread(data).values()))


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=40))
@examples(200)
def test_numbers_as_columns(values: list[int]) -> None:
    encoded = [varint(value) for value in values]
    buffer = Buffer(sum(map(len, encoded)))
    buffer.put(0, b"".join(encoded))
    at = np.cumsum([0, *map(len, encoded)])[:-1]
    found, sizes = varints(buffer.words[at])
    for value, data, number_, size in zip(
        values, encoded, found.tolist(), sizes.tolist(), strict=True
    ):
        assert size == (len(data) if len(data) <= 8 else 0)
        assert size == 0 or number_ == value
