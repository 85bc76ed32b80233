"""An interval that is looked at several times misses the truth no more often than it says."""

from __future__ import annotations

import math
import random

import pytest

from whyidle.monitor.trying.sequential import ALPHA, Looks, interval, looks, student


@pytest.mark.parametrize(
    ("share", "freedom", "known"),
    # Tables of Student's distribution.
    [
        (0.975, 5, 2.5706),
        (0.995, 7, 3.4995),
        (0.975, 30, 2.0423),
        (0.999, 4, 7.1732),
        (0.95, 1, 6.3138),
    ],
)
def test_students_quantiles_are_those_of_the_tables(
    share: float, freedom: int, known: float
) -> None:
    assert student(share, freedom) == pytest.approx(known, abs=2e-4)


def test_the_looks_are_fixed_by_the_number_of_pairs_alone() -> None:
    assert looks(40) == [10, 16, 24, 32, 40]
    assert looks(6) == [6]
    assert looks(8) == [6, 7, 8]
    assert looks(5) == []


def test_all_looks_together_spend_one_in_twenty() -> None:
    for pairs in range(6, 60):
        found = Looks(pairs)
        assert sum(found._level(n) for n in found.looks) == pytest.approx(ALPHA)


def _noise(kind: str, rng: random.Random, n: int) -> float:
    if kind == "heavy":
        return rng.gauss(0, 0.02) * (8 if rng.random() < 0.05 else 1)
    if kind == "drift":
        # Balanced order turns it into plus and minus.
        return rng.gauss(0, 0.02) + rng.choice([-1, 1]) * 0.01
    return rng.gauss(0, 0.03)


@pytest.mark.parametrize("kind", ["even", "heavy", "drift"])
@pytest.mark.parametrize("truth", [1.0, 1.31])
@pytest.mark.parametrize("pairs", [6, 20, 40])
def test_it_holds_the_truth_where_it_stops(kind: str, truth: float, pairs: int) -> None:
    rng = random.Random(f"{kind} {truth} {pairs}")
    tries, held = 400, 0
    for _ in range(tries):
        chosen, values = Looks(pairs), []
        estimate = None
        while len(values) < pairs and not (estimate and estimate.is_enough):
            values.append(math.log(truth) + _noise(kind, rng, len(values)))
            estimate = chosen.at(values) or estimate
        assert estimate is not None
        held += estimate.low <= truth <= estimate.high
    # Three standard deviations below what is promised.
    assert held >= tries * 0.95 - 3 * math.sqrt(tries * 0.05 * 0.95)


def test_what_makes_no_difference_is_said_to() -> None:
    rng = random.Random(1)
    found = interval([rng.gauss(0, 0.01) for _ in range(30)], 0.02)
    assert found.verdict == "no difference"
    assert found.is_enough


def test_little_data_is_not_certain() -> None:
    assert interval([0.2, -0.1, 0.3], 0.05).verdict == "not certain"
    assert Looks(20).now([0.1, 0.2]) is None


def test_slower_is_said_to_be() -> None:
    assert interval([-0.3, -0.31, -0.29, -0.3], 0.05).verdict == "slower"
