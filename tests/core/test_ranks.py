"""Who is late among ranks: planted stragglers are named with what they cost, chance is not."""

from __future__ import annotations

import numpy as np
import pytest

from whyidle.monitor.core.ranks import FEW_STEPS, Arrivals, Who, judge

STEP_NS = 1e8
COLLECTIVES = 4


def arrivals(  # a job as its options say
    ranks: int,
    steps: int,
    late: float = 0.0,
    *,
    how: str = "constant",
    noise: float = 0.02,
    seed: int = 0,
) -> Arrivals:
    """All ranks work alike but the last one, which is late by a part of the step."""
    rng = np.random.default_rng(seed)
    share = STEP_NS / COLLECTIVES
    came = share * (1 + noise * rng.standard_normal((steps, COLLECTIVES, ranks)))
    if how == "constant":
        came[:, :, -1] += late * share
    elif how == "now and then":
        came[::4, :, -1] += 4 * late * share
    else:
        came[:, 1, -1] += late * STEP_NS
    came = came.reshape(-1, ranks)
    return Arrivals(
        [Who(rank=i) for i in range(ranks)],
        came - came.min(axis=1, keepdims=True),
        np.repeat(np.arange(steps), COLLECTIVES),
        STEP_NS,
        labels=[f"AllReduce {i}" for i in range(COLLECTIVES)] * steps,
    )


@pytest.mark.parametrize("ranks", [2, 8, 64])
@pytest.mark.parametrize("late", [0.05, 0.3])
@pytest.mark.parametrize("how", ["constant", "now and then", "one collective"])
def test_a_late_rank_is_named_with_what_it_costs(ranks: int, late: float, how: str) -> None:
    found = judge(arrivals(ranks, 60, late, how=how))
    assert found.straggler is not None, found.reason
    assert found.straggler.rank == ranks - 1
    low, high = found.straggler.late
    assert low <= 1.1 * late
    assert high >= 0.9 * late
    assert (low + high) / 2 == pytest.approx(late, rel=0.1)
    if how == "one collective":
        assert next(iter(found.kinds)) == "AllReduce 1"
        assert found.kinds["AllReduce 1"] > 0.9


@pytest.mark.parametrize("ranks", [2, 8, 64])
@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3])
def test_chance_names_nobody(ranks: int, noise: float) -> None:
    for seed in range(20):
        found = judge(arrivals(ranks, 12, noise=noise, seed=seed))
        assert found.straggler is None
        assert found.reason


def test_a_single_hiccup_names_nobody() -> None:
    """A checkpoint that one rank writes makes the others wait once, and says nothing of the job."""
    job = arrivals(8, 20)
    job.late[40, 3] += 3 * STEP_NS
    assert judge(job).straggler is None


def test_few_steps_do_not_tell() -> None:
    found = judge(arrivals(2, 2, 0.3))
    assert found.straggler is None
    assert found.reason == FEW_STEPS


def test_a_victim_is_no_straggler() -> None:
    """Rank 3 is late; rank 2 waits for it in their own group, and so comes late to the next one."""
    late = 0.2 * STEP_NS
    nan, rows = np.nan, []
    for _ in range(20):
        rows += [[0, 0, nan, nan], [nan, nan, 0, late], [0, nan, late, nan], [nan, 0, nan, late]]
    noise = np.abs(np.random.default_rng(3).normal(0, 0.002 * STEP_NS, (len(rows), 4)))
    job = Arrivals([Who(i) for i in range(4)], np.array(rows) + noise, np.arange(80) // 4, STEP_NS)
    found = judge(job)
    assert found.straggler is not None
    assert found.straggler.rank == 3
    assert sum(found.straggler.late) / 2 == pytest.approx(0.2, rel=0.1)
    assert not found.alike


def test_those_late_alike_are_said() -> None:
    job = arrivals(16, 20)
    job.late[:, 8:12] += 0.1 * STEP_NS / COLLECTIVES
    found = judge(job)
    assert found.straggler is not None
    named = {found.straggler.rank, *(each.rank for each in found.alike)}
    assert named == {8, 9, 10, 11}


def test_what_computing_covers_is_the_lower_end() -> None:
    job = arrivals(4, 20, 0.2)
    waits = job.late.max(axis=1, keepdims=True) - job.late
    found = judge(Arrivals(job.who, job.late, job.step, STEP_NS, exposed=waits / 4))
    assert found.straggler is not None
    assert found.straggler.late[0] == pytest.approx(0.05, rel=0.2)
    assert found.straggler.late[1] == pytest.approx(0.2, rel=0.1)


def test_nothing_shared_is_said() -> None:
    alone = Arrivals([Who(0)], np.zeros((3, 1)), np.arange(3), STEP_NS)
    assert judge(alone).reason == "no collective was seen on two ranks"
