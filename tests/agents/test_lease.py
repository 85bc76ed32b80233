"""Which client keeps the agent alive, and when its lease ends."""

from __future__ import annotations

from whyidle.agents import lease, wire
from whyidle.agents.lease import Leases

SECOND = 1_000_000_000


def test_who_has_left_gets_no_lease_any_more() -> None:
    leases = Leases(0)
    leases.renew(1, 0, 0, SECOND)
    leases.renew(2, 0, 0, SECOND)
    leases.leave(2)
    # It asked once more before it read the answer.
    leases.renew(2, 0, 0, SECOND)
    assert not leases.are_over(SECOND)
    leases.leave(1)
    assert leases.are_over(SECOND)


def test_a_lease_ends_by_itself() -> None:
    leases = Leases(0)
    leases.renew(1, 0, 0, SECOND)
    assert not leases.are_over(int(wire.LEASE_SECONDS * SECOND))
    assert leases.are_over(int((wire.LEASE_SECONDS + 2) * SECOND))


def test_of_those_who_left_a_bounded_number_is_remembered() -> None:
    leases = Leases(0)
    for client in range(10 * lease._MOST_GONE):
        leases.leave(client)
    assert len(leases._gone) == lease._MOST_GONE


def test_of_several_leases_the_last_counts() -> None:
    leases = Leases(0)
    leases.renew(1, 0, 0, SECOND)
    leases.renew(2, 0, 0, 2 * SECOND)
    leases.leave(2)
    last = int((wire.LEASE_SECONDS + 1) * SECOND)
    assert not leases.are_over(last)
    assert leases.are_over(last + 1)


def test_who_is_gone_without_a_word_need_not_read() -> None:
    leases = Leases(0)
    leases.renew(1, 5, 0, SECOND)
    leases.renew(2, 9, 0, SECOND)
    assert not leases.have_all_read(9, 0)
    leases.renew(2, 9, 0, int((wire.LEASE_SECONDS + 2) * SECOND))
    assert leases.have_all_read(9, 0)
