"""What real files hold that no standard allows: the same trace comes out, however it is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.traces.kineto_text import document, event, kernel, load, plain
from whyidle.monitor.core.errors import UsageProblem

A = kernel("alpha", 10, 2, correlation=1)
B = event("cpu_op", "beta", 11, 3)
Z = kernel("omega", 20, 5, correlation=2)
WRONG = "{} could not be read: values of the wrong type."
DAMAGED = "{} of the file could not be read: it is damaged."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def names(trace: dict[str, Any]) -> list[str]:
    ops = [row[0] for device in trace["devices"] for row in device[5]]
    return sorted(ops + [row[4] for row in trace["host"]])


def raw(*events: Any) -> str:
    """A file of events that are JSON already, or are made JSON."""
    texts = [e if isinstance(e, str) else json.dumps(e) for e in events]
    return '{"schemaVersion": 1, "traceEvents": [\n' + ",\n ".join(texts) + '], "traceName": "t"}'


def edited(old: str, new: str, source: Any = B) -> str:
    text = json.dumps(source)
    assert old in text
    return text.replace(old, new)


# What the file holds, the names that are read, and what is said.
READ_IN_FULL: dict[str, str | bytes] = {
    "as written": document([A, B, Z]),
    "packed": json.dumps({"traceEvents": [A, B, Z]}, separators=(",", ":")),
    "a bare list": json.dumps([A, B, Z]),
    "a bare list, indented": json.dumps([A, B, Z], indent=4),
    "a list that is not closed, as Chrome allows": json.dumps([A, B, Z])[:-1] + ",\n",
    "a byte order mark": b"\xef\xbb\xbf" + document([A, B, Z]).encode(),
    "a comma too many": document([A, B, Z]).replace(" }\n ]", " },\n ]"),
    "padded with zeros": document([A, B, Z]).encode() + b"\0" * 600,
    "keys before and after": document([A, B, Z], info={"a": [{}, {}]})[:-1] + ', "x": [{}, {}]}',
    "the key within a string": document([A, B, Z], note='{"traceEvents": [{"ph": "X"}, {'),
    "the key further inside": document([A, B, Z], inner={"traceEvents": [{"ph": "X"}, {}]}),
    "names that look like the end of an event": raw(
        edited("beta", "beta"), A, Z, {"ph": "i", "name": "f(){}, {}], }"}
    ),
    "lists of objects in an event": raw(
        A, {**B, "args": {"shapes": [{"a": 1}, {"b": [{}, {}]}, {}]}}, Z
    ),
    "another order of keys": raw(*(json.dumps(e, sort_keys=True) for e in (A, B, Z))),
    "keys twice": raw(A, B, edited('"dur": 5', '"dur": 1, "dur": 5', Z)),
    "phases of all kinds": raw(A, B, Z, *({"ph": ph, "ts": []} for ph in "BEsftiIMCbenNODPcR")),
    "a phase that nobody knows": raw(A, B, Z, {"ph": "?", "name": []}, {"name": 5}),
    "args that are null": raw(A, edited('"args": {}', '"args": null'), Z),
    "numbers as text": raw(edited('"ts": 10, "dur": 2', '"ts": "10", "dur": "2.000"', A), B, Z),
    "control characters in args": raw(A, edited('"args": {}', '"args": {"k": "a\x01\n\tb"}'), Z),
    "text that is no UTF-8 in args": raw(
        A, edited('"args": {}', '"args": {"k": "a\udcff"}'), Z
    ).encode(errors="surrogateescape"),
    "half a surrogate pair in args": raw(A, edited('"args": {}', r'"args": {"k": "a\ud83d"}'), Z),
    "paths of Windows in args": raw(A, edited('"args": {}', r'"args": {"k": "C:\Users\x"}'), Z),
    "numbers that are none": raw(
        A, edited('"args": {}', '"args": {"a": nan, "b": [-inf, NaN], "c": Infinity}'), Z
    ),
    "numbers beyond 64 bits": raw(
        edited('"correlation": 1', '"correlation": 1, "id": 99999999999999999999999', A), B, Z
    ),
    "very many digits in args": raw(A, edited('"args": {}', f'"args": {{"k": {"9" * 5000}}}'), Z),
}


@pytest.mark.parametrize("text", READ_IN_FULL.values(), ids=READ_IN_FULL.keys())
def test_nothing_is_lost_wherever_the_file_is_cut(path: Path, text: str | bytes) -> None:
    wanted = plain(load(path, document([A, B, Z])))
    wanted.pop("events")
    cuts = [*range(1, 40), 63, 64, 65, 100, 128, 200, 256, 1000, 1 << 20]
    for chunk in cuts:
        found = plain(load(path, text, chunk))
        assert found.pop("events") >= 3
        found["warnings"] = [w for w in found["warnings"] if "cut off" not in w]
        assert found == wanted, chunk


LEFT_OUT: dict[str, tuple[str, list[str], list[str]]] = {
    "names of another type": (raw(A, edited('"beta"', "5"), Z), ["alpha", "omega"], ["1 event"]),
    "categories of another type": (
        raw(A, edited('"cpu_op"', "[]"), edited('"cpu_op"', "{}"), Z),
        ["alpha", "omega"],
        ["2 events"],
    ),
    "times that are none": (
        raw(
            *(edited('"ts": 11', f'"ts": {ts}') for ts in ('""', '"x"', "null", "[]", "true")),
            *(edited('"ts": 11', f'"ts": {ts}') for ts in ('"NaN"', '"1e999999999"', "1e999")),
            *(edited('"ts": 11', f'"ts": {ts}') for ts in ("9" * 30, "-9e18", "9" * 5000)),
            *(edited('"dur": 3', f'"dur": {dur}') for dur in ("9" * 19, '"inf"', "null", "1e99")),
            *(A, Z),
        ),
        ["alpha", "omega"],
        ["15 events"],
    ),
    "things that are no events": (
        raw(A, 1, None, '"x"', [], [[]], Z),
        ["alpha", "omega"],
        ["5 events"],
    ),
    "args of another type": (
        raw(A, *(edited('"args": {}', f'"args": {a}') for a in ("[]", "1", '{"stream": []}')), Z),
        ["alpha", "omega"],
        ["3 events"],
    ),
}


@pytest.mark.parametrize(("text", "left", "said"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_what_is_of_the_wrong_type_is_left_out_and_counted(
    path: Path, text: str, left: list[str], said: list[str]
) -> None:
    for chunk in (7, 50, 300, 1 << 20):
        found = plain(load(path, text, chunk))
        assert names(found) == left
        assert found["warnings"] == [WRONG.format(what) for what in said]


def test_absolute_times_with_decimals_keep_every_nanosecond(path: Path) -> None:
    starts = [
        "1682725898236567.123",
        "1682725898236567.124",
        "1682725898236570",
        "1682725898236571.0",
    ]
    events = [
        edited('"ts": 1, "dur": 1', f'"ts": {ts}, "dur": {dur}', kernel(f"k{at}", 1))
        for at, (ts, dur) in enumerate(zip(starts, ["0.001", "0.5", "7", '"1.25"'], strict=True))
    ]
    for chunk in (50, 200, 1 << 20):
        trace = load(path, raw(*events), chunk)
        ops = trace.devices[0].ops
        assert trace.origin_ns == 1682725898236567123
        assert ops.start.tolist() == [0, 1, 2877, 3877]
        assert (ops.end - ops.start).tolist() == [1, 500, 7000, 1250]


def test_times_since_a_base_of_three_months_are_exact_as_floats(path: Path) -> None:
    # The newest files hold up to 91 days of microseconds; a float has half a nanosecond there.
    start = 7_889_237_999_999
    events = [
        edited('"ts": 1,', f'"ts": {start}.{part:03},', kernel("k", 1, correlation=part))
        for part in range(1000)
    ]
    trace = load(path, raw(*events).replace('"traceName": "t"', '"baseTimeNanoseconds": 10'))
    assert trace.devices[0].ops.start.tolist() == list(range(1000))
    assert trace.origin_ns == start * 1000 + 10


def test_ids_beyond_64_bits_are_none(path: Path) -> None:
    odd = {1: "99999999999999999999", 2: "18446744073709551615", 3: '"17"', 4: "2.0", 5: "null"}
    events = [
        edited('"correlation": 1', f'"correlation": {value}', kernel("k", at, correlation=1))
        for at, value in odd.items()
    ]
    ops = load(path, raw(*events)).devices[0].ops
    assert ops.correlation.tolist() == [-1, -1, 17, 2, -1]


def test_names_are_mended_not_lost(path: Path) -> None:
    odd = {
        "a\x01b": "a b",
        "c\udcffd": "c\ufffdd",
        r"e\ud800f": "e\ufffdf",
        r"C:\Users": "C:\\Users",
        r"\ud83d\ude00 \u00e9\\": "\U0001f600 \u00e9\\",
        "(1,)": "(1,)",
    }
    text = raw(*(edited("beta", name) for name in odd)).encode(errors="surrogateescape")
    assert names(plain(load(path, text))) == sorted(odd.values())


def test_a_duration_below_zero_is_taken_as_none(path: Path) -> None:
    found = plain(load(path, document([A, event("cpu_op", "back", 12, -5), Z])))
    assert found["host"][0][:2] == (2000, 2000)
    assert found["warnings"] == ["1 event ended before the start: taken as without duration."]


def test_deep_nesting_costs_only_the_event_that_has_it(path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    text = raw(A, edited('"args": {}', f'"args": {{"a": {deep}}}'), Z)
    found = plain(load(path, text))
    assert names(found) == ["alpha", "omega"]
    assert found["warnings"] == [DAMAGED.format("1 place")]


@pytest.mark.parametrize("text", ["[]", '{"traceEvents": []}', '{"traceEvents": [ ], "a": 1}'])
def test_no_events_are_no_error(path: Path, text: str) -> None:
    from whyidle.monitor.traces import kineto  # noqa: PLC0415
    from whyidle.monitor.traces.opening import Source  # noqa: PLC0415

    path.write_text(text)
    trace = kineto.read(Source(path, "kineto", compressed=False, size=len(text)), chunk=3)
    assert (trace.events, trace.warnings) == (0, [])


@pytest.mark.parametrize("text", ['{"a": "' + "b" * 70_000 + '"}', '{"traceEvents": null, "a": 1}'])
def test_json_without_events_is_told_in_a_sentence(path: Path, text: str) -> None:
    with pytest.raises(UsageProblem, match="without a list of traceEvents"):
        load(path, text, 1000)


def test_a_trace_of_another_program_is_told_apart(path: Path) -> None:
    text = raw({"ph": "X", "name": "jit_step", "pid": 1, "tid": 1, "ts": 1, "dur": 1})
    (said,) = load(path, text).warnings
    assert ".xplane.pb" in said


def test_records_that_the_profiler_dropped_are_counted(path: Path) -> None:
    said = [
        "WARNING:2024-05-22 17:15:22 29:29 CuptiActivityApi.cpp:300] Dropped 1200 activity records",
        "WARNING:2024-05-22 17:15:22 29:29 x.cpp:1] trace_id not hex",
        17,
    ]
    trace = load(path, document([A, B, Z], WARNING=said, ERROR=["Dropped 34 activity records"]))
    assert trace.dropped == 1234
    assert load(path, document([A, B, Z], WARNING="Dropped 5 activity records")).dropped == 0
