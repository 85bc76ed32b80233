"""The rule logging_each_step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.phases import LIB, STDLIB, TORCH, of_rows, written
from tests.rules.windows import cannot_judge, found, is_silent, names, severity, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.signals.activity import loading

NAME = "logging_each_step"
_BEFORE = """
import io, json
step, total, log = 100, 0.0, io.StringIO()
"""
_AFTER = 'assert json.loads(log.getvalue()) == {"step": 100, "loss": 0.5} and total == 0.0'
FIXES = {
    "pytorch": (f"{_BEFORE}import torch\nloss = torch.tensor(50.0)", _AFTER),
    "jax": (f"{_BEFORE}import jax.numpy as jnp\nloss = jnp.array(50.0)", _AFTER),
}
# Line 5 writes, whatever by.
STYLES = {
    "a file of lines": (
        """
import json
for x in batches:
    loss = model(x)
    log.write(json.dumps({"step": step}))
""",
        (f"{STDLIB}/json/encoder.py", "iterencode"),
    ),
    "a print": (
        "\n\nfor x in batches:\n    loss = model(x)\n    print('.', flush=True)\n",
        None,
    ),
    "Python's logging": (
        "\ndef turn(self, batch):\n    out = self.model(batch)\n\n    self.says(out)\n",
        (f"{STDLIB}/logging/__init__.py", "info"),
    ),
    "W&B": (
        "\nimport wandb\ndef turn(batch):\n    out = model(batch)\n    track({'loss': out})\n",
        (f"{LIB}/wandb/sdk/wandb_run.py", "log"),
    ),
    "TensorBoard": (
        "\nclass Hook:\n    def __call__(self, s):\n\n        self.board.put(s)\n",
        (f"{LIB}/torch/utils/tensorboard/writer.py", "add_histogram"),
    ),
    "a plot": (
        "\nimport matplotlib.pyplot as plt\nfor x in batches:\n    model(x)\n    draw(x)\n",
        (f"{LIB}/matplotlib/figure.py", "savefig"),
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_what_writes_is_known_in_any_style(style: str, tmp_path: Path) -> None:
    source, library = STYLES[style]
    job = of_rows(written(tmp_path, source), [(4, TORCH, 700), (5, library, 300)])
    finding = found(NAME, job)
    # It has the name of what is called there.
    assert finding.title is not None
    assert finding.title.endswith("() takes 30% of the main thread's time")
    assert finding.where[0].line == 5
    assert severity(NAME, finding) is Severity.HIGH
    assert finding.gain is not None
    assert 0.25 < finding.gain.low < 0.3 < finding.gain.high < 0.34
    # What is written is not read: no loader is meant.
    assert [each.rule.id for each in diagnose(job).findings] == [NAME]


@pytest.mark.parametrize(("file", "is_read"), [("encoder", False), ("decoder", True)])
def test_json_that_is_written_is_no_data(file: str, *, is_read: bool, tmp_path: Path) -> None:
    source, _ = STYLES["a file of lines"]
    library = f"{STDLIB}/json/{file}.py", "raw_decode" if is_read else "iterencode"
    job = of_rows(written(tmp_path, source), [(4, TORCH, 700), (5, library, 300)])
    seen = loading(replace(job.job, leaves=job.job.stacks.leaves()), job.feeding)
    assert seen is not None
    assert (seen.share.value > 0) == is_read


@pytest.mark.parametrize("style", STYLES)
def test_a_little_of_it_is_healthy(style: str, tmp_path: Path) -> None:
    source, library = STYLES[style]
    job = of_rows(written(tmp_path, source), [(4, TORCH, 980), (5, library, 20)])
    assert is_silent(NAME, job)


@pytest.mark.parametrize(
    ("line", "library"),
    [
        # The device's work of a line that prints; a bar around the loader; a start.
        ("print(model(batch))", TORCH),
        ("for batch in tqdm(loader):", (f"{LIB}/torch/utils/data/dataloader.py", "__next__")),
        ("wandb.init(project='x')", (f"{LIB}/wandb/sdk/wandb_init.py", "init")),
        ("total += sum(batch)", None),
    ],
)
def test_what_only_looks_like_it(
    line: str, library: tuple[str, str] | None, tmp_path: Path
) -> None:
    source = f"import wandb\nfrom tqdm import tqdm\nfor batch in data:\n    {line}\n        pass\n"
    source = source if line.endswith(":") else source.replace("\n        pass", "")
    job = of_rows(written(tmp_path, source), [(3, TORCH, 600), (4, library, 400)])
    assert is_silent(NAME, job)


def test_a_loss_that_is_waited_for_is_no_writing(tmp_path: Path) -> None:
    source = "import torch\nfor step in data:\n    loss = model(step)\n    print(loss.item())\n"
    rows = [(3, TORCH, 600.0), (4, None, 400.0)]
    assert is_silent(NAME, of_rows(written(tmp_path, source), rows, backend="cuda"))


@pytest.mark.parametrize(
    "tells",
    [
        "print(loss.item())",
        "writer.writerow([step, float(loss)])",
        "logger.info(f'{step} {loss.item():.3f} {model.weight.norm().item():.3f}')",
    ],
)
def test_on_a_cpu_nobody_waits_for_a_value(tells: str, tmp_path: Path) -> None:
    source = f"import torch\nfor step in data:\n    loss = model(step)\n    {tells}\n"
    job = of_rows(written(tmp_path, source), [(3, TORCH, 600), (4, None, 400)])
    assert found(NAME, job).where[0].line == 4


def test_gradients_that_are_watched_are_named(tmp_path: Path) -> None:
    source = "import wandb\nwandb.watch(model)\nfor x in data:\n    model(x)\n    loss.backward()\n"
    hook = (f"{LIB}/wandb/integration/torch/wandb_torch.py", "log_tensor_stats")
    finding = found(NAME, of_rows(written(tmp_path, source), [(4, TORCH, 600), (5, hook, 400)]))
    assert [place.line for place in finding.where] == [5, 2]
    assert names(finding.where) == ["<module>"] * 2
    assert "gradients are watched" in [each.name for each in finding.evidence]
    assert finding.fixes is not None
    assert "log=None" in finding.fixes["pytorch"].text


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())
