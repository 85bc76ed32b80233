"""Where steps are very fast only some are noted, and the result holds for all."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from tests.agents.torch.inside import Observed, probe
from whyidle.agents import wire
from whyidle.agents.downsampling import BURST, ROUND, Downsampler
from whyidle.agents.main_thread import MainThreadCall
from whyidle.agents.timers import SECOND
from whyidle.agents.torch import steps as steps_module
from whyidle.agents.torch.stepped_optimizers import SteppedOptimizers

torch = pytest.importorskip("torch")

STEP_NS, INSIDE_NS = 100_000, 30_000
SLOW_NS = 4_000_000
# They fill a second.
FAST, SLOW = SECOND // STEP_NS, SECOND // SLOW_NS


class Job:
    """Optimizers that step in turns, by a clock that only their steps move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, optimizers: int = 1) -> None:
        self.step_ns = STEP_NS
        self.optimizers = [self._optimizer() for _ in range(optimizers)]
        # Read last: the first optimizer imports the compiler, which may take many seconds.
        self.now = time.monotonic_ns()
        monkeypatch.setattr(steps_module, "monotonic_ns", lambda: self.now)

    def _optimizer(self) -> Any:
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        optimizer.register_step_post_hook(lambda *_: self._goes_on(INSIDE_NS))
        return optimizer

    def _goes_on(self, ns: int) -> None:
        self.now += ns

    def train(self, observed: Observed, steps: int) -> dict[str, int | None]:
        """Step so often, as if in the second that ends then, and return its gauges."""
        self.now = observed.now + SECOND - steps * len(self.optimizers) * self.step_ns
        for _ in range(steps):
            for optimizer in self.optimizers:
                self._goes_on(self.step_ns - INSIDE_NS)
                optimizer.step()
        return observed.second()


def durations(observed: Observed) -> list[int]:
    assert observed.steps is not None
    found: list[int] = observed.steps[-1]
    return found


def noted(observed: Observed) -> float | None:
    """Return the share of the steps that is noted, where it is not all."""
    observed.probe._put_state(observed.now)
    found: float | None = observed.state().get("timed_optimizer_steps")
    return found


def test_all_are_counted_and_the_times_of_some_stand_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch)
    with probe() as observed:
        first = job.train(observed, FAST)
        assert (first[wire.OPTIMIZER_STEPS], first[wire.STEPS]) == (FAST, FAST - 1)
        assert noted(observed) == round(BURST / ROUND, 3)
        for number in range(2, 5):
            found = job.train(observed, FAST)
            assert found[wire.OPTIMIZER_STEPS] == number * FAST
            assert found[wire.STEPS] == pytest.approx(number * FAST, rel=0.001)
            assert found[wire.OPTIMIZER_NS] == pytest.approx(number * FAST * INSIDE_NS, rel=0.001)
            # Not one of them is the time between two rounds.
            assert set(durations(observed)) == {STEP_NS}
            assert observed.steps is not None
            assert observed.steps[4] == pytest.approx(FAST, rel=0.001)


def test_a_round_whose_first_number_was_not_a_steps_is_recognised_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The agent's own check takes a number, and that may be any."""
    job = Job(monkeypatch, 0)
    downsampler = Downsampler(0, 1)
    notes: list[tuple[int, int, int]] = []
    began, ended = steps_module._hooks(
        notes.append, {}, SteppedOptimizers(), MainThreadCall(None), downsampler
    )
    downsampler.active.append(True)
    for _ in range(20 * ROUND):
        job.now += 1
        if downsampler.position[0] == ROUND - 1:
            downsampler.number()
        began(job, (), {})
        ended(job, (), {})
    ends = [0 if note == steps_module.BETWEEN else note[2] for note in notes]
    assert ends.count(0) >= 15
    for before, after in itertools.pairwise(ends):
        assert 0 in {before, after} or after - before == 1


def test_a_step_that_begins_in_one_round_and_ends_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads step side by side: one's last number of a round comes before the other's end."""
    job = Job(monkeypatch)
    downsampler = Downsampler(0, 1)
    notes: list[tuple[int, int, int]] = []
    began, ended = steps_module._hooks(
        notes.append, {}, SteppedOptimizers(), MainThreadCall(None), downsampler
    )
    downsampler.active.append(True)
    for _ in range(3):
        downsampler.position[0] = ROUND - 1
        began(job, (), {})
        # The other thread's step ends meanwhile, with the number 0.
        downsampler.position[0] = 0
        ended(job, (), {})
        downsampler.position[0] = 1
        began(job, (), {})
        ended(job, (), {})
    assert [note == steps_module.BETWEEN for note in notes] == [True, False] * 3


def test_when_they_become_slow_all_are_noted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch)
    with probe() as observed:
        job.train(observed, FAST)
        before = job.train(observed, FAST)
        job.step_ns = SLOW_NS
        for number in range(3):
            found = job.train(observed, SLOW)
            grown = {name: (found[name] or 0) - (before[name] or 0) for name in found}
            before = found
            assert grown[wire.OPTIMIZER_STEPS] == SLOW
            assert grown[wire.OPTIMIZER_NS] == SLOW * INSIDE_NS
            # In the first second some were still skipped.
            assert grown[wire.STEPS] == pytest.approx(SLOW, abs=1 if number else BURST)
            assert set(durations(observed)) == {SLOW_NS}


def test_of_two_optimizers_the_steps_of_one_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, 2)
    with probe() as observed:
        job.train(observed, FAST // 2)
        found = job.train(observed, FAST // 2)
        assert found[wire.OPTIMIZER_STEPS] == 2 * FAST
        assert found[wire.STEPS] == pytest.approx(FAST, rel=0.01)
        assert set(durations(observed)) == {2 * STEP_NS}


def test_of_one_optimizer_for_each_parameter_all_steps_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, 40)
    with probe() as observed:
        for number in range(1, 4):
            found = job.train(observed, FAST // 40)
            assert found[wire.OPTIMIZER_STEPS] == number * FAST
        assert noted(observed) is None
        assert set(durations(observed)[:-1]) == {40 * STEP_NS}


def test_what_a_fast_optimizer_reads_is_still_its_own_affair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch)
    reads = torch.ones(())
    job.optimizers[0].register_step_post_hook(lambda *_: reads.item() and None)
    with probe() as observed:
        job.train(observed, FAST)
        before = job.train(observed, 3 * ROUND)
        after = job.train(observed, 3 * ROUND)
        assert after[wire.SYNCS] == before[wire.SYNCS]


def test_fast_steps_with_a_closure_are_counted_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch)
    (optimizer,) = job.optimizers
    plain = optimizer.step
    optimizer.step = lambda: plain(lambda: None)
    with probe() as observed:
        job.train(observed, SLOW)
        for second in range(1, 5):
            found = job.train(observed, FAST)
            assert found[wire.OPTIMIZER_STEPS] == pytest.approx(SLOW + second * FAST, rel=0.01)
            assert found[wire.STEPS] == pytest.approx(SLOW + second * FAST, rel=0.01)
            assert found[wire.OPTIMIZER_NS] is None


@pytest.mark.parametrize("pause", [0.0005, 0.005])
def test_a_critic_that_steps_twice_for_a_batch_makes_no_step_of_its_own(pause: float) -> None:
    """Also where so many steps are made that only some are noted."""
    loader = torch.utils.data.DataLoader(torch.ones(200, 2))
    critic, generator = (
        torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1) for _ in range(2)
    )
    order = (critic, critic, generator)

    def epoch() -> None:
        for _ in loader:
            for each in order:
                each.step()
            time.sleep(pause)

    epoch()
    with probe() as observed:
        for _ in range(4):
            epoch()
            observed.now = time.monotonic_ns() - SECOND
            observed.second()
        assert observed.steps is not None
        assert observed.steps[4] == pytest.approx(len(loader), rel=0.1)
