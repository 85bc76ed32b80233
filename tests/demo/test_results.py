"""Which printed numbers are results, and whether two programs have the same."""

from __future__ import annotations

from whyidle.monitor.demo.results import compared


def lines(losses: list[float], ms: float) -> str:
    shown = [f"step {i}: loss {loss:.4f}" for i, loss in enumerate(losses)]
    return "\n".join([*shown, f"{ms:.3f} ms a step"])


ONE = [1.0, 0.5, 0.25]


def test_what_the_original_prints_again_is_a_result_and_a_clock_is_none() -> None:
    found = compared([lines(ONE, 3.1), lines(ONE, 3.9)], [lines(ONE, 1.2)], 1e-3)
    assert (found.equal, found.compared, found.difference) == ("equal", 3, 0.0)


def test_a_log_that_got_thinner_is_compared_where_it_has_lines() -> None:
    thin = "step 2: loss 0.2501\n1.0 ms a step"
    found = compared([lines(ONE, 3.1), lines(ONE, 3.9)], [thin], 1e-3)
    assert (found.equal, found.compared) == ("equal", 1)


def test_another_loss_is_different_and_is_named() -> None:
    found = compared([lines(ONE, 1), lines(ONE, 2)], [lines([1.0, 0.5, 0.26], 1)], 1e-3)
    assert found.equal == "different"
    assert "step 2: loss" in (found.why or "")


def test_chance_in_the_original_is_no_result() -> None:
    found = compared([lines(ONE, 1), lines([1.1, 0.6, 0.3], 2)], [lines(ONE, 3)], 1e-3)
    assert found.equal == "unknown"


def test_a_loss_that_is_no_number_any_more() -> None:
    broken = lines(ONE, 1).replace("0.2500", "nan")
    assert compared([lines(ONE, 1), lines(ONE, 2)], [broken], 1e-3).compared == 2
