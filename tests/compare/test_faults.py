"""Findings of two sides, beside each other."""

from __future__ import annotations

import shutil
from pathlib import Path

from whyidle.dashboard import sample
from whyidle.monitor import compare


def test_a_finding_that_stays_is_called_what_fits_both_sides(tmp_path: Path) -> None:
    store = Path(shutil.copy(sample.STORE, tmp_path))
    starved, mended = compare.of_run(store, "4"), compare.of_run(store, "3")
    for a, b in ((starved, mended), (mended, starved)):
        (fault,) = compare.compare(a, b).faults.kept
        assert fault.rule == "input_starved"
        # The one that was mended says more: that all cores load already.
        assert fault.title == "The device waits for the next batch"
