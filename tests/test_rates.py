from whyidle.monitor.rates import Rates


def test_a_rate_needs_two_totals() -> None:
    rates = Rates()
    assert rates.per_second("a", 1.0, 10) is None
    assert rates.per_second("a", 3.0, 30) == 10
    assert rates.per_second("b", 3.0, 30) is None


def test_a_reset_is_unknown_and_not_negative() -> None:
    rates = Rates()
    rates.per_second("a", 1.0, 100)
    assert rates.per_second("a", 2.0, 5) is None
    assert rates.per_second("a", 3.0, 7) == 2


def test_a_counter_that_wraps_goes_on() -> None:
    rates = Rates()
    rates.per_second("a", 1.0, 2.0**32 - 10, wraps_at=2.0**32)
    assert rates.per_second("a", 2.0, 20, wraps_at=2.0**32) == 30


def test_time_that_stands_still_gives_no_rate() -> None:
    rates = Rates()
    rates.per_second("a", 1.0, 1)
    assert rates.per_second("a", 1.0, 2) is None
