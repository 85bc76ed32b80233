"""The live view at three sizes with one and with eight GPUs, as screens that were looked at.

``WHYIDLE_UPDATE=1`` writes the screens again.
"""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs
from rich.console import Console

from tests.conftest import ROOT
from tests.render.snapshots import drawn, snapshot
from tests.render.training import FACTS, PACE, WAITS, trace, worker
from tests.rules.windows import recorded
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import CalledPlaceJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.processes.process import Identity, JobEvent, ProcessKey
from whyidle.monitor.recording.faults import FINDING
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render.live import LiveView, keyboard
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.ownership import Owned

SCREENS: Final = ROOT / "tests" / "data" / "screens"
SIZES: Final = ((80, 24), (120, 40), (200, 50))
GIB: Final = 2.0**30
LINK: Final = f"http://127.0.0.1:8765/?token={'x' * 43}"
TICKS: Final = 40
IDENTITY: Final = Identity(
    ProcessKey(4001, 1), 1, "python", "python", "/job/train.py", "me", "3.12",
    {"torch": "2.13.0"}, None, "R",
)  # fmt: skip


def _gpu(index: int, tick: int) -> Reading:
    # One of eight does nothing.
    used = 0.02 if index == 5 else 0.35 + 0.05 * ((tick + index) % 4)
    values = {
        m.GPU_UTILISATION: used, m.GPU_SM_ACTIVITY: used / 2, m.GPU_TENSOR_ACTIVITY: used / 4,
        m.GPU_DRAM_ACTIVITY: used / 3, m.GPU_PCIE_RX: 1.3e9, m.GPU_PCIE_TX: 4e8,
        m.GPU_POWER: 200 + 400 * used, m.GPU_SM_CLOCK: 1830.0, m.GPU_TEMPERATURE: 48.0 + index,
        m.GPU_MEMORY_USED: 57 * GIB, m.GPU_MEMORY_TOTAL: 140 * GIB,
    }  # fmt: skip
    return Reading(values)


def _near(place: CalledPlaceJson) -> CalledPlaceJson:
    """Return a place without the folder that the tests are in."""
    return structs.replace(place, file=f"/job/{Path(place.file).name}")


def moment(gpus: int, tick: int = TICKS, **known: Any) -> Snapshot:
    """Return a job that waits for its input, on so many GPUs."""
    answer = as_json(diagnose(recorded("input_starved/before_torch")))
    finding = structs.replace(
        answer.findings[0], where=[_near(x) for x in answer.findings[0].where]
    )
    names = dict.fromkeys(GpuFacts.__dataclass_fields__)
    facts = [{**names, "index": str(n), "name": "NVIDIA H200"} for n in range(gpus)]
    members = [worker(rank if gpus > 1 else None) for rank in range(gpus)]
    given = {
        "job": Reading(
            PACE | WAITS | {
                m.JOB_STEPS: 41.0 + tick % 5, m.JOB_CPU: 1.5 + 0.1 * (tick % 3),
                m.JOB_RSS: 3 * GIB, m.JOB_PROCESSES: gpus, m.JOB_THREADS: 24, m.JOB_DISK_READ: 2e6,
            }
        ),
        "host": Reading(
            {m.HOST_CPU: 0.31, m.HOST_CORES: 16, m.HOST_MEMORY_AVAILABLE: 90 * GIB,
             m.HOST_MEMORY_TOTAL: 128 * GIB}
        ),
        "elapsed": 47.0,
        "facts": tuple(GpuFacts(**each) for each in facts),
        "gpus": {str(n): GpuReading(_gpu(n, tick), processes={}) for n in range(gpus)},
        "owned": Owned(frozenset(map(str, range(gpus))), "the driver lists it", sure=True),
        "gpu_problem": None,
        "traces": trace(compute=38, idle_input=45, idle_dispatch=17),
        "findings": (finding, *answer.findings[1:]),
        "identity": IDENTITY,
        "verdict": answer.verdict,
        **known,
    }  # fmt: skip
    return snapshot(*members, **given)


def view_of(gpus: int, width: int, height: int, **console: Any) -> LiveView:
    view = LiveView(
        everything=False,
        console=Console(width=width, height=height, file=io.StringIO(), highlight=False, **console),
    )
    view.note = f"The dashboard: {LINK}"
    view._has_keys = True
    happened = (JobEvent("trace_taken", ProcessKey(4001, 1), "A trace of 0.25 s by the agent."),)
    for tick in range(TICKS):
        view.tick(moment(gpus, tick, happened=happened if tick == 20 else ()))
    view.close()
    return view


def shown(view: LiveView, keys: str = "") -> str:
    for key in keys:
        view._press(key)
    with view._console.capture() as captured:
        view._console.print(view.page())
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_screen_looks_as_it_did(width: int, height: int, gpus: int) -> None:
    text = shown(view_of(gpus, width, height))
    lines = text.splitlines()
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert LINK in text
    assert lines[-1].startswith("q stop watching  d diagnosis  t trace now")
    file = SCREENS / f"live_{width}x{height}_{gpus}.txt"
    if os.environ.get("WHYIDLE_UPDATE") == "1":
        file.write_text(text)
    assert text == file.read_text(), "another screen: where it is meant, WHYIDLE_UPDATE=1"


@pytest.mark.parametrize("key", ["d", "g", "?"])
def test_a_page_looks_as_it_did(key: str) -> None:
    text = shown(view_of(8, 80, 24), key)
    assert len(text.splitlines()) == 24
    assert LINK in text
    assert text.splitlines()[-1].startswith("q back")
    file = SCREENS / f"page_{'help' if key == '?' else key}.txt"
    if os.environ.get("WHYIDLE_UPDATE") == "1":
        file.write_text(text)
    assert text == file.read_text(), "another screen: where it is meant, WHYIDLE_UPDATE=1"


def test_no_fact_stands_on_the_screen_twice() -> None:
    text = shown(view_of(1, 120, 40))
    answer = moment(1)
    finding = answer.findings[0]
    assert text.count(finding.title) == 1
    assert text.count(f":{finding.where[0].line}") == 1
    assert text.count("input 45%") == 1
    assert text.count("24.1 ms") == 1


def test_a_bar_is_readable_without_colour_and_has_some_where_there_are() -> None:
    plain = shown(view_of(1, 80, 24, force_terminal=True, color_system="truecolor", no_color=True))
    coloured = shown(view_of(1, 80, 24, force_terminal=True, color_system="truecolor"))
    assert "i░░░░" in plain
    assert "38;2;195;44;8" in coloured


def test_the_odd_one_of_eight_is_marked() -> None:
    text = shown(view_of(8, 80, 24))
    (worst,) = (line for line in text.splitlines() if line.startswith("worst"))
    assert worst.startswith("worst GPU 5 !")
    assert "! GPU 5: used 20 points more or less than most" in text
    assert "!" not in next(line for line in text.splitlines() if line.startswith("best"))


def test_a_history_ends_with_its_newest_value() -> None:
    view = view_of(1, 80, 24)
    for _ in range(3):
        view.tick(replace(moment(1), gpus={"0": GpuReading(_gpu(5, 0), processes={})}))
    view.close()
    row = next(line for line in shown(view).splitlines() if line.startswith("GPU 0"))
    assert row.split()[3].endswith("▁▁▁")


def test_a_finding_is_news_only_where_it_stands_nowhere_else() -> None:
    found = moment(1).findings[0]
    news = JobEvent(FINDING, ProcessKey(1, 1), "Found: this", data={"rule": found.rule})
    gone = JobEvent(FINDING, ProcessKey(1, 1), "No longer found: that", data={"rule": "gone"})
    text = drawn(moment(1, happened=(news, gone)), 120)
    assert "Found: this" not in text
    assert "No longer found: that" in text


def test_before_anything_is_known_it_says_how_long_that_takes() -> None:
    early = moment(1, findings=(), verdict=None, elapsed=3.0)
    assert "Looking for the cause: that takes about 17 s." in drawn(early, 80)
    late = moment(1, findings=(), verdict=None, elapsed=300.0)
    assert "No cause is certain yet." in drawn(late, 80)


def test_a_terminal_of_a_few_lines_keeps_the_keys() -> None:
    lines = shown(view_of(8, 80, 7)).splitlines()
    assert len(lines) == 7
    assert lines[-1].startswith("q stop watching")


def test_a_heading_without_its_lines_is_left_out() -> None:
    for height in range(10, 40):
        middle = shown(view_of(1, 80, height)).splitlines()[2:-3]
        last = [line for line in middle if line.strip("─")][-1]
        assert last not in {"what to write", "what was measured"}


def test_keys_open_pages_scroll_them_and_hold_the_screen() -> None:
    view = view_of(1, 80, 24)
    assert "waiting for input" in shown(view, "d")
    before = shown(view)
    view._press(keyboard.DOWN)
    assert shown(view) != before
    view._press(keyboard.UP)
    assert shown(view) == before
    assert "one_line" not in shown(view, "q")
    held = shown(view, "p")
    assert "PAUSED" in held
    view.tick(moment(1, elapsed=99.0))
    view.close()
    assert "0:01:39" not in shown(view)
    view._press("p")
    view.tick(moment(1, elapsed=99.0))
    view.close()
    assert "0:01:39" in shown(view)


def test_keys_ask_for_a_trace_and_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    view = view_of(1, 80, 24)
    monkeypatch.setattr(view._keyboard, "open", lambda: 0)
    view.listen(lambda: asked.append("stop"), lambda: asked.append("trace"))
    assert "A trace is asked for" in shown(view, "t")
    view._press("q")
    assert asked == ["trace", "stop"]

    def refused() -> None:
        raise Problem("No trace: the job is stopped.", "Let it go on.")

    view.listen(lambda: None, refused)
    assert "No trace: the job is stopped. Let it go on." in shown(view, "t")


def test_keys_are_told_apart() -> None:
    assert keyboard.split("q\x1b[A\x1bOBx\x1b") == ["q", "up", "down", "x", "escape"]


def test_what_a_job_trains_is_said_once() -> None:
    assert shown(view_of(8, 120, 40)).count(str(FACTS["model"])) == 1
