"""Real profiles of GPUs: every device to the picosecond, every event that another reader finds."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from tests.traces.real import TRUTHS, XPLANE, path_of
from tests.traces.xplane_bytes import reread
from whyidle.monitor.traces import xplane
from whyidle.monitor.traces.model import Device
from whyidle.monitor.traces.opening import identify


def figures(device: Device) -> dict[str, int]:
    """The union of what ran, by hand: the reach of all operations before each one."""
    start, reach = device.ops.start, np.maximum.accumulate(device.ops.end)
    span = int(reach[-1] - start[0])
    idle = int(np.maximum(start[1:] - reach[:-1], 0).sum())
    return {"span_ps": span, "busy_ps": span - idle, "idle_ps": idle, "n": len(start)}


@pytest.mark.parametrize("name", XPLANE)
def test_every_device_to_the_picosecond(name: str) -> None:
    truth = TRUTHS[name]
    trace = xplane.read(identify(path_of(name)))
    wanted = {
        plane.rpartition(":")[2]: {
            key: plane_truth[key] for key in ("span_ps", "busy_ps", "idle_ps")
        }
        | {"n": plane_truth["n_device_events"]}
        for plane, plane_truth in truth["planes"].items()
        if plane_truth.get("busy_ps")
    }
    assert {device.index: figures(device) for device in trace.devices} == wanted
    assert trace.events == sum(plane_truth["n_events"] for plane_truth in truth["planes"].values())
    assert trace.warnings == []


@pytest.mark.parametrize("name", XPLANE)
def test_every_event_that_another_reader_finds(name: str) -> None:
    path = path_of(name)
    trace, planes = xplane.read(identify(path)), reread(gzip.decompress(path.read_bytes()))
    origin = (trace.origin_ns or 0) * 1000
    for device in trace.devices:
        wanted = [
            (start - origin, end - origin, event, stats.get("correlation_id", -1))
            for line, event, start, end, stats in planes[f"/device:GPU:{device.index}"]
            if line.startswith("Stream #")
        ]
        ops = device.ops
        found = zip(
            ops.start.tolist(),
            ops.end.tolist(),
            [trace.names[i] for i in ops.name.tolist()],
            ops.correlation.tolist(),
            strict=True,
        )
        assert sorted(found) == sorted(wanted)
    spans = [
        (start - origin, end - origin, event, line)
        for line, event, start, end, stats in planes["/host:CPU"]
        if end > start or "correlation_id" in stats
    ]
    labels = [thread.label for thread in trace.threads]
    host = trace.host
    rows = zip(
        host.start.tolist(),
        host.end.tolist(),
        [trace.names[i] for i in host.name.tolist()],
        [labels[i] for i in host.thread.tolist()],
        strict=True,
    )
    assert sorted(rows) == sorted(spans)
