from collections.abc import Callable

import pytest

from tests.conftest import start_job
from whyidle.monitor.recording import sampler
from whyidle.monitor.recording.sampler import Sampler
from whyidle.monitor.recording.waker import Wake, Waker


class Clock:
    """Time that passes only when somebody waits or works."""

    def __init__(self) -> None:
        self.now = 100.0
        self.wakes: list[Wake] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> Wake:
        self.now += max(0.0, seconds)
        return self.wakes.pop(0) if self.wakes else Wake.TIME


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sampler.time, "monotonic", clock.monotonic)
    return clock


def ticks_of(clock: Clock, work: Callable[[int], float], count: int) -> tuple[Sampler, list[float]]:
    at: list[float] = []

    def tick() -> bool:
        at.append(round(clock.now - 100, 3))
        clock.now += work(len(at))
        return len(at) < count

    found = Sampler(1.0, clock)  # type: ignore[arg-type]
    assert found.run(tick) is Wake.JOB
    return found, at


def test_the_first_tick_comes_at_once_and_the_others_on_the_second(clock: Clock) -> None:
    _, at = ticks_of(clock, lambda _: 0.3, 4)
    assert at == [0, 1, 2, 3]


def test_a_late_tick_is_left_out_and_counted(clock: Clock) -> None:
    found, at = ticks_of(clock, lambda n: 2.5 if n == 2 else 0.0, 4)
    assert at == [0, 1, 4, 5]
    assert found.missed == 2


def test_it_ends_when_the_time_is_up(clock: Clock) -> None:
    seen: list[float] = []

    def tick() -> bool:
        seen.append(clock.now)
        return True

    assert Sampler(2.0, clock).run(tick, seconds=1.2) is Wake.TIME  # type: ignore[arg-type]
    assert len(seen) == 3
    assert clock.now == pytest.approx(101.2)


def test_the_end_of_the_job_is_looked_at_at_once(clock: Clock) -> None:
    clock.wakes = [Wake.JOB]
    alive = iter([True, False])
    assert Sampler(0.1, clock).run(lambda: next(alive)) is Wake.JOB  # type: ignore[arg-type]


def test_a_stop_ends_it(clock: Clock) -> None:
    clock.wakes = [Wake.TIME, Wake.STOP]
    assert Sampler(1.0, clock).run(lambda: True) is Wake.STOP  # type: ignore[arg-type]


def test_slower_from_now_on(clock: Clock) -> None:
    found = Sampler(1.0, clock)  # type: ignore[arg-type]
    found.slow_down()
    assert found.period == 2.0


def test_a_waker_wakes_for_a_stop_and_for_the_end_of_a_process() -> None:
    with start_job() as job:
        waker = Waker(job.pid)
        assert waker.wait(0.0) is Wake.TIME
        job.kill()
        assert waker.wait(30.0) is Wake.JOB
        waker.stop()
        assert waker.wait(30.0) is Wake.STOP
        waker.close()


def test_a_process_that_is_gone_already_does_not_wake() -> None:
    with start_job() as job:
        job.kill()
    waker = Waker(job.pid)
    assert waker.wait(0.0) is Wake.TIME
    waker.close()
