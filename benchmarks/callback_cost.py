"""What a callback costs each step: while nobody watches, and while an agent listens.

.venv/bin/python benchmarks/callback_cost.py [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.results import Result, print_results
from whyidle.monitor.callbacks.watched import Watched, step_ended
from whyidle.monitor.core import marks

STEPS, ROUNDS = 100_000, 15
# Of a step of a tenth of a millisecond, one in a hundred.
BAR_NS = 1000.0


def each_ns(step: Callable[[], object]) -> float:
    """Return the middle time of a call, in ns; without that of the loop."""

    def round_of(call: Callable[[], object]) -> float:
        began = time.perf_counter_ns()
        for _ in range(STEPS):
            call()
        return (time.perf_counter_ns() - began) / STEPS

    return statistics.median(round_of(step) - round_of(lambda: None) for _ in range(ROUNDS))


def validation() -> None:
    """Mark a phase and its end, as a validation does every some hundred steps."""
    marks.phase_began("validation")
    marks.phase_ended()


def main() -> None:
    """Print what a step costs, and a phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    watched = Watched()

    def step() -> None:
        # What the trainer calls before a step, and after it.
        marks.in_steps()
        step_ended()
        watched.news()

    found = [Result("a step, no agent", each_ns(step), "ns", BAR_NS)]
    ticks: list[int] = []
    marks.listener = lambda: ticks.append(1)
    marks.told = {"run": 1, "parts": {"compute": 1.0}}
    found += [
        Result("a step, an agent listens", each_ns(step), "ns", BAR_NS),
        Result("a phase, its begin and end", each_ns(validation), "ns"),
    ]
    print_results(found, as_json=as_json)


if __name__ == "__main__":
    main()
