"""What programs may call: ``import whyidle``, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import whyidle
from tests.dashboard.pairs import AFTER, BEFORE, make
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.paths import DATABASE

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import whyidle

def train(batches: list[int]) -> str:
    for batch in batches:
        with whyidle.step():
            print(batch)
    with whyidle.phase("validation"):
        found = whyidle.diagnose("last")
    faster = whyidle.compare(1, "after").speedup
    return f"{whyidle.__version__}: {found.verdict.text} {faster}"
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHYIDLE_STATE_DIR", str(tmp_path))
    make(tmp_path / DATABASE, BEFORE, AFTER)
    return tmp_path


def test_all_that_is_named_is_there_and_documented_and_nothing_else_is() -> None:
    public = {name for name in vars(whyidle) if not name.startswith("_")}
    shown = public - {"annotations", "TYPE_CHECKING", "monitor", "agents", "dashboard",
                      "demo_workloads"}  # fmt: skip
    assert shown == {name for name in whyidle.__all__ if name != "__version__"}
    assert all(getattr(whyidle, name).__doc__ for name in whyidle.__all__)
    assert whyidle.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = whyidle.nothing  # type: ignore[attr-defined]


@pytest.mark.usefixtures("store")
def test_a_run_is_diagnosed_and_two_are_compared() -> None:
    assert whyidle.diagnose(1).verdict.rule == "input_starved"
    found = whyidle.compare(1, 2)
    assert found.verdict == "faster"
    with pytest.raises(Problem, match="99"):
        whyidle.diagnose(99)


def test_a_job_that_marks_its_steps_loads_nothing_for_it() -> None:
    line = "import sys, whyidle; print(*sorted(m for m in sys.modules if m.startswith('whyidle')))"
    said = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [
        "whyidle", "whyidle.monitor", "whyidle.monitor.core", "whyidle.monitor.core.marks",
    ]  # fmt: skip


def test_the_program_of_a_user_has_types(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    # As it lies where it is installed: a checker cannot follow what an editable install maps.
    installed = tmp_path / "site" / "whyidle"
    installed.mkdir(parents=True)
    (installed / "__init__.py").symlink_to(ROOT / "whyidle" / "__init__.py")
    for each in ("monitor", "agents"):
        (installed / each).symlink_to(ROOT / each)
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent",
         "train.py"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(installed.parent)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout
