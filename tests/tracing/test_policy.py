"""When a trace is taken without a request, with the test's own clock."""

from __future__ import annotations

import pytest

from whyidle.monitor.tracing.policy import (
    AGAIN_SECONDS,
    BETWEEN_PARTS_SECONDS,
    LEAST_SECONDS,
    MOST_KNOWN,
    MOST_PARTS,
    MOST_REFUSALS,
    SELDOM_SECONDS,
    STARVED_SECONDS,
    Outcome,
    Policy,
    Sign,
    window,
)

BUSY = {"compute": 90, "idle_input": 10}
WAITING = {"compute": 40, "idle_input": 60}


def next_after(policy: Policy, now: float, *, starved: bool | None = True) -> float:
    """Return how long after ``now`` the next trace is wanted."""
    return next(s for s in range(100_000) if policy.wants(now + s, starved=starved))


# The sign ----------------------------------------------------------------------------------------
def test_a_gpu_that_waits_for_ten_seconds_is_a_sign() -> None:
    sign = Sign()
    found = [sign.look(float(second), low=True) for second in range(15)]
    assert found == [False] * 10 + [True] * 5


def test_a_gpu_that_waits_for_a_moment_is_none() -> None:
    sign = Sign()
    assert not any(sign.look(float(s), low=s in {5, 6, 7}) for s in range(60))


def test_a_gpu_that_is_busy_for_a_moment_waits_all_the_same() -> None:
    sign = Sign()
    found = [sign.look(float(s), low=s % 5 != 0) for s in range(60)]
    assert all(found[int(STARVED_SECONDS) :])


def test_a_gpu_that_is_fed_again_stops_to_be_a_sign() -> None:
    sign = Sign()
    for second in range(20):
        sign.look(float(second), low=True)
    found = [sign.look(float(second), low=False) for second in range(20, 40)]
    assert found[0] is True
    assert found[-1] is False


def test_what_is_not_measured_is_no_sign_either_way() -> None:
    sign = Sign()
    for second in range(20):
        sign.look(float(second), low=True)
    assert sign.look(20.0, low=None) is None
    assert sign.look(21.0, low=True) is False


# How often ---------------------------------------------------------------------------------------
def test_a_busy_gpu_gives_reason_for_one_trace_that_shows_its_work() -> None:
    policy, nothing = Policy(1.0), dict.fromkeys(BUSY, 0)
    # One of a moment in which it waited says nothing of the rest.
    policy.taken("a", 0.0, Outcome(0.1, WAITING, 4), starved=True)
    assert policy.wants(1000.0, starved=False)
    # Of one that met nothing but a compilation nobody knows what the GPU computes.
    policy.taken("a", 1000.0, Outcome(0.1, nothing, 0), starved=False)
    assert next_after(policy, 1000.0, starved=False) == BETWEEN_PARTS_SECONDS
    policy.taken("a", 1000.0, Outcome(0.1, BUSY, 0), starved=False)
    assert not policy.wants(1e9, starved=False)
    assert policy.wants(1e9, starved=True)


def test_a_busy_gpu_whose_work_no_trace_shows_is_left_alone_after_a_few() -> None:
    policy, taken = Policy(1.0), 0
    while policy.wants(1e6 * taken, starved=False):
        policy.taken("a", 1e6 * taken, Outcome(0.1, {"idle_unknown": 9}, 0), starved=False)
        taken += 1
    assert taken == MOST_PARTS


@pytest.mark.parametrize("starved", [True, None])
def test_a_waiting_gpu_and_one_that_nobody_measures_give_one(starved: bool | None) -> None:
    assert Policy().wants(1000.0, starved=starved)


def test_without_a_share_of_the_time_there_is_none() -> None:
    assert not Policy(0.0).wants(1000.0, starved=True)


def test_traces_keep_to_their_share_of_the_time() -> None:
    policy = Policy(0.01)
    policy.taken("a", 0.0, Outcome(2.0, WAITING, 4), starved=True)
    assert next_after(policy, 0.0) == 200.0


def test_also_one_that_was_of_no_use_counts() -> None:
    policy = Policy(0.01)
    policy.failed(0.0, 3.0)
    assert next_after(policy, 0.0) == 300.0


def test_even_short_traces_are_half_a_minute_apart() -> None:
    policy = Policy(1.0)
    policy.taken("a", 0.0, Outcome(0.01, WAITING, 4), starved=True)
    assert next_after(policy, 0.0) == LEAST_SECONDS


def test_traces_that_show_the_same_come_less_and_less_often() -> None:
    policy, waits = Policy(1.0), []
    for _ in range(6):
        policy.taken("a", 0.0, Outcome(0.1, WAITING, 4), starved=True)
        waits.append(next_after(policy, 0.0))
    assert waits == [30, 60, 120, 240, 300, 300]


def test_one_that_shows_something_else_brings_the_next_one_soon() -> None:
    policy = Policy(1.0)
    for _ in range(6):
        policy.taken("a", 0.0, Outcome(0.1, WAITING, 4), starved=True)
    policy.taken("a", 0.0, Outcome(0.1, BUSY, 4), starved=True)
    assert next_after(policy, 0.0) == LEAST_SECONDS


def test_small_differences_are_the_same() -> None:
    policy = Policy(1.0)
    policy.taken("a", 0.0, Outcome(0.1, {"compute": 40, "idle_input": 60}, 4), starved=True)
    policy.taken("a", 0.0, Outcome(0.1, {"compute": 43, "idle_input": 57}, 4), starved=True)
    assert next_after(policy, 0.0) == 2 * LEAST_SECONDS


def test_a_job_whose_gpu_is_not_measured_is_traced_seldom() -> None:
    policy = Policy(1.0)
    policy.taken("a", 0.0, Outcome(0.1, WAITING, 4), starved=None)
    assert next_after(policy, 0.0, starved=None) == SELDOM_SECONDS


def test_parts_of_a_step_come_soon_one_after_another_and_then_as_seldom_as_others() -> None:
    policy, waits = Policy(1.0), []
    for _ in range(MOST_PARTS + 1):
        policy.taken("a", 0.0, Outcome(0.1, WAITING, 0), starved=None)
        waits.append(next_after(policy, 0.0, starved=None))
    assert waits == [BETWEEN_PARTS_SECONDS] * (MOST_PARTS - 1) + [SELDOM_SECONDS] * 2
    # They keep to the share of the time that there is for traces.
    slow = Policy(0.01)
    slow.taken("a", 0.0, Outcome(0.1, WAITING, 0), starved=None)
    assert next_after(slow, 0.0) == 10.0


# Refusals ----------------------------------------------------------------------------------------
def test_who_refuses_is_asked_again_later_and_later_and_then_no_more() -> None:
    policy, now, waits = Policy(), 0.0, []
    while True:
        is_last = policy.refused("a", now, "the job profiles itself")
        if is_last:
            break
        wait = next(s for s in range(1000) if policy.may_ask("a", now + s))
        waits.append(float(wait))
        now += wait
    assert waits == list(AGAIN_SECONDS[: MOST_REFUSALS - 1])
    assert not policy.may_ask("a", now + 1e9)


def test_who_has_other_reasons_is_asked_on_but_seldom() -> None:
    policy = Policy()
    for turn in range(50):
        assert not policy.refused("a", 0.0, f"reason {'ab'[turn % 2]}")
    assert not policy.may_ask("a", AGAIN_SECONDS[-1] - 1)
    assert policy.may_ask("a", AGAIN_SECONDS[-1])


def test_figures_in_a_reason_make_no_other_one() -> None:
    policy = Policy()
    found = [policy.refused("a", 0.0, f"it would take {ms} ms") for ms in range(MOST_REFUSALS)]
    assert found == [False] * (MOST_REFUSALS - 1) + [True]


def test_one_process_that_refuses_keeps_no_other_from_being_asked() -> None:
    policy = Policy()
    policy.refused("a", 0.0, "no")
    assert not policy.may_ask("a", 1.0)
    assert policy.may_ask("b", 1.0)


def test_a_trace_makes_refusals_forgotten() -> None:
    policy = Policy()
    for _ in range(MOST_REFUSALS - 1):
        policy.refused("a", 0.0, "no")
    policy.taken("a", 0.0, Outcome(0.1, BUSY, 4), starved=True)
    assert not policy.refused("a", 0.0, "no")


def test_of_many_processes_that_came_and_went_nothing_is_kept() -> None:
    policy = Policy()
    for who in range(10 * MOST_KNOWN):
        policy.refused(who, 0.0, "no")
        policy.keep_only({who})
    assert len(policy._refused) <= MOST_KNOWN + 1


# The window --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("step", "seconds"), [(None, 0.25), (0.001, 0.25), (0.1, 0.4), (0.3, 1.2), (60.0, 2.0)]
)
def test_a_window_holds_a_few_steps_and_is_never_long(step: float | None, seconds: float) -> None:
    assert window(step) == pytest.approx(seconds)
