"""What the main thread does: reads in libraries count for the steps alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.signals.activity import loading
from whyidle.monitor.signals.feeding import Feeding
from whyidle.monitor.signals.recorded import Recorded

SCRIPT = """\
import h5py
rows = rows_of("data.h5")
for row in rows:
    step(row)
"""


def job(folder: Path, once: float, of_readers: float) -> Recorded:
    """Return a job that was found so much on the line before its loop, and in h5py."""
    file = folder / "train.py"
    file.write_text(SCRIPT)
    lines = (SourceLine(str(file), 2, "", once), SourceLine(str(file), 4, "", 1 - once))
    h5py, torch = (
        "/venv/site-packages/h5py/_hl/dataset.py",
        "/venv/site-packages/torch/nn/modules/linear.py",
    )
    leaves = (
        SourceLine(h5py, 9, "read", of_readers),
        SourceLine(torch, 7, "forward", 1 - of_readers),
    )
    return Recorded(lines=lines, leaves=leaves)


def test_data_that_is_read_once_before_the_loop_is_not_read_in_the_steps(tmp_path: Path) -> None:
    result = loading(job(tmp_path, once=0.45, of_readers=0.45), Feeding(None))
    assert result is not None
    assert result.share.value == pytest.approx(0.0)


def test_what_a_library_reads_in_the_steps_counts(tmp_path: Path) -> None:
    result = loading(job(tmp_path, once=0.2, of_readers=0.6), Feeding(None))
    assert result is not None
    # At worst the start-up is all of it.
    assert result.share.value == pytest.approx(0.5)
