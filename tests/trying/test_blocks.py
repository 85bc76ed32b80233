"""Blocks of steps: how long, in which order, and what of them counts."""

from __future__ import annotations

import math
import random

import pytest

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.trying.blocks import (
    LEAST_S,
    MOST_PAIRS,
    SECOND,
    Block,
    Step,
    Timeline,
    measure,
    plan,
)

MS = SECOND // 1000


def test_short_steps_make_many_pairs_and_a_minute() -> None:
    found = plan(0.01, 0.0, None, 1)
    assert found.pairs >= 30
    assert found.block_s >= LEAST_S
    assert found.seconds == pytest.approx(60, rel=0.1)


def test_long_steps_make_long_blocks_and_take_their_time() -> None:
    found = plan(2.0, 0.0, None, 1)
    assert found.block_s >= 20
    assert found.pairs == 6


def test_a_time_that_is_too_short_is_refused_with_one_that_is_not() -> None:
    with pytest.raises(UsageProblem) as refused:
        plan(2.0, 0.0, 60.0, 1)
    assert "--for 2" in refused.value.next_step
    with pytest.raises(UsageProblem, match="too short"):
        plan(60.0, 0.0, None, 1)


def test_a_long_time_makes_longer_blocks_not_more_pairs() -> None:
    assert plan(0.01, 0.0, 600.0, 1).pairs == MOST_PAIRS


def test_where_the_collector_comes_seldom_a_block_has_several_of_its_pauses() -> None:
    assert plan(0.01, 0.0, None, 1, pause_s=2.0).block_s >= 6.0


def test_the_order_is_by_chance_and_as_often_this_as_that() -> None:
    orders = plan(0.01, 0.0, None, 7).orders()
    assert orders != plan(0.01, 0.0, None, 8).orders()
    for n in range(0, len(orders), 4):
        assert sum(orders[n : n + 4]) == 2


def block(begin_s: float, step_ms: list[float], *, on: bool) -> Block:
    at = round(begin_s * SECOND)
    found = Block(on, at, at)
    for ms in step_ms:
        found.steps.append(Step(at, at + round(ms * MS), 1))
        at = found.ended_ns = at + round(ms * MS)
    return found


def pairs(number: int, off_ms: float, on_ms: float, extra: dict[int, float] | None = None) -> list:  # type: ignore[type-arg]
    rng = random.Random(3)
    found = []
    for n in range(number):
        off = [off_ms * rng.uniform(0.98, 1.02) for _ in range(50)]
        if extra and n in extra:
            off[25] = extra[n]
        found.append((block(10 * n, off, on=False), block(10 * n + 5, [on_ms] * 50, on=True)))
    return found


def test_a_pair_says_how_many_times_faster() -> None:
    found = measure(pairs(6, 13, 10), Timeline())
    assert math.exp(sum(found.ratios) / 6) == pytest.approx(1.3, rel=0.01)
    assert found.step_s == (pytest.approx(0.013, rel=0.01), pytest.approx(0.010, rel=0.01))


def test_a_checkpoint_in_one_of_the_blocks_does_not_count() -> None:
    found = measure(pairs(8, 10, 10, {3: 4000.0}), Timeline())
    assert found.phases == 1
    assert max(map(abs, found.ratios)) < 0.02


def test_a_pause_of_the_collector_does_count() -> None:
    made = pairs(8, 10, 10, {3: 4000.0})
    long = next(s for s in made[3][0].steps if s.ended_ns - s.began_ns > SECOND)
    timeline = Timeline()
    timeline.pauses.append((long.began_ns + MS, long.ended_ns - MS))
    found = measure(made, timeline)
    assert found.phases == 0
    assert max(found.ratios) > 1


def test_what_is_long_often_is_no_phase() -> None:
    steps = [10.0] * 7 + [300.0]
    made = [
        (block(20 * n, steps * 6, on=False), block(20 * n + 10, steps * 6, on=True))
        for n in range(6)
    ]
    assert measure(made, Timeline()).phases == 0


def test_what_the_change_ends_is_no_phase_though_it_is_rare() -> None:
    # Another program on the core takes four milliseconds now and then, where steps take a tenth.
    without = [*[0.1] * 99, 4.0, *[0.1] * 99, 4.0] * 5
    made = [
        (block(20 * n, without, on=False), block(20 * n + 10, [0.1] * 1000, on=True))
        for n in range(6)
    ]
    found = measure(made, Timeline())
    assert found.phases == 0
    assert math.exp(found.ratios[0]) == pytest.approx(1.39, rel=0.01)


def test_a_drift_through_the_whole_try_is_no_effect() -> None:
    orders = plan(0.01, 0.0, None, 5).orders()[:40]
    made = []
    for n, on_first in enumerate(orders):
        first = block(10 * n, [10 * 1.002 ** (2 * n)] * 50, on=on_first)
        second = block(10 * n + 5, [10 * 1.002 ** (2 * n + 1)] * 50, on=not on_first)
        made.append((first, second))
    ratios = measure(made, Timeline()).ratios
    assert abs(sum(ratios) / len(ratios)) < 1e-6


def test_a_step_on_an_edge_counts_by_its_part_inside() -> None:
    timeline = Timeline()
    timeline.add(100 * MS, 1, [10 * MS] * 10)
    found = timeline.fill(Block(False, 15 * MS, 65 * MS))
    assert [s.began_ns // MS for s in found.steps] == [10, 20, 30, 40, 50, 60]
    assert found.step_s(set()) == pytest.approx(0.010)
    on_edges = timeline.fill(Block(False, 20 * MS, 60 * MS))
    assert [s.began_ns // MS for s in on_edges.steps] == [20, 30, 40, 50]


def test_long_pauses_of_the_collector_weigh_as_much_as_they_take() -> None:
    # One step in fifty takes 170 ms, all others 3: blocks of a second, anywhere.
    cycle = [3 * MS] * 49 + [170 * MS]
    timeline = Timeline()
    timeline.add(2000 * sum(cycle), 1, cycle * 2000)
    rng = random.Random(1)
    begins = [rng.randrange(1900 * sum(cycle)) for _ in range(2000)]
    rates = [1 / (timeline.fill(Block(False, at, at + SECOND)).step_s(set()) or 0) for at in begins]
    assert sum(rates) / len(rates) == pytest.approx(50 / sum(cycle) * SECOND, rel=0.01)


@pytest.mark.parametrize("gives", [3.0, 1.5, 1.0, 0.5])
def test_a_step_during_which_the_knob_is_turned_blurs_nothing(gives: float) -> None:
    # Ten steps in a block, and what is left of a step goes on as fast as the knob is by then.
    off = 100 * MS
    rng = random.Random(5)
    timeline, blocks = Timeline(), list[Block]()
    now, began, left = 0, 0, 1.0
    for on in [False, *[True, False, False, True] * 40]:
        turned, until = now, now + 12 * off
        takes = off / gives if on else off
        while now < until:
            spent = min(until - now, round(left * takes * rng.uniform(0.9, 1.1)))
            left -= spent / takes
            now += spent
            if now < until:
                timeline.steps.append(Step(began, now, 1))
                began, left = now, 1.0
        blocks.append(Block(on, turned + 2 * off, until - off, turned))
    pairs = [
        (timeline.fill(a), timeline.fill(b))
        for a, b in zip(blocks[1::2], blocks[2::2], strict=True)
    ]
    ratios = measure(pairs, timeline).ratios
    assert math.exp(sum(ratios) / len(ratios)) == pytest.approx(gives, rel=0.01)


def test_steps_of_a_kind_that_has_ended_stay_where_they_were_counted() -> None:
    timeline = Timeline()
    timeline.add(100 * MS, 1, [10 * MS] * 10)
    found = timeline.fill(Block(False, 20 * MS, 60 * MS))
    timeline.steps.clear()
    assert len(timeline.fill(found).steps) == 4
    timeline.add(300 * MS, 1, [20 * MS] * 5)
    assert len(timeline.fill(found).steps) == 4


def test_the_middle_and_the_pauses_are_known_from_a_few() -> None:
    timeline = Timeline()
    assert timeline.middle_ns() is None
    timeline.add(100 * MS, 2, [10 * MS] * 10)
    assert timeline.middle_ns() == 5 * MS
    assert timeline.between_pauses_s() is None
    timeline.pauses += [(0, MS), (SECOND, SECOND + MS), (2 * SECOND, 2 * SECOND + MS)]
    assert timeline.between_pauses_s() == pytest.approx(1.0)
