"""`make test` on a crowded machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

ONCE = """
from pathlib import Path
def test_once():
    mark = Path(__file__).with_name("mark")
    there = mark.exists()
    mark.touch()
    assert there
"""


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        (ONCE, 0, "failed among others passed alone"),
        (ONCE + "def test_always(): assert False\n", 1, "test_always"),
    ],
    ids=["fails in the crowd", "fails alone"],
)
def test_what_fails_runs_once_more_alone(source: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    shutil.copy(ROOT / ".ci/tests", tmp_path / ".ci/tests")
    (tmp_path / "test_it.py").write_text(source)
    command = [tmp_path / ".ci/tests", "-n", "1", "test_it.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout.partition("once more and alone")[2]
