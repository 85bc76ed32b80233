"""Files that are cut off, damaged or hostile: what can be read is read, the rest is reported."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from tests.traces.kineto_text import document, event, kernel, load, plain
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.traces import interning, loading
from whyidle.monitor.traces.kineto import document as documents
from whyidle.monitor.traces.model import Trace

EVENTS = [
    kernel(f"k{at}", at, correlation=at) if at % 2 else event("cpu_op", f"op{at}", at)
    for at in range(12)
]
WHOLE = document(EVENTS, distributedInfo={"rank": 0})[:-1] + ', "baseTimeNanoseconds": 5}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def names(trace: Trace) -> set[str]:
    found = plain(trace)
    ops = {row[0] for device in found["devices"] for row in device[5]}
    return ops | {row[4] for row in found["host"]}


def read(path: Path, content: bytes, chunk: int = 1 << 20) -> Trace | None:
    """Read what may be no trace any more; None if a sentence says so."""
    try:
        return load(path, content, chunk)
    except UsageProblem:
        return None


@pytest.mark.parametrize("chunk", [40, 1 << 20])
@pytest.mark.parametrize("text", [WHOLE, json.dumps(EVENTS)], ids=["object", "list"])
def test_a_file_cut_off_anywhere_gives_all_events_before(path: Path, text: str, chunk: int) -> None:
    ends = [text.index(f'"{e["name"]}"') + len(json.dumps(e)) for e in EVENTS]
    for size in range(1, len(text)):
        trace = read(path, text[:size].encode(), chunk)
        if trace is None:
            assert size <= text.index('"ph"') + 4
            continue
        assert [f"{w}" for w in trace.warnings if "damaged" in w] == []
        assert trace.warnings or size == len(text.rstrip("]"))
        # An event ends some bytes before or after where its text alone would.
        certain = {e["name"] for e, end in zip(EVENTS, ends, strict=True) if end + 150 < size}
        assert certain <= names(trace)


def test_a_cut_off_file_says_so_once(path: Path) -> None:
    (said,) = load(path, WHOLE[: WHOLE.index('"k7"')]).warnings
    assert said == "The file is cut off after event 7: what follows is missing."
    assert load(path, WHOLE[: WHOLE.index('"k7"')]).origin_ns is None


@pytest.mark.parametrize("chunk", [40, 1 << 20])
def test_gzip_cut_off_anywhere_is_told(path: Path, chunk: int) -> None:
    packed = gzip.compress(WHOLE.encode())
    for size in range(1, len(packed)):
        trace = read(path, packed[:size], chunk)
        if trace is not None:
            assert "the compressed data is cut off" in trace.warnings[0]
    assert names(load(path, packed[:-8])) == {e["name"] for e in EVENTS}


@pytest.mark.parametrize("junk", [b"x", b'"', b"}", b"{", b"[", b"\\", b",", b"\xff\x00", b"},{"])
@pytest.mark.parametrize("chunk", [60, 400, 1 << 20])
def test_damage_costs_the_event_that_has_it(path: Path, junk: bytes, chunk: int) -> None:
    at = WHOLE.index('"op6"') + 5
    trace = load(path, WHOLE[:at].encode() + junk + WHOLE[at:].encode(), chunk)
    lost = {e["name"] for e in EVENTS} - names(trace)
    # A quote turns text inside out, up to where some boundary makes sense again.
    assert len(lost) <= 3
    reported = [
        w for w in trace.warnings if any(a in w for a in ("damaged", "wrong type", "guess"))
    ]
    assert reported or not lost


def test_a_tail_of_garbage_costs_no_event(path: Path) -> None:
    for tail in (b"\x00\xff" * 500, b"]}]}", b"trailing text", b'{"ph": "X"}'):
        trace = load(path, WHOLE.encode() + tail)
        assert names(trace) == {e["name"] for e in EVENTS}


def test_a_header_that_cannot_be_read(path: Path) -> None:
    trace = load(path, WHOLE.replace('"rank": 0', '"rank": 0 0'))
    assert names(trace) == {e["name"] for e in EVENTS}
    assert trace.devices[0].rank is None
    assert trace.warnings == ["What the file says before its events could not be read."]


@pytest.mark.parametrize("chunk", [64, 1 << 20])
def test_flipped_bits_are_never_a_traceback(path: Path, chunk: int) -> None:
    text = bytearray(document(EVENTS[:4]).encode())
    for at in range(len(text)):
        for bit in (1, 4, 32, 128):
            text[at] ^= bit
            trace = read(path, bytes(text), chunk)
            assert trace is None or trace.events <= 6
            text[at] ^= bit


@given(st.binary(max_size=200), st.integers(1, 50))
@examples(200)
def test_any_bytes_are_never_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, chunk: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.json"
    for begin in (b'{"traceEvents": [', b"[{", b'[{"ph":"X"},'):
        read(path, begin + junk, chunk)


HOSTILE = {
    "depth": '{"traceEvents": [' + "[" * 3_000_000,
    "depth of objects": '{"traceEvents": [' + '{"a":' * 1_000_000,
    "depth in the header": '{"a": ' + "[" * 3_000_000 + '"traceEvents": [{}',
    "one string": '[{"name": "' + "x" * 3_000_000,
    "backslashes": '[{"name": "' + "\\" * 3_000_000,
    "blanks": '{"traceEvents": [{}' + " " * 3_000_000,
    "braces": "[{}" + "},{" * 500_000,
    "objects in one event": '[{"ph": "X", "a": [' + "{}, " * 500_000,
    "fake keys": "{" + '"traceEvents": [ ' * 100_000,
    "digits": '[{"ph": "X", "cat": "kernel", "ts": ' + "9" * 3_000_000,
    "small numbers": "[{}," + "1," * 1_000_000 + "1]",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_costs_little(path: Path, text: str) -> None:
    began = time.monotonic()
    trace = read(path, text.encode())
    assert time.monotonic() - began < 20
    assert trace is None or trace.warnings


# -------------------------------------------------------------------------------- the limits


def test_too_many_damaged_places_end_the_reading(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MOST_DAMAGED", 3)
    good, bad = json.dumps(EVENTS[1]), '{"ph": "X",, }'
    trace = load(path, "[" + ",".join([good, bad] * 6) + "]")
    assert trace.warnings[0].endswith("only: it is damaged in too many places.")


def test_an_event_that_is_too_long_is_left_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long: Any = {**EVENTS[2], "args": {"a": "y" * 4000}}
    text = document([*EVENTS[:2], long, *EVENTS[3:]])
    assert names(load(path, text, 100)) == {e["name"] for e in EVENTS}
    monkeypatch.setattr(documents, "MOST_EVENT", 1000)
    trace = load(path, text, 100)
    assert names(trace) >= {e["name"] for e in EVENTS[3:]}
    assert any("damaged" in warning for warning in trace.warnings)


def test_too_many_names_share_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning.Names, "left", 412)
    trace = load(path, WHOLE)
    assert names(trace) == {
        *("op0", "op2", "op4", "op6", "k1", "k3", "k5", "k7"),
        interning.OTHERS,
    }
    assert "too many different names" in trace.warnings[0]


def test_a_name_without_end_is_cut(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning, "LONGEST_NAME", 10)
    trace = load(path, document([kernel("k" * n, n) for n in (9, 10, 11, 500)]))
    assert names(trace) == {"k" * 9, "k" * 10}


def test_too_many_threads_and_devices_share_the_last(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whyidle.monitor.traces.kineto.rows.MOST_THREADS", 3)
    monkeypatch.setattr("whyidle.monitor.traces.kineto.rows.MOST_DEVICES", 2)
    events = [kernel("k", at, device=at) for at in range(5)]
    events += [event("cpu_op", "op", at, tid=at) for at in range(5)]
    trace = load(path, document(events))
    assert [len(device.ops) for device in trace.devices] == [1, 4]
    assert len(trace.threads) == 3
    assert len(trace.warnings) == 2


@pytest.mark.parametrize("gpus", [[{"id": 0, "name": "V100"}], []])
def test_of_a_file_cut_off_before_its_gpus_the_cpu_is_no_device(
    path: Path, gpus: list[dict[str, Any]]
) -> None:
    operators = [event("cpu_op", f"op{at}", 10 * at, 5) for at in range(40)]
    text = document([*operators, kernel("k", 500)], deviceProperties=gpus)
    path.write_text(text[: text.index('"op30"')])
    trace = loading.load(path)
    assert [device.kind for device in trace.devices] == ([] if gpus else ["cpu"])
    assert any("cut off" in warning for warning in trace.warnings)
