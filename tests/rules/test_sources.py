"""What evidence says of its source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.windows import recorded, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.processes.process import JULIA


@pytest.mark.parametrize("name", ["logging_each_step", "gil_contention", "checkpoint_blocks"])
def test_no_agent_speaks_where_none_is_inside(name: str) -> None:
    seen = recorded(f"{name}/before_torch")
    means = {metric: mean for metric, mean in seen.job.means.items() if metric.source != "agent"}
    # Its steps are then counted by the turns of its loop.
    means[m.JOB_STEPS] = 10.0
    job = replace(seen.job, inside=False, facts={}, reads=(), compiled=(), events={}, means=means)
    findings = as_json(diagnose(replace(seen, traces=(), job=job))).findings
    sources = {each.source for finding in findings for each in finding.evidence}
    assert "stack samples" in sources
    assert "agent" not in sources


@pytest.mark.parametrize(
    ("known", "source"),
    [
        ({"inside": True}, "agent"),
        ({"facts": {"torch": {}}}, "agent"),
        ({}, "stack samples"),
        ({"facts": {JULIA: {}}}, "procfs"),
    ],
)
def test_who_says_what_an_agent_would(known: dict[str, object], source: str) -> None:
    job = window(means={m.JOB_STEPS: 3.0, m.JOB_CPU: 1.0}, **known).job
    steps, cpu = job.mean(m.JOB_STEPS), job.mean(m.JOB_CPU)
    assert (steps and steps.source, cpu and cpu.source) == (source, "procfs")


def test_samples_are_of_the_stack_beside_an_agent_too() -> None:
    line = SourceLine("/job/train.py", 3, "train", 1.0)
    assert window(stacks=stacks((line, (), 9)), inside=True).job.sampled(0.5).source == (
        "stack samples"
    )
