"""The rule metrics_on_host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, of_rows, written
from tests.rules.windows import cannot_judge, found, is_silent, window
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.signals.window import Window

NAME = "metrics_on_host"
_BEFORE = """
hits, samples, is_last_batch = 0, 4, True
"""
_ROWS = "([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])"
FIXES = {
    "pytorch": (
        f"{_BEFORE}import torch\nlogits, labels = torch.tensor{_ROWS}, torch.tensor([1, 0, 1, 1])",
        "assert hits.item() == 3",
    ),
    "jax": (
        f"{_BEFORE}from jax.numpy import array\nlogits, labels = array{_ROWS}, array([1, 0, 1, 1])",
        "assert int(hits) == 3",
    ),
}
# Line 4 scores, and line 3 computes.
LIBRARIES = {
    "sklearn": (f"{LIB}/sklearn/metrics/_classification.py", "f1_score"),
    "torchmetrics": (f"{LIB}/torchmetrics/metric.py", "compute"),
    "evaluate": (f"{LIB}/evaluate/module.py", "compute"),
}
STEPS = "def turn(self, batch):\n    x = 1\n    out = self.model(batch)\n    self.tell(out)\n"
VALIDATES = """\
@torch.no_grad()
def look():
    for x in held_out:
        tell(model.eval()(x))
"""


def job(tmp_path: Path, source: str, library: str, share: float) -> Window:
    rows = [(3, TORCH, 1000 * (1 - share)), (4, LIBRARIES[library], 1000 * share)]
    return of_rows(written(tmp_path, source), rows)


@pytest.mark.parametrize("library", LIBRARIES)
def test_scores_in_each_step(library: str, tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path, STEPS, library, 0.3))
    assert finding.title == "Scoring on the host takes 30% of the main thread's time"
    assert finding.where[0].line == 4
    assert finding.gain is not None
    assert 0.2 < finding.gain.low < 0.3 < finding.gain.high < 0.34
    assert diagnose(job(tmp_path, STEPS, library, 0.3)).findings[0].rule.id == NAME


def test_a_function_behind_a_decorator_is_known_by_its_import(tmp_path: Path) -> None:
    source = "from sklearn.metrics import f1_score as score\n\nout = model(x)\nscore(y, out)\n"
    file = written(tmp_path, source)
    checks = (f"{LIB}/sklearn/utils/_param_validation.py", "wrapper")
    assert found(NAME, of_rows(file, [(3, TORCH, 700), (4, checks, 300)])).where[0].line == 4
    elsewhere = source.replace(".metrics import f1_score", ".cluster import k_means")
    file.with_name("other.py").write_text(elsewhere)
    other = of_rows(file.with_name("other.py"), [(3, TORCH, 700), (4, checks, 300)])
    assert is_silent(NAME, other)


@pytest.mark.parametrize("library", LIBRARIES)
def test_scores_of_a_validation_are_a_part_of_it(library: str, tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, VALIDATES, library, 0.3))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_little_of_it_is_healthy(library: str, tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, STEPS, library, 0.02))


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())
