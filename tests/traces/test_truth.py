"""Every figure of the contract against the exact truth of real traces, to the nanosecond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whyidle.monitor.slices import Slice
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

SHARED = Path(__file__).parents[3] / "shared" / "traces"
TRUTHS = sorted((SHARED / "truth").glob("*.json"))
COLUMNS = {
    "span_ns": "span_ns",
    "busy_ns": "busy_ns",
    "idle_ns": "idle_ns",
    "compute_ns": "compute_union_ns",
    "comm_ns": "comm_union_ns",
    "exposed_comm_ns": "exposed_comm_ns",
    "copy_ns": "mem_union_ns",
    "exposed_copy_ns": "exposed_mem_ns",
    "kernels": "n_kernels",
    "comm_kernels": "n_comm",
}

pytestmark = pytest.mark.skipif(not TRUTHS, reason="the shared traces with their truth are absent")


def expected(truth: dict[str, Any]) -> dict[str, dict[str, int]]:
    if "devices" in truth:
        return {
            index: {ours: device[theirs] for ours, theirs in COLUMNS.items()}
            | {"copies": device["n_memcpy"] + device["n_memset"]}
            for index, device in truth["devices"].items()
        }
    return {
        name.rpartition(":")[2]: {
            f"{part}_ns": round(plane[f"{part}_ps"] / 1000) for part in ("span", "busy", "idle")
        }
        for name, plane in truth["planes"].items()
        if name.startswith("/device:") and plane.get("busy_ps")
    }


@pytest.mark.parametrize("path", TRUTHS, ids=lambda path: path.stem)
def test_every_figure_is_the_truth(path: Path) -> None:
    truth = json.loads(path.read_text())
    answer = contract(analyse(SHARED / truth["file"]))
    found = {device["index"]: device for device in answer["devices"]}
    wanted = expected(truth)
    assert found.keys() == wanted.keys()
    for index, figures in wanted.items():
        assert {name: found[index][name] for name in figures} == figures
    if "events" in truth:
        assert answer["events"] == truth["events"]
    marks = truth.get("profiler_steps")
    if marks:
        assert answer["steps"]["count"] == len(marks)
        assert answer["steps"]["source"] == "markers"


@pytest.mark.parametrize("path", TRUTHS, ids=lambda path: path.stem)
def test_every_budget_adds_up(path: Path) -> None:
    answer = contract(analyse(SHARED / json.loads(path.read_text())["file"]))
    of_devices = [device["budget"] for device in answer["devices"]]
    for budget in (answer["budget"], *of_devices):
        assert set(budget["slices"]) == set(map(str, Slice))
        assert sum(budget["slices"].values()) == budget["total_ns"]
        for name, parts in budget["details"].items():
            assert sum(parts.values()) == budget["slices"][name]
    assert answer["budget"]["total_ns"] == sum(b["total_ns"] for b in of_devices)
    for device in answer["devices"]:
        slices = device["budget"]["slices"]
        assert device["budget"]["total_ns"] == device["span_ns"]
        # A picosecond clock is rounded once for a figure, and once for a whole budget.
        slack = 0 if answer["format"] == "kineto" else len(slices)
        assert abs(slices["compute"] - device["compute_ns"]) <= slack
        idle = sum(ns for name, ns in slices.items() if Slice(name).idle)
        assert abs(idle - device["idle_ns"]) <= slack
