"""The user's chains of lines as a chart."""

from __future__ import annotations

from plotly.graph_objects import Figure

from whyidle.dashboard import theme
from whyidle.dashboard.figures.icicle import height, icicle
from whyidle.monitor.core.host_class import HOST_LOOKS, HostClass
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.code_boxes import Box

BOTH = {HostClass.PYTHON: 0.6, HostClass.WAIT: 0.4}
LINE = CodeLine("/job/train.py", 4, "step")
ROOT = Box("r", "", None, "main thread", 1.0, 0.0, BOTH, None, is_end=False)


def box(key: str, share: float, doing: HostClass, line: CodeLine = LINE) -> Box:
    words = f"train.py:{line.line} in {line.function}"
    return Box(key, "r", line, words, share, 0.01, {doing: share}, doing, is_end=True)


def test_a_box_has_the_colour_of_what_is_done_there() -> None:
    boxes = [ROOT, box("a", 0.6, HostClass.PYTHON), box("b", 0.4, HostClass.WAIT)]
    (trace,) = Figure(icicle("code", boxes, 500)).data
    assert trace.type == "icicle"
    assert list(trace.marker.colors) == [
        theme.MIXED, HOST_LOOKS[HostClass.PYTHON].colour, HOST_LOOKS[HostClass.WAIT].colour
    ]  # fmt: skip
    assert list(trace["values"]) == [0, 0.6, 0.4]
    assert trace.text[1] == "train.py:4 in step  60%"
    assert "60% ± 1.0% of 500 samples" in trace.hovertext[1]
    assert "waiting: 40%" in trace.hovertext[0]


def test_text_is_cut_to_what_has_room() -> None:
    boxes = [ROOT, box("a", 0.1, HostClass.PYTHON), box("b", 0.03, HostClass.PYTHON)]
    (trace,) = icicle("code", boxes, 500)["data"]
    assert trace["text"][1:] == ["step 10%".replace(" ", "  "), ":4"]


def test_it_is_as_high_as_the_deepest_chain() -> None:
    boxes = [ROOT]
    for i in range(20):
        boxes.append(Box(str(i), boxes[-1].key, LINE, "x", 1.0, 0.0, BOTH, None, is_end=i == 19))
    assert height(boxes) > 2 * height(boxes[:8])


def test_a_name_from_a_job_is_no_markup() -> None:
    evil = CodeLine("/job/<b>x</b>.py", 1, "<a href='javascript:x'>f</a>" + "y" * 500)
    (trace,) = icicle("code", [ROOT, box("a", 0.9, HostClass.PYTHON, evil)], 500)["data"]
    for text in (trace["labels"][1], trace["text"][1], trace["hovertext"][1]):
        assert "<a" not in text
    assert "<b>x" not in trace["hovertext"][1]
