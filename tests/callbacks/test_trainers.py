"""In each trainer one line marks steps, and logs idle time by cause while a monitor watches."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.callbacks.programs import EVERY
from tests.conftest import ROOT, Monitor, command
from whyidle.monitor.store import Reader

PYTHON = ROOT / ".venv" / "trainers" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=".ci/trainers was not run")


def train(trainer: str, folder: Path, *before: str) -> tuple[list[dict[str, float]], str]:
    script = folder / "train.py"
    script.write_text(EVERY[trainer])
    done = subprocess.run(
        [*before, str(PYTHON), str(script)],
        cwd=folder, capture_output=True, text=True, check=False, timeout=150,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (said,) = [each for each in done.stdout.splitlines() if each.startswith("LOGGED")]
    return json.loads(said.removeprefix("LOGGED ")), done.stdout


@pytest.mark.parametrize("trainer", EVERY)
def test_idle_time_by_cause_reaches_the_users_logger(
    trainer: str, state: Path, tmp_path: Path, monitor: Monitor
) -> None:
    logged, out = train(trainer, tmp_path, *command("run", "--quiet", "--"))
    last = [each for each in logged if "whyidle/idle" in each][-1]
    assert 0 < last["whyidle/idle"] <= 1
    # Beside other work its steps take longer, and its input does not.
    assert last["whyidle/idle_input"] > 0.05
    # Validations and saves may take more than the loader.
    (said,) = [each for each in out.splitlines() if each.startswith("whyidle: ")]
    assert "idle input" in said
    assert "monitor diagnose 1" in out
    (said,) = [each for each in out.splitlines() if each.startswith("TRUTH")]
    truth = json.loads(said.removeprefix("TRUTH "))
    assert min(truth.values()) > 0.04
    listed = json.loads(monitor("diagnose", "last", "--json").stdout)["phases"]
    phases = {phase["name"]: phase["share"] for phase in listed}
    # Five samples a second: of a tenth of 16 s there are eight.
    assert phases == pytest.approx(phases | truth, abs=0.12)
    with Reader.open(state / "whyidle.db") as reader:
        (run,) = reader.runs()
    (who,) = [each for each in (run.info or {})["processes"] if each["counted"]]
    assert who["counted"]["source"] == "whyidle.step"


@pytest.mark.parametrize("trainer", EVERY)
def test_while_nobody_watches_nothing_is_logged_or_printed(trainer: str, tmp_path: Path) -> None:
    logged, out = train(trainer, tmp_path)
    assert logged in ([], [{}])
    assert "whyidle" not in out
