from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.core.rates import Rates, TreeRate, Used


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


def test_a_share_is_of_what_grew() -> None:
    rates = Rates()
    assert rates.share("a", 5, 10) is None
    assert rates.share("a", 8, 20) == 0.3
    assert rates.share("a", 8, 20) == 0.0
    assert rates.share("a", 0, 1) is None


def used(own: float, reaped: float = 0.0, parent: str | None = None) -> Used:
    return Used(own, reaped, parent)


def test_children_that_nobody_saw_count() -> None:
    tree = TreeRate()
    assert tree.per_second(1.0, {"shell": used(1, 50)}) is None
    assert tree.per_second(3.0, {"shell": used(1, 54)}) == 2


def test_a_child_that_was_seen_does_not_count_again_when_it_is_reaped() -> None:
    tree = TreeRate()
    tree.per_second(1.0, {"shell": used(0), "child": used(7, 0, "shell")})
    assert tree.per_second(2.0, {"shell": used(0), "child": used(9, 0, "shell")}) == 2
    assert tree.per_second(3.0, {"shell": used(0, 10)}) == 1
    assert tree.per_second(4.0, {"shell": used(0, 12)}) == 2


def test_a_parent_that_was_read_before_it_reaped_does_not_count_the_child_again() -> None:
    tree = TreeRate()
    tree.per_second(1.0, {"shell": used(0), "child": used(7, 0, "shell")})
    assert tree.per_second(2.0, {"shell": used(0)}) == 0
    assert tree.per_second(3.0, {"shell": used(0, 8)}) == 1


def test_who_is_reaped_by_somebody_outside_takes_nothing_along() -> None:
    tree = TreeRate()
    tree.per_second(1.0, {"shell": used(0), "orphan": used(100)})
    assert tree.per_second(2.0, {"shell": used(1)}) == 1
    assert tree.per_second(3.0, {"shell": used(1, 2)}) == 2


def test_a_whole_branch_that_ends_is_handed_upwards() -> None:
    tree = TreeRate()
    both = {"middle": used(5, 0, "root"), "leaf": used(20, 0, "middle")}
    tree.per_second(1.0, {"root": used(0), **both})
    assert tree.per_second(2.0, {"root": used(0, 27)}) == 2


def test_only_the_new_count_with_what_they_have_used_so_far() -> None:
    tree = TreeRate()
    tree.per_second(1.0, {"root": used(0)})
    seen = {"root": used(0), "young": used(3, 1, "root"), "old": used(999, 9, "root")}
    assert tree.per_second(2.0, seen, frozenset({"young"})) == 4


def test_what_comes_all_at_once_is_spread() -> None:
    tree = TreeRate()
    tree.per_second(1.0, {"root": used(0)})
    rates = [tree.per_second(t, {"root": used(0, 5)}, most=2) for t in (2.0, 3.0, 4.0, 5.0)]
    assert rates == [2, 2, 1, 0]


def test_time_that_stands_still_loses_no_use() -> None:
    tree = TreeRate()
    tree.per_second(1.0, {"root": used(0)})
    assert tree.per_second(1.0, {"root": used(4)}) is None
    assert tree.per_second(2.0, {"root": used(5)}) == 5


@dataclass
class Process:
    """A process as the kernel keeps it: who it is a child of, and the two totals."""

    parent: int
    own: int = 0
    reaped: int = 0
    is_dead: bool = False


class Kernel:
    """A small machine: 0 is outside, 1 is the job's root. It knows what was really used."""

    def __init__(self) -> None:
        self.table = {1: Process(0)}
        self.born = 1
        self.really_used = 0

    def live(self) -> list[int]:
        return [pid for pid, p in self.table.items() if not p.is_dead]

    def work(self, pid: int, amount: int) -> None:
        self.table[pid].own += amount
        self.really_used += amount

    def fork(self, pid: int) -> None:
        self.born += 1
        self.table[self.born] = Process(pid)

    def end(self, pid: int) -> None:
        self.table[pid].is_dead = True
        for process in self.table.values():
            if process.parent == pid:
                process.parent = 0

    def reap(self, pid: int) -> None:
        gone = self.table.pop(pid)
        if gone.parent in self.table:
            self.table[gone.parent].reaped += gone.own + gone.reaped

    def members(self) -> dict[object, Used]:
        """All that is not reaped, as a perfect observer sees it."""
        return {
            pid: Used(p.own, p.reaped, p.parent if p.parent in self.table else None)
            for pid, p in self.table.items()
        }


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["work", "work", "fork", "end", "reap", "reap", "look"]),
        st.integers(0, 50),
        st.integers(1, 9),
    ),
    max_size=80,
)


@examples(400)
@given(steps=STEPS, orphans=st.booleans())
def test_a_tree_never_counts_less_than_nothing_nor_anything_twice(
    steps: list[tuple[str, int, int]], orphans: bool
) -> None:
    kernel, tree = Kernel(), TreeRate()
    tree.per_second(0.0, kernel.members())
    seen: set[object] = {1}
    counted, now = 0.0, 0.0
    for what, which, amount in [*steps, ("look", 0, 0)]:
        live = kernel.live()
        dead = [pid for pid in kernel.table if pid not in live]
        # The root stays: a job whose root has ended has orphans only.
        mortal = [p for p in live if p != 1 and (orphans or not _has_children(kernel, p))]
        if what == "work":
            kernel.work(live[which % len(live)], amount)
        elif what == "fork":
            kernel.fork(live[which % len(live)])
        elif what == "end" and mortal:
            kernel.end(mortal[which % len(mortal)])
        elif what == "reap" and dead:
            kernel.reap(dead[which % len(dead)])
        elif what == "look":
            now += 1
            members = kernel.members()
            rate = tree.per_second(now, members, frozenset(members.keys() - seen))
            seen |= members.keys()
            assert rate is not None
            assert rate >= 0
            counted += rate
            assert counted <= kernel.really_used
    if not orphans:
        assert counted == kernel.really_used


def _has_children(kernel: Kernel, pid: int) -> bool:
    return any(p.parent == pid for p in kernel.table.values())
