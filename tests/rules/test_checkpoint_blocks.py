"""The rule checkpoint_blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.phases import LIB, STDLIB, TORCH, of_rows, written
from tests.rules.windows import cannot_judge, found, is_silent, severity, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.signals.window import Window

NAME = "checkpoint_blocks"
_PYTORCH = """
import concurrent.futures, os, tempfile
import torch
os.chdir(tempfile.mkdtemp())
step, saved, model = 1000, None, torch.nn.Linear(2, 3)
saver = concurrent.futures.ThreadPoolExecutor(1)
"""
_JAX = """
import concurrent.futures, os, tempfile
import jax, numpy as np
os.chdir(tempfile.mkdtemp())
step, saved, params = 1000, None, {"w": jax.numpy.ones(3)}
saver = concurrent.futures.ThreadPoolExecutor(1)
"""
FIXES = {
    "pytorch": (_PYTORCH, "saved.result(); assert torch.load('latest.pt')['bias'].shape == (3,)"),
    "jax": (_JAX, "saved.result(); assert np.load('latest.npz')['arr_0'].shape == (3,)"),
}
SAVE = (f"{LIB}/torch/serialization.py", "save")
# Line 5 computes, line 7 saves, whatever the code around it is called.
STYLES = {
    "a block": (
        """\
import torch

for n in range(9):
    x, y = next(batches)
    loss = model(x)
    if n % 50 == 0:
        torch.save(model.state_dict(), 'a.pt')
        os.sync()
""",
        SAVE,
    ),
    "a method with a name of its own": (
        """\
import torch
class Loop:
    def go(self):
        while True:
            self.model(x)
            if self.clock.due():
                torch.save(self.everything, 'a.pt')
            os.sync()
""",
        SAVE,
    ),
    "a pickle, written in C": (
        """\
import pickle
import jax
def run(state):
    for batch in data:
        state = f(state)
        with open('state.pkl', 'wb') as out:
            pickle.dump(state, out)
            os.fsync(out.fileno())
""",
        None,
    ),
    "Flax's bytes, written in C": (
        """\
import jax
from flax import serialization
def run(state):
    for batch in data:
        state = f(state, batch)
        if due():
            open("state.msgpack", "wb").write(serialization.to_bytes(state))
""",
        None,
    ),
    "Keras": (
        """\
import keras
def run(model):
    model.compile("sgd")
    keep = keras.callbacks.ModelCheckpoint("a.keras")
    model.fit(data, epochs=1)

    model.fit(data, callbacks=[keep])
""",
        (f"{LIB}/h5py/_hl/dataset.py", "make_new_dset"),
    ),
    "orbax": (
        """\
import orbax.checkpoint as ocp
def run(state):
    for n, batch in enumerate(data):
        x = put(batch)
        state = f(state, x)
        if n > 9:
            keeper.persist(n, state)
""",
        (f"{LIB}/orbax/checkpoint/checkpoint_manager.py", "save"),
    ),
}


def job(tmp_path: Path, style: str, share: float) -> Window:
    source, library = STYLES[style]
    file = written(tmp_path, source)
    return of_rows(file, [(5, TORCH, 1000 * (1 - share)), (7, library, 1000 * share)])


@pytest.mark.parametrize("style", STYLES)
def test_saving_is_known_by_what_saves(style: str, tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path, style, 0.3))
    assert finding.title == "Saving checkpoints takes 30% of the main thread's time"
    assert finding.where[0].line == 7
    assert severity(NAME, finding) is Severity.HIGH
    assert finding.gain is not None
    assert 0.2 < finding.gain.low < 0.27
    assert 0.3 < finding.gain.high < 0.34


@pytest.mark.parametrize("style", STYLES)
def test_a_little_of_it_is_healthy(style: str, tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, style, 0.02))


@pytest.mark.parametrize(
    "library",
    [
        (f"{LIB}/torch/serialization.py", "load"),
        (f"{LIB}/safetensors/torch.py", "load_file"),
        (f"{LIB}/orbax/checkpoint/checkpoint_manager.py", "restore"),
        (f"{LIB}/torch/nn/modules/module.py", "state_dict"),
    ],
)
def test_what_reads_a_file_saves_none(library: tuple[str, str], tmp_path: Path) -> None:
    # A data set whose samples are files of PyTorch's.
    file = written(tmp_path, "import torch\nfor n in range(9):\n    x = get(n)\n    model(x)\n")
    assert is_silent(NAME, of_rows(file, [(3, library, 400), (4, TORCH, 600)]))


@pytest.mark.parametrize(
    "source",
    [
        "def save_energy(x):\n    total = 0\n    for n in x:\n        total += n * n\n",
        "for n in data:\n    model(n)\n    if n % 9 == 0:\n        save_energy(n)\n",
    ],
)
def test_a_name_alone_shows_nothing(source: str, tmp_path: Path) -> None:
    file = written(tmp_path, source)
    assert is_silent(NAME, of_rows(file, [(4, None, 400), (2, TORCH, 600)]))


@pytest.mark.parametrize(
    ("seconds", "times", "least", "most"),
    # Once, for six seconds; five times; and in each second a little.
    [
        (0b111111, 1, 0.0, 0.4),
        (0b1000010000100001000010, 5, 0.1, 0.25),
        (2**30 - 1, None, 0.15, 0.22),
    ],
)
def test_seldom_bursts_widen_the_range(
    seconds: int, times: int | None, least: float, most: float, tmp_path: Path
) -> None:
    source, library = STYLES["a block"]
    rows = [(5, TORCH, 800), (7, library, 200)]
    finding = found(NAME, of_rows(written(tmp_path, source), rows, {7: seconds}))
    assert finding.gain is not None
    assert least <= finding.gain.low < least + 0.05
    assert most <= finding.gain.high < most + 0.1
    counted = [e.value for e in finding.evidence if e.name == "times in this window"]
    assert counted == ([] if times is None else [times])
    # It may not come again for hours.
    assert (finding.severity is Severity.LOW) == (times == 1)
    assert str(finding.title).endswith(", once") == (times == 1)


def test_host_code_stands_behind_it(tmp_path: Path) -> None:
    source, _ = STYLES["a block"]
    rows = [(5, TORCH, 600), (7, SAVE, 200), (8, None, 200)]
    first = diagnose(of_rows(written(tmp_path, source), rows)).findings[0]
    assert first.rule.id == NAME
    assert "host_code" in first.also_seen
    # To wait for the disk belongs to it.
    assert first.found.title == "Saving checkpoints takes 40% of the main thread's time"


def test_a_program_of_the_standard_library_is_not_meant(tmp_path: Path) -> None:
    file = written(tmp_path, "import zipfile\nfor n in range(9):\n    unpack(n)\n    model(n)\n")
    library = (f"{STDLIB}/zipfile.py", "extract")
    assert is_silent(NAME, of_rows(file, [(3, library, 400), (4, TORCH, 600)]))


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())
