"""Every figure of the contract against the exact truth of real traces, to the nanosecond."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from tests.traces.real import REAL, TRUTHS, path_of
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.kineto.record import Args

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


@cache
def answer_of(name: str) -> dict[str, Any]:
    return contract(analyse(path_of(name)))


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


@pytest.mark.parametrize("name", TRUTHS)
def test_every_figure_is_the_truth(name: str) -> None:
    truth = TRUTHS[name]
    answer = answer_of(name)
    found = {device["index"]: device for device in answer["devices"]}
    wanted = expected(truth)
    assert found.keys() == wanted.keys()
    for index, figures in wanted.items():
        assert {key: found[index][key] for key in figures} == figures
    if "events" in truth:
        assert answer["events"] == truth["events"]
    marks = truth.get("profiler_steps")
    if marks:
        assert answer["steps"]["count"] == len(marks)
        assert answer["steps"]["source"] == "markers"


@pytest.mark.parametrize("name", TRUTHS)
def test_every_budget_adds_up(name: str) -> None:
    answer = answer_of(name)
    of_devices = [device["budget"] for device in answer["devices"]]
    for budget in (answer["budget"], *of_devices):
        assert set(budget["slices"]) == set(map(str, Slice))
        assert sum(budget["slices"].values()) == budget["total_ns"]
        for part, labels in budget["details"].items():
            assert sum(labels.values()) == budget["slices"][part]
    assert answer["budget"]["total_ns"] == sum(b["total_ns"] for b in of_devices)
    for device in answer["devices"]:
        slices = device["budget"]["slices"]
        assert device["budget"]["total_ns"] == device["span_ns"]
        # A picosecond clock is rounded once for a figure, and once for a whole budget.
        slack = 0 if answer["format"] == "kineto" else len(slices)
        assert abs(slices["compute"] - device["compute_ns"]) <= slack
        idle = sum(ns for part, ns in slices.items() if Slice(part).idle)
        assert abs(idle - device["idle_ns"]) <= slack


def test_the_reduced_traces_keep_every_field_that_is_read() -> None:
    read = {field.encode_name for field in msgspec.structs.fields(Args)}
    source = (REAL.parent / "reduce.py").read_text()
    assert all(f'"{name}"' in source for name in read), "reduce.py drops what the reader decodes"
