"""Real traces and recorded windows beside each other: what is known of them comes out."""

from __future__ import annotations

import pytest

from benchmarks.record_pairs import ABOUT, kept
from tests.rules.windows import WINDOWS
from tests.traces.real import path_of
from whyidle.monitor.compare import Comparison, Side, Verdict, compare, of_analysis, of_window
from whyidle.monitor.compare.answer import as_json
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.portable import load
from whyidle.monitor.traces.analysis import analyse

PAIRS = sorted(
    (path.parent.name, path.name.removeprefix("before_"))
    for path in WINDOWS.glob("*/before_*.json.gz")
    if path.with_name(path.name.replace("before_", "after_")).exists()
)


def beside(name: str) -> Comparison:
    """The trace of a job without loader workers, and that of the same with four."""
    sides = [of_analysis(analyse(path_of(f"{name}_workers{n}"))) for n in (0, 4)]
    return compare(*sides)


@pytest.mark.parametrize(
    # How often the experiment itself was faster, by those who did it.
    ("name", "realised", "verdict"),
    [("v100_resnet50", 1.39, Verdict.FASTER), ("resnet50_b", 1.28, Verdict.UNCERTAIN)],
)
def test_loader_workers_gave_back_what_is_known(
    name: str, realised: float, verdict: Verdict
) -> None:
    found = beside(name)
    assert found.speedup is not None
    assert found.speedup.middle == pytest.approx(realised, abs=0.01)
    assert found.speedup.low is not None
    assert found.speedup.high is not None
    assert found.speedup.low < realised < found.speedup.high
    assert found.verdict is verdict
    assert [fault.rule for fault in found.faults.gone] == ["input_starved"]
    gained = min(found.slices, key=lambda part: part.ns.change or 0.0)
    assert gained.slice is Slice.IDLE_INPUT
    assert found.kernels.changed


def test_a_step_of_the_same_batch_copies_the_same_bytes() -> None:
    for name in ("v100_resnet50", "resnet50_b"):
        copied = next(t for t in beside(name).transfers if t.direction == "host to device")
        assert copied.bytes.a == pytest.approx(copied.bytes.b, rel=0.05)
        # Its workers take memory from it: the copies themselves got slower.
        assert copied.ns.change is not None
        assert copied.ns.change > 0


def of_pair(rule: str, framework: str) -> tuple[Side, Side]:
    before, after = (
        of_window(load(kept(WINDOWS / rule / f"{side}_{framework}")["window"]), side)
        for side in ("before", "after")
    )
    return before, after


@pytest.mark.parametrize(("rule", "framework"), PAIRS)
def test_recorded_pairs_lose_their_finding_and_nothing_is_made_up(
    rule: str, framework: str
) -> None:
    before, after = of_pair(rule, framework)
    found = compare(before, after)
    listed = [*found.faults.gone, *found.faults.kept, *found.faults.unknown]
    fault = next(each for each in listed if each.rule == ABOUT[rule])
    assert fault.b in {None, "low", "info"}
    # A window has no distribution of steps: no bounds.
    assert found.verdict in {Verdict.UNCERTAIN, Verdict.UNKNOWN}
    answer = as_json(found)
    for which in ("a", "b"):
        slices = answer.slices[which]
        unknown = [part for part, ns in (slices or {}).items() if ns is None]
        assert all(answer.unknown[f"slices.{which}.{part}"] for part in unknown)
        assert slices is not None or answer.unknown[f"slices.{which}"]
