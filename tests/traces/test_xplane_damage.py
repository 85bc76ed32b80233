"""Damaged files: what could be read and a warning; never a traceback, a hang or much memory."""

from __future__ import annotations

import gzip
import random
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.traces.xplane_bytes import Plane, block, load, number, space, varint
from whyidle.monitor.traces import xplane
from whyidle.monitor.traces.opening import Source
from whyidle.monitor.traces.xplane import odd, outline, tables

RECORDED = sorted((Path(__file__).parents[1] / "data" / "traces" / "xplane").glob("*.gz"))
SECONDS = 10


def made(events: int = 400) -> bytes:
    """One GPU and its host, the host's names behind its events as in every file."""
    gpu, host = Plane("/device:GPU:0"), Plane("/host:CPU")
    gpu.line("Stream #1", *(gpu.event("k", i * 9, 5, correlation_id=i) for i in range(events)))
    host.line("python", *(host.event("f", i * 9, 5) for i in range(events)))
    return space(gpu, host, hosts=("a",))


def test_a_file_cut_anywhere(tmp_path: Path) -> None:
    data = made(30)
    whole = {0, len(data) - len(block(4, "a")), data.index(b"/host:CPU") - 7}
    seen = set()
    for size in range(len(data)):
        trace = load(tmp_path, data[:size])
        seen.add(len(trace.devices[0].ops) if trace.devices else 0)
        # A file may end after any plane; one that holds nothing is reported.
        assert bool(trace.warnings) == (size not in whole or size == 0)
    assert seen == set(range(31))


def test_a_cut_gzip_file(tmp_path: Path) -> None:
    data = gzip.compress(made(4000))
    path = tmp_path / "cut.xplane.pb.gz"
    path.write_bytes(data[: len(data) // 3])
    trace = xplane.read(Source(path, "xplane", compressed=True, size=len(data)))
    assert 0 < len(trace.devices[0].ops) < 4000
    assert any("compressed data is cut off" in warning for warning in trace.warnings)


def test_events_around_damaged_ones_are_read(tmp_path: Path) -> None:
    data = bytearray(made(8000))
    at = len(data) // 6
    data[at : at + 40] = b"\xff" * 40
    trace = load(tmp_path, bytes(data))
    assert 7000 < len(trace.devices[0].ops) < 8000
    assert len(trace.host) == 8000
    assert any("among the events damaged, and left out" in w for w in trace.warnings)


def test_a_damaged_event_costs_itself_only(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0")
    broken = [block(4, number(1, 1) + b"\x12" + varint(1 << 60)), block(4, b"\x08")]
    gpu.line("Stream #1", gpu.event("a", 0, 5), *broken, gpu.event("b", 9, 5))
    trace = load(tmp_path, space(gpu))
    assert [trace.names[i] for i in trace.devices[0].ops.name.tolist()] == ["a", "b"]
    assert trace.warnings == ["2 events damaged, and left out."]


def test_a_damaged_plane_costs_itself_only(tmp_path: Path) -> None:
    gpu, host = Plane("/device:GPU:0"), Plane("/host:CPU")
    gpu.line("Stream #1", gpu.event("k", 0, 5))
    host.line("python", host.event("f", 0, 5))
    broken = block(1, block(2, "/device:GPU:1") + b"\x1a" + varint(1 << 40) + b"\x00" * 40)
    trace = load(tmp_path, space(gpu) + broken + space(host))
    assert [device.index for device in trace.devices] == ["0"]
    assert len(trace.host) == 1
    [warning] = trace.warnings
    assert warning.startswith("Plane /device:GPU:1 is damaged at byte ")


def test_times_that_cannot_be(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0", events={"k": 1})
    times = ((0, -1), (1 << 62, 1), (-(1 << 63), 5), (0, (1 << 63) - 1))
    odd = (block(4, number(1, 1) + number(2, s) + number(3, d)) for s, d in times)
    gpu.line("Stream #1", *odd, gpu.event("k", 7, 5))
    trace = load(tmp_path, space(gpu))
    assert trace.devices[0].ops.start.tolist() == [7]
    assert trace.warnings == ["4 events with times that cannot be, and left out."]


def test_names_that_are_missing(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0")
    event = gpu.event("k", 0, 5, hlo_op=("ref", "x"), correlation_id=1)
    gpu.line("Stream #1", event)
    gpu.events, gpu.stats = {}, {"hlo_op": gpu.stats["hlo_op"]}
    trace = load(tmp_path, space(gpu))
    ops = trace.devices[0].ops
    assert trace.names[ops.name[0]] == trace.names[ops.hlo_op[0]] == "(no name in the file)"


@pytest.mark.parametrize("key", [-5, (1 << 20) - 1, 1 << 40])
def test_numbers_of_names_far_from_the_others(tmp_path: Path, key: int) -> None:
    gpu = Plane("/device:GPU:0", events={"far": key})
    gpu.line("Stream #1", gpu.event("k", 0, 5), gpu.event("far", 9, 5))
    trace = load(tmp_path, space(gpu))
    assert [trace.names[i] for i in trace.devices[0].ops.name.tolist()] == ["k", "far"]
    gpu = Plane("/device:GPU:0", events={"far": key})
    gpu.line("Stream #1", gpu.event("far", 9, 5))
    trace = load(tmp_path, space(gpu))
    assert [trace.names[i] for i in trace.devices[0].ops.name.tolist()] == ["far"]


@pytest.mark.parametrize("count", [odd.MOST_STATS, odd.MOST_STATS + 1])
def test_more_stats_than_any_event_has(tmp_path: Path, count: int) -> None:
    gpu = Plane("/device:GPU:0", events={"k": 1})
    stat = block(4, gpu.stat("correlation_id", 7))
    gpu.line("Stream #1", block(4, number(1, 1) + number(3, 5) + stat * count))
    trace = load(tmp_path, space(gpu))
    if count > odd.MOST_STATS:
        assert (trace.devices, trace.warnings) == ([], ["1 event damaged, and left out."])
    else:
        assert trace.devices[0].ops.correlation.tolist() == [7]


def test_planes_and_stats_without_end_take_no_time(tmp_path: Path) -> None:
    far = block(4, number(1, (1 << 20) - 1) + block(2, number(1, 1) + block(2, "z")))
    gpu = Plane("/device:GPU:0")
    gpu.line("Stream #1", gpu.event("k", 0, 5, correlation_id=3), key=1)
    began = time.monotonic()
    trace = load(tmp_path, block(1, gpu.encode() + far) * 10_000)
    assert len(trace.devices) == outline._FILLED
    assert any("is damaged" in warning for warning in trace.warnings)
    event = block(4, number(1, 1) + number(3, 9) + block(4, b"\x08\x05\x18\x01") * 340_000)
    gpu.lines = []
    gpu.line("Stream #1", *[event] * 3)
    assert load(tmp_path, space(gpu)).warnings == ["3 events damaged, and left out."]
    assert time.monotonic() - began < SECONDS


HOSTILE = {
    "numbers without end": b"\xff" * 200_000,
    "empty planes": block(1, b"") * 30_000,
    "a plane in a plane, and so on": b"".join(
        b"\x0a" + varint(50_000 - i * 6) for i in range(8000)
    ),
    "empty lines": block(1, block(2, "/host:CPU") + block(3, b"") * 10_000),
    "lines of nothing": block(1, block(2, "/host:CPU") + block(3, number(1, 1)) * 30_000),
    "empty events": block(1, block(2, "/device:GPU:0") + block(3, b"\x22\x00" * 100_000)),
    "events of nothing": block(
        1, block(2, "/device:GPU:0") + block(3, b"\x22\x02\x08\x01" * 90_000)
    ),
    "empty stats": block(
        1, block(2, "/host:CPU") + block(3, block(4, b"\x08\x01" + b"\x22\x00" * 60_000))
    ),
    "names of nothing": block(1, block(2, "/host:CPU") + block(4, b"") * 40_000),
    "a length beyond all": block(1, block(2, "/host:CPU") + b"\x1a" + varint((1 << 64) - 1)),
    "fields of other types": block(1, b"\x0d....\x11........\x15...." * 10_000),
    "groups": block(1, b"\x0b\x0c" * 100_000),
    "warnings": block(3, "x" * 1000) * 2000 + block(3, b"\x00\x01"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes(tmp_path: Path, data: bytes) -> None:
    began = time.monotonic()
    tracemalloc.start()
    load(tmp_path, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - began < SECONDS
    assert peak < 128 << 20


def test_more_than_any_profile_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "_LINES", 10)
    monkeypatch.setattr(tables, "_MOST", 1000)
    host = Plane("/host:CPU")
    for i in range(20):
        host.line("t", host.event(f"f{i}", 0, 5), key=i)
    trace = load(tmp_path, space(host) + made(5))
    assert len(trace.threads) == 10
    assert any("/host:CPU is damaged" in warning for warning in trace.warnings)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_mutations_of_a_real_profile(tmp_path: Path, path: Path) -> None:
    whole = gzip.decompress(path.read_bytes())
    rng = random.Random(path.name)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 20, 300))):
            data[rng.randrange(len(data))] = rng.choice((0, 0x0A, 0x22, 0x7F, 0x80, 0xFF))
        trace = load(tmp_path, bytes(data[: rng.choice((None, rng.randrange(len(data))))]))
        host = trace.host
        assert (host.start[1:] >= host.start[:-1]).all()
        assert (host.end >= host.start).all()
        assert len(host) == 0 or 0 <= host.thread.min() <= host.thread.max() < len(trace.threads)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for events in (20_000, 60_000):
        gpu = Plane("/device:GPU:0")
        text = "x" * 180
        event = gpu.event("k", 9, 5, correlation_id=7, annotation=text)
        gpu.line("Stream #1", event * events)
        data = space(gpu)
        path = tmp_path / "large.xplane.pb"
        path.write_bytes(data)
        tracemalloc.start()
        trace = xplane.read(Source(path, "xplane", compressed=False, size=len(data)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(trace.devices[0].ops) == events
    # 8 MB more of the file: only the columns grow, twice over while they are sorted.
    assert peaks[1] - peaks[0] < 40_000 * 2 * 60
    assert peaks[1] < 64 << 20
