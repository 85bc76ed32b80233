"""The rule fragmented_memory."""

from __future__ import annotations

from tests.rules.device_memory import GB, jax, torch
from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity

NAME = "fragmented_memory"
PIECES = {m.PROCESS_POOL_SPLIT: 14.0 * GB}


def test_allocations_that_try_again_beside_much_that_is_free() -> None:
    finding = found(NAME, torch({**PIECES, m.PROCESS_ALLOC_RETRIES: 0.3}))
    assert finding.severity is Severity.MEDIUM
    assert finding.gain is None
    assert finding.evidence[0].value == 14 * GB


def test_allocations_that_fail() -> None:
    assert found(NAME, torch(PIECES, failed=3)).severity is Severity.MEDIUM


def test_much_in_pieces_where_the_rest_is_used_is_a_risk() -> None:
    finding = found(NAME, torch({m.PROCESS_POOL_SPLIT: 26.0 * GB}))
    assert finding.severity is Severity.LOW
    assert found(NAME, jax(means={m.PROCESS_POOL_SPLIT: 25.0 * GB})).severity is Severity.LOW


def test_a_full_memory_in_one_piece_is_not_fragmented() -> None:
    assert judge(NAME, torch(failed=3)) is None
    assert judge(NAME, torch({m.PROCESS_ALLOC_RETRIES: 0.3})) is None


def test_pieces_in_the_midst_of_a_step_hurt_nobody() -> None:
    assert judge(NAME, torch(PIECES)) is None
    roomy = {m.PROCESS_POOL_SPLIT: 26.0 * GB, m.PROCESS_POOL_PEAK: 40.0 * GB}
    assert judge(NAME, torch(roomy)) is None


def test_failures_of_before_the_recording_do_not_count() -> None:
    before = {m.PROCESS_ALLOC_OOMS: (7.0, 7.0), m.PROCESS_POOL_USED: (18.0 * GB, 70.0 * GB)}
    assert judge(NAME, torch({**PIECES, m.PROCESS_ALLOC_OOMS: 7.0}, ranges=before)) is None


def test_without_an_allocator_it_is_not_judged() -> None:
    assert cannot_judge(NAME, window())
