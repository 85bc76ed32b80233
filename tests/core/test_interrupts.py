"""Signals that are handled for a while, and those that end us."""

from __future__ import annotations

import signal

import pytest

from whyidle.monitor.core import interrupts
from whyidle.monitor.core.interrupts import ended_by_signals, handled


def test_they_are_handled_and_then_as_before_and_what_is_ignored_stays_so() -> None:
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with handled((signal.SIGHUP, signal.SIGTERM), lambda number, _frame: came.append(number)):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for number, was in before.items():
            signal.signal(number, was)


class Clears:
    """Python drops what is raised while this goes."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_the_first_ends_us_and_what_follows_soon_does_not_disturb_the_clearing_up() -> None:
    cleared: list[bool] = []

    def work() -> None:
        with ended_by_signals():
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGTERM)
                cleared.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleared


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_python_has_dropped_can_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "CLEARS_WITHIN", 0.0)
    went_on: list[bool] = []

    def work() -> None:
        with ended_by_signals():
            thing = Clears()
            del thing
            went_on.append(True)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        work()
    assert went_on
    assert ended.value.code == 0
