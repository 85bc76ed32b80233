"""Files that hold several processes, each of which counts its own calls."""

from __future__ import annotations

from pathlib import Path

from tests.traces.kineto_text import Record, document, event, kernel, load
from whyidle.monitor.traces import launches
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.model import Trace


def rank(pid: int, device: int, *times: float, lag: float = 20, first: int = 5) -> list[Record]:
    """Launches of one process, and what they launch; ids begin at ``first`` in each process."""
    found: list[Record] = []
    for i, ts in enumerate(times, first):
        call = event("cuda_runtime", "cudaLaunchKernel", ts, 10, correlation=i, tid=pid)
        found += [call | {"pid": pid}, kernel("k", ts + lag, 5, device=device, correlation=i)]
    return found


def read(path: Path, *ranks: list[Record]) -> Trace:
    return load(path / "trace.json", document([record for one in ranks for record in one]))


def lags(trace: Trace) -> list[list[int]]:
    matched = [launches.match(trace, device.ops) for device in trace.devices]
    pairs = zip(trace.devices, matched, strict=True)
    return [(device.ops.start - found.start).tolist() for device, found in pairs]


def test_each_device_is_matched_with_the_calls_of_its_process(tmp_path: Path) -> None:
    trace = read(tmp_path, rank(1, 0, 100, 2000), rank(2, 1, 3100, 5000))
    assert [device.pid for device in trace.devices] == [1, 2]
    assert lags(trace) == [[20_000] * 2] * 2
    assert trace.warnings == []


def test_the_process_of_most_ids_counts(tmp_path: Path) -> None:
    trace = read(tmp_path, rank(1, 0, 100, 200, 300, first=8), rank(2, 1, 101, 201, 301))
    assert [device.pid for device in trace.devices] == [1, 2]
    assert lags(trace) == [[20_000] * 3] * 2


def test_one_that_drives_another_device_does_not_drive_this(tmp_path: Path) -> None:
    # Device 1 begins so late that the time from either call is about the same.
    trace = read(tmp_path, rank(1, 0, 100, 200), rank(2, 1, 130, 230, lag=900))
    assert [device.pid for device in trace.devices] == [1, 2]
    assert trace.warnings == []


def test_where_nothing_tells_the_processes_apart_a_warning_says_so(tmp_path: Path) -> None:
    trace = read(tmp_path, rank(1, 0, 100, 200, lag=900), rank(2, 1, 101, 201, lag=900))
    (warning,) = trace.warnings
    assert warning.endswith("which of them launched that of device 0, 1 is a guess.")


def test_ids_of_one_process_each_are_matched_as_ever(tmp_path: Path) -> None:
    both = [*rank(1, 0, 100, 200), *rank(2, 0, 300, first=50)]  # two processes, one device
    trace = read(tmp_path, both)
    assert trace.devices[0].pid == 1
    assert lags(trace) == [[20_000] * 3]


def test_places_do_not_exceed_the_slices_of_the_answer(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_X.__next__"
    events = [event("python_function", "train.py(3): main", 0, 20_000)]
    for step in (0, 1):
        start = step * 10_000
        events += [
            event("user_annotation", f"ProfilerStep#{step}", start, 10_000),
            event("user_annotation", loader, start, 4000),
            event("cuda_runtime", "cudaLaunchKernel", start + 5000, 5, correlation=step),
            kernel("k", start + 5010, 3000, correlation=step),
        ]
    path = tmp_path / "trace.json"
    path.write_text(document(events))
    answer = contract(analyse(path))
    slices = answer["budget"]["slices"]
    assert slices["idle_input"] == 4_000_000
    assert {where["slice"] for where in answer["where"]} >= {"idle_input", "compute"}
    assert all(where["ns"] <= slices[where["slice"]] for where in answer["where"])
