"""The rule buffers_not_donated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, is_silent, judge, recorded, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Found, Severity, SourceLine
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.signals.window import Window

NAME = "buffers_not_donated"
FIXES = {
    "jax": (
        """
import jax
import jax.numpy as jnp
def train_step(state, batch):
    return {"w": state["w"] - batch.mean()}, batch.sum()
state, batch = {"w": jnp.ones((8, 8))}, jnp.ones(4)
old = state["w"]
""",
        """
assert old.is_deleted() and state["w"][0, 0] == 0
""",
    ),
}
MB = 1 << 20
GB = 1 << 30


def job(
    folder: Path,
    text: str = "state, loss = step(state, batch)\n",
    means: dict[m.Metric, float] | None = None,
    **sizes: Any,
) -> Window:
    """Return the window of a job that calls such a program from such a line."""
    file = folder / "train.py"
    file.write_text(text)
    program = {"argument_bytes": 101 * MB, "output_bytes": 100 * MB, "aliased_bytes": 0} | sizes
    facts = {"jax": {"largest_executables": [{"name": "jit_train_step", **program}]}}
    row = Compiled("jax", "train_step", 1, 10**9, 0, None, str(file), 1)
    return window(means=means, facts=facts, compiled=(row,), inside=True)


def test_a_state_that_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path))
    assert finding.gain is None
    assert finding.severity is Severity.LOW
    assert finding.evidence[0].value == 100 * MB
    assert finding.where[0].line == 1


@pytest.mark.parametrize(
    "text",
    [
        "params, moments, loss = step(params, moments, batch)\n",
        "(params, moments), loss = step((params, moments), batch)\n",
        "self.state = step(self.state, batch)\n",
        "state: State = step(batch, state=state)\n",
    ],
)
def test_ways_to_write_it(tmp_path: Path, text: str) -> None:
    found(NAME, job(tmp_path, text))


@pytest.mark.parametrize(
    "text", ["q = step(p)\n", "print(step(p))\n", "new = step(state, batch)\n"]
)
def test_both_are_wanted(tmp_path: Path, text: str) -> None:
    assert is_silent(NAME, job(tmp_path, text))


@pytest.mark.parametrize(
    "sizes",
    [
        {"aliased_bytes": 100 * MB},
        # An evaluation, the making of a state, and one that is too small.
        {"output_bytes": 4},
        {"argument_bytes": 4},
        {"argument_bytes": MB, "output_bytes": MB},
        {"argument_bytes": None},
    ],
)
def test_programs_that_are_as_they_should_be(tmp_path: Path, sizes: dict[str, Any]) -> None:
    assert is_silent(NAME, job(tmp_path, **sizes))


def test_memory_that_is_nearly_full(tmp_path: Path) -> None:
    full = {m.PROCESS_POOL_LIMIT: 10.0 * GB, m.PROCESS_POOL_PEAK: 9.0 * GB}
    assert found(NAME, job(tmp_path, means=full)).severity is Severity.MEDIUM
    free = {m.PROCESS_POOL_LIMIT: 10.0 * GB, m.PROCESS_POOL_PEAK: 1.0 * GB}
    assert found(NAME, job(tmp_path, means=free)).severity is Severity.LOW


def test_what_is_missing(tmp_path: Path) -> None:
    assert cannot_judge(NAME, window())
    facts = job(tmp_path).job.facts
    row = Compiled("jax", "train_step", 1, 10**9, 0, None, "/not/there.py", 1)
    assert cannot_judge(NAME, window(facts=facts, compiled=(row,), inside=True))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded("buffers_not_donated/before_jax"))
    assert finding.where[0].file.endswith("buffers_not_donated/before_jax.py")
    assert is_silent(NAME, recorded("buffers_not_donated/after_jax"))


JITTED = """
step = jax.jit(train_step)
def train(state):
    for batch in batches:
        state, loss = step(state, batch)
        new = jnp.stack(state)
        print(loss)
"""
DECORATED = """
@jax.jit
def train_step(state, batch):
    new = other(state)
    return new
def train(state):
    for batch in batches: state = train_step(state, batch)
"""
METHOD = """
class Trainer:
    def __init__(self): self._step = jax.jit(self.train_step)
    def train(self):
        while True:
            self.state, loss = self._step(self.state, batch)
"""


SCRIPT = """
def train_step(state, batch): return state
step = jax.jit(train_step)
for batch in batches: state, loss = step(state, batch)
"""


@pytest.mark.parametrize(
    ("text", "where", "line"),
    [
        (JITTED, "train", 5),
        (JITTED.replace("def train(", "async def train("), "train", 5),
        (DECORATED, "train", 7),
        (METHOD, "train", 6),
        (SCRIPT, "<module>", 4),
    ],
)
def test_of_a_job_that_had_compiled_before_the_call_is_found_where_it_is(
    tmp_path: Path, text: str, where: str, line: int
) -> None:
    finding = found(NAME, attached(tmp_path, text, where))
    assert [place.line for place in finding.where] == [line]


@pytest.mark.parametrize(
    "text",
    [
        JITTED.replace("state, loss = step", "new, loss = step"),
        JITTED.replace("jax.jit(train_step)", "jax.jit(other)"),
        DECORATED.replace("= train_step(", "= env.train_step("),
        "def train(state:\n",
    ],
)
def test_of_another_call_nothing_is_said(tmp_path: Path, text: str) -> None:
    assert not isinstance(judge(NAME, attached(tmp_path, text)), Found)


def attached(folder: Path, text: str, where: str = "train") -> Window:
    """Return the window of a job whose main thread is seen in its loop."""
    file = folder / "train.py"
    file.write_text(text)
    program = {"argument_bytes": 101 * MB, "output_bytes": 100 * MB, "aliased_bytes": 0}
    facts = {"jax": {"largest_executables": [{"name": "jit_train_step", **program}]}}
    lines = (SourceLine(str(file), len(text.splitlines()), where, 0.9),)
    return window(facts=facts, lines=lines, inside=True)


CACHE = "cache, token = decode(cache, token, at)\n"


@pytest.mark.parametrize(
    ("flops", "pages", "is_gain"),
    [(2e6, 600_000.0, True), (2e6, 500.0, False), (2e6, None, False), (9e8, 600_000.0, False)],
)
def test_a_cache_that_is_copied_to_write_one_token(
    tmp_path: Path, flops: float, pages: float | None, *, is_gain: bool
) -> None:
    means = {m.JOB_CPU: 1.4} | ({} if pages is None else {m.JOB_MINOR_FAULTS: pages})
    watched = job(tmp_path, CACHE, means, flops=flops)
    facts = {"jax": {**watched.job.facts["jax"], "backend": "cpu"}}
    finding = found(NAME, replace(watched, job=replace(watched.job, facts=facts)))
    assert ("copied" in str(finding.title)) is (flops < 1e8)
    if not is_gain:
        assert finding.gain is None
        assert finding.severity is Severity.LOW
        return
    assert finding.gain is not None
    # 600,000 pages of 0.8 us on 1.4 cores, of which others may make some.
    assert finding.gain.low == pytest.approx(0.171, abs=0.01)
    assert finding.gain.high == 0.99
