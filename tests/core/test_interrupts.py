"""Signals that are handled for a while."""

from __future__ import annotations

import signal

from whyidle.monitor.core.interrupts import handled


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
