"""The rule cold_compile_cache."""

from __future__ import annotations

import pytest

from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.signals.window import Window

NAME = "cold_compile_cache"
FIXES = {
    "jax": (
        "import jax",
        """
assert jax.config.jax_compilation_cache_dir == "/var/tmp/jax_cache"
jax.config.update("jax_compilation_cache_dir", None)
""",
    ),
}


def of(seconds: float, *, caches: bool | None = False, cached: int = 0, count: int = 2) -> Window:
    ns = int(seconds * 1e9)
    step = Compiled("jax", "step", count, ns, cached, None, "/job/train.py", 30)
    facts = {"jax": {"version": "0.10.2", "compilation_cache": caches}}
    return window(facts=facts, compiled=(step,))


@pytest.mark.parametrize(("seconds", "severity"), [(15, Severity.INFO), (140, Severity.LOW)])
def test_what_was_compiled_is_said_and_no_gain_of_a_step(
    seconds: float, severity: Severity
) -> None:
    finding = found(NAME, of(seconds))
    assert (finding.gain, finding.severity) == (None, severity)
    assert [each.value for each in finding.evidence] == [pytest.approx(seconds), 2]
    assert [place.line for place in finding.where] == [30]


def test_of_functions_that_a_cache_had_in_part_the_rest_counts() -> None:
    finding = found(NAME, of(80, cached=1))
    assert [each.value for each in finding.evidence] == [pytest.approx(40), 1]


@pytest.mark.parametrize(
    "job", [of(4), of(500, caches=True), of(500, cached=2), window(facts={"torch": {}})]
)
def test_jobs_that_start_soon(job: Window) -> None:
    assert judge(NAME, job) is None


def test_nobody_says() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, of(500, caches=None))
