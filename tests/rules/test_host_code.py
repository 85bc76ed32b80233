"""The rule host_code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, names, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.window import Window

NAME = "host_code"
_BEFORE = """
import concurrent.futures
step, seen = 200, []
report = seen.append
background = concurrent.futures.ThreadPoolExecutor(1)
"""
FIXES = dict.fromkeys(("pytorch", "jax"), (_BEFORE, "background.shutdown(); assert seen == [200]"))
# The same fault as three people write it, and a healthy program.
SOURCES = {
    "a loop in a method": (
        """
import torch
class Trainer:
    def finish(self, rewards):
        total = 0.0
        for reward in range(100_000):
            total = total * 0.99 + reward
        return torch.ones(3)
""",
        (7, "finish"),
        8,
    ),
    "a file in a script": (
        """
import json
import torch
for step in range(9):
    loss = torch.ones(3).sum()
    with open("log", "a") as log:
        log.write(json.dumps({"step": step}))
""",
        (7, "<module>"),
        5,
    ),
    "a library in a callback": (
        """
import jax
from PIL import Image
def on_step(step):
    Image.new("RGB", (640, 480)).save("now.png")
    return jax.numpy.ones(3)
""",
        (5, "on_step"),
        6,
    ),
}


def sampled(tmp_path: Path, source: str, host: CodeLine, works: int, share: float) -> Window:
    file = tmp_path / "train.py"
    file.write_text(source)
    own = CodeLine(str(file), host.line, host.function)
    framework = CodeLine(str(file), works, host.function)
    samples = stacks((own, (), 1000 * share), (framework, (), 1000 * (1 - share)))
    return window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True)


@pytest.mark.parametrize(
    ("known", "is_there"),
    [
        ({"inside": True}, False),
        # Nobody is inside, or it computes.
        ({"inside": False}, True),
        ({"inside": True, "facts": {"torch": {"backend": "cpu"}}}, True),
        ({"inside": True, "means": {m.JOB_STEPS: 3.0}}, True),
    ],
)
def test_a_server_without_a_framework_may_wait(
    known: dict[str, Any], is_there: bool, tmp_path: Path
) -> None:
    file = tmp_path / "server.py"
    file.write_text("import selectors\ndef main():\n    server.serve_forever()\nmain()\n")
    line = CodeLine(str(file), 3, "main")
    waits = (CodeLine("/usr/lib/python3.11/selectors.py", 415, "select"), (line,), 1000)
    job = window(stacks=stacks(waits, waited=1.0), **known)
    if is_there:
        assert found(NAME, job).where[0].line == 3
    else:
        assert is_silent(NAME, job)


@pytest.mark.parametrize("style", SOURCES)
def test_the_users_own_code_is_named_in_any_style(style: str, tmp_path: Path) -> None:
    source, (line, function), works = SOURCES[style]
    job = sampled(tmp_path, source, CodeLine("", line, function), works, 0.3)
    finding = found(NAME, job)
    assert names(finding.where) == [function]
    assert finding.where[0].line == line
    assert finding.where[0].share == pytest.approx(0.3)
    assert finding.gain is not None
    assert finding.gain.low < 0.3 < finding.gain.high
    assert finding.gain.high - finding.gain.low < 0.1
    assert finding.severity is Severity.HIGH
    assert finding.title is not None
    # What is written to a file is called logging, whoever does it.
    says = "Logging" if "log.write" in source else f"{function}()"
    assert finding.title.startswith(f"{says} takes 30% of the main thread's time")


@pytest.mark.parametrize("style", SOURCES)
def test_a_healthy_twin_is_silent(style: str, tmp_path: Path) -> None:
    source, (line, function), works = SOURCES[style]
    assert is_silent(NAME, sampled(tmp_path, source, CodeLine("", line, function), works, 0.02))


def test_a_device_that_works_meanwhile_bounds_the_gain(tmp_path: Path) -> None:
    source, (line, function), works = SOURCES["a loop in a method"]
    job = sampled(tmp_path, source, CodeLine("", line, function), works, 0.3)
    # It is busy for 0.9 of the time: no more than 0.1 can come back.
    busy: Any = answer({Slice.COMPUTE: 0.9, Slice.IDLE_DISPATCH: 0.1}, kind="gpu")
    gpu = window(busy, stacks=job.job.stacks, facts={"torch": {"backend": "cuda"}}, inside=True)
    gain = found(NAME, gpu).gain
    assert gain is not None
    assert gain.low == 0
    assert gain.high == pytest.approx(0.1)


def test_what_is_not_told_apart_widens_the_range(tmp_path: Path) -> None:
    source = """
def step(model, x):
    for n in range(9):
        n * n
    return x * 2
"""
    job = sampled(tmp_path, source, CodeLine("", 4, "step"), 5, 0.3)
    gain = found(NAME, job).gain
    assert gain is not None
    assert gain.low < 0.3
    assert gain.high > 0.9


def test_it_stands_behind_a_rule_that_knows_the_line(tmp_path: Path) -> None:
    source = """
import gc
for step in range(9):
    gc.collect()
"""
    file = tmp_path / "train.py"
    file.write_text(source)
    line = SourceLine(str(file), 4, "<module>", 0.4)
    job = window(
        stacks=stacks(
            (line, (), 400), (CodeLine("/x/site-packages/torch/a.py", 1, "f"), (line,), 600)
        ),
        means={m.JOB_GC_PAUSE: 0.4, m.PROCESS_GC_COLLECTIONS: 20.0},
        facts={"torch": {"backend": "cpu"}},
        lines=(line,),
        leaves=(line,),
        inside=True,
    )
    findings = diagnose(job).findings
    assert findings[0].rule.id == "gc_pauses"
    assert NAME not in [each.rule.id for each in findings]
    assert NAME in findings[0].also_seen


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())


def test_the_account_is_part_of_the_answer(tmp_path: Path) -> None:
    source, (line, function), works = SOURCES["a loop in a method"]
    job = sampled(tmp_path, source, CodeLine("", line, function), works, 0.3)
    host = as_json(diagnose(job))["host"]
    assert host["samples"] == 1000
    assert [(row["class"], row["share"]) for row in host["rows"]] == [
        ("framework", 0.7), ("python", 0.3),
    ]  # fmt: skip
    assert host["rows"][1]["frames"][0]["line"] == line
    assert set(host["unknown"]) == {"cores"}
    assert as_json(diagnose(window()))["host"]["unknown"]["rows"]
