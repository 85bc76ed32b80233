"""Programs with a fault and without it: each signal of the agent separates the two.

The other signals of these faults (operations in a step, and what they read) need a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.agents.torch.inside import Watched, training
from tests.agents.torch.programs import program
from whyidle.agents import wire

SECONDS = 3


class Seen:
    """What the agent reported of some seconds of a program."""

    def __init__(self, job: Watched) -> None:
        # The first step after the agent came may be half a step.
        job.gauges(2)
        faults = _faults(job.pid)
        self.first, *_, self.last = job.gauges(SECONDS + 1)
        self.span_ns = SECONDS * 10**9
        self.steps = max(self.grown(wire.STEPS), 1)
        self.faults = (_faults(job.pid) - faults) / self.steps
        job.until("state", lambda record: record[2] == "torch")
        self.state: dict[str, Any] = job.of("state")[-1][3]
        places = [place for record in job.of("stacks") for place in record[4]]
        # A program of no file has no owner: its lines are reported only where they are innermost.
        loading = sum(count for count, leaf, *_ in places if leaf[2] == "__getitem__")
        self.loading = loading / max(sum(count for count, *_ in places), 1)

    def grown(self, name: str) -> float:
        return float((self.last[name] or 0) - (self.first[name] or 0))

    def a_step(self, name: str) -> float:
        return self.grown(name) / self.steps


def _faults(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return int(stat.rpartition(")")[2].split()[7])


def loads_in_the_main_thread(seen: Seen) -> bool:
    return seen.state["loaders"][0]["workers"] == 0 and seen.loading > 0.7


def reads_in_each_step(seen: Seen) -> bool:
    return seen.a_step(wire.SYNCS) > 5


def keeps_full_precision(seen: Seen) -> bool:
    return seen.a_step(wire.AUTOCASTS) < 0.1 and not seen.state["autocast"]


def has_small_batches(seen: Seen) -> bool:
    return seen.state["batch_size"] < 16 and abs(seen.a_step(wire.SAMPLES) - 4) < 1


def grows(seen: Seen) -> bool:
    return seen.grown(wire.RSS_PEAK_BYTES) > (20 << 20)


def collects_garbage(seen: Seen) -> bool:
    # On a full machine every pause is long; how many there are depends on the program alone.
    often = seen.a_step(wire.GC_COLLECTIONS) > 4
    return often and seen.grown(wire.GC_NS) / seen.span_ns > 0.4


def faults_in_pages(seen: Seen) -> bool:
    return seen.faults > 2048


SIGNALS: dict[str, Callable[[Seen], bool]] = {
    "slow_loader": loads_in_the_main_thread,
    "item_logging": reads_in_each_step,
    "bf16": keeps_full_precision,
    "tiny_batch": has_small_batches,
    "graph_leak": grows,
    "gc_churn": collects_garbage,
    "reallocation": faults_in_pages,
}


def seen_of(name: str, *, bad: bool, folder: Path) -> Seen:
    place = folder / str(bad)
    place.mkdir()
    with training(program(name, bad=bad), place) as job:
        return Seen(job)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_separates_the_fault_from_its_cure(name: str, tmp_path: Path) -> None:
    run = partial(seen_of, name, folder=tmp_path)
    with ThreadPoolExecutor() as both:
        bad, good = both.submit(run, bad=True), both.submit(run, bad=False)
    results = [(SIGNALS[name](seen), vars(seen)) for seen in (bad.result(), good.result())]
    assert [one for one, _ in results] == [True, False], results
