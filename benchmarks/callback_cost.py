"""What a callback costs each step: while nobody watches, and while an agent listens.

.venv/bin/python benchmarks/callback_cost.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from whyidle.monitor.callbacks.watched import Watched, step_ended
from whyidle.monitor.core import marks

STEPS, ROUNDS = 100_000, 15


def each_ns(step: Callable[[], object]) -> float:
    """Return the middle time of a call, in ns; without that of the loop."""

    def round_of(call: Callable[[], object]) -> float:
        began = time.perf_counter_ns()
        for _ in range(STEPS):
            call()
        return (time.perf_counter_ns() - began) / STEPS

    return statistics.median(round_of(step) - round_of(lambda: None) for _ in range(ROUNDS))


def main() -> None:
    """Print both."""
    watched = Watched()

    def step() -> None:
        step_ended()
        watched.news()

    print(f"nobody watches:    {each_ns(step):6.0f} ns a step")
    ticks: list[int] = []
    marks.listener = lambda: ticks.append(1)
    marks.told = {"run": 1, "parts": {"compute": 1.0}}
    print(f"an agent listens:  {each_ns(step):6.0f} ns a step")


if __name__ == "__main__":
    main()
