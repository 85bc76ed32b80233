"""The rule gpu_error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.rules.gpu_error import MEANINGS
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "gpu_error"
GPUS = tuple(SeenGpu(str(n), "NVIDIA H200", owned=n == 1, means={}) for n in range(2))
GONE = {"text": "GPU 1 is lost: the driver no longer reaches it.", "severity": "high"}


def _xid(code: int, gpu: int = 1) -> dict[str, Any]:
    return {"code": code, "text": f"XID {code} on GPU {gpu}.", "severity": "high"}


def _window(**events: Any) -> Window:
    given = {kind: tuple(some) for kind, some in events.items()}
    return window(gpus=GPUS, events=given)


def test_a_gpu_that_fell_off_the_bus() -> None:
    finding = found(NAME, _window(xid=[_xid(79)], gpu_lost=[GONE]))
    assert finding.title == "GPU 1: it fell off the bus (XID 79)"
    assert finding.severity is Severity.HIGH
    assert finding.gain is None
    said = {each.name: each.value for each in finding.evidence}
    assert said["errors"] == 2
    assert "Restart the machine" in str(said["what to do first"])


def test_a_gpu_that_is_lost_without_a_word() -> None:
    finding = found(NAME, _window(gpu_lost=[GONE]))
    assert finding.title == "GPU 1: it is lost: the driver no longer reaches it"


def test_the_error_is_reported_and_not_what_followed_from_it() -> None:
    finding = found(NAME, _window(xid=[_xid(45), _xid(31)]))
    assert finding.title is not None
    assert "XID 31" in finding.title


def test_an_error_that_nobody_knows() -> None:
    finding = found(NAME, _window(xid=[_xid(999)]))
    assert finding.title == "GPU 1: the driver reported an error (XID 999)"


def test_an_error_of_somebody_elses_gpu() -> None:
    assert found(NAME, _window(xid=[_xid(48, gpu=0)])).severity is Severity.MEDIUM


@pytest.mark.parametrize("code", sorted(MEANINGS))
def test_every_meaning_has_a_next_step(code: int) -> None:
    meaning, then = MEANINGS[code]
    assert meaning
    assert then.endswith(".")


def test_a_gpu_without_errors() -> None:
    assert judge(NAME, _window()) is None


def test_a_job_whose_gpus_nobody_read() -> None:
    assert cannot_judge(NAME, window())


@pytest.mark.parametrize("code", [31, 48])
def test_a_lost_gpu_comes_before_any_error(code: int) -> None:
    finding = found(NAME, _window(xid=[_xid(code)], gpu_lost=[GONE]))
    assert finding.title == "GPU 1: it is lost: the driver no longer reaches it"
    said = {each.name: each.value for each in finding.evidence}
    assert "Restart the machine" in str(said["what to do first"])
