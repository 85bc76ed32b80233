"""In a notebook, run by the client that tools use: a cell is watched, and the kernel lives on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from whyidle.monitor.store import Reader

pytestmark = [
    pytest.mark.ptrace,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TRAIN = """\
%%whyidle
import time, whyidle.monitor
mark = 0
until = time.monotonic() + 8
while time.monotonic() < until:
    with whyidle.monitor.step():
        sum(range(20_000)); time.sleep(0.01)
        mark += 1
"""


def ran(folder: Path, *cells: str) -> list[Any]:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    NotebookClient(
        book, timeout=90, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    return [cell.outputs for cell in book.cells]


def markdown(outputs: list[Any]) -> str:
    return "\n".join(each["data"].get("text/markdown", "") for each in outputs if "data" in each)


def test_a_cell_is_watched_and_its_names_stay(state: Path, tmp_path: Path) -> None:
    _, watched, after = ran(tmp_path, "%load_ext whyidle", TRAIN, "print(mark > 100)")
    assert "### whyidle:" in markdown(watched)
    assert after[0]["text"] == "True\n"
    with Reader.open(state / "whyidle.db") as reader:
        (run,) = reader.runs()
    assert (run.script, run.is_recording) == (f"a notebook in {tmp_path.name}", False)


def test_live_shows_findings_under_the_cell_until_it_is_stopped(
    state: Path, tmp_path: Path
) -> None:
    _, live, _, other = ran(
        tmp_path,
        "%load_ext whyidle.monitor\nfrom whyidle.monitor.callbacks import notebook\n"
        "notebook.EVERY_SECONDS = 1.0",
        "%whyidle live",
        "import time; time.sleep(4)\n%whyidle stop",
        "%whyidle nonsense",
    )
    assert re.search(r"### whyidle:|has begun", markdown(live))
    assert "%%whyidle" in other[0]["text"]
    with Reader.open(state / "whyidle.db") as reader:
        (run,) = reader.runs()
    assert not run.is_recording
