"""Findings of two sides, beside each other."""

from __future__ import annotations

import pytest

from tests.rules.windows import recorded
from whyidle.monitor import compare
from whyidle.monitor.compare import opening

TITLE = "The device waits for the next batch"
# Two pairs of recordings that have one fault: of other causes, and of the same one.
KEPT = {
    ("input_starved/before_torch", "input_starved/after_torch"): TITLE,
    ("few_cpus_allowed/after_torch", "restarted_workers/after_torch"): (
        "The data loader is slow: it copies batches from its workers"
    ),
}


@pytest.mark.parametrize("names", KEPT)
def test_a_finding_that_stays_is_called_what_fits_both_sides(names: tuple[str, str]) -> None:
    one, two = (opening.of_window(recorded(name), name) for name in names)
    for a, b in ((one, two), (two, one)):
        kept = {fault.rule: fault.title for fault in compare.compare(a, b).faults.kept}
        assert kept["input_starved"] == KEPT[names]
