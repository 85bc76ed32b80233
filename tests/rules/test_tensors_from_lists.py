"""The rule tensors_from_lists, in several people's styles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, of_rows, written
from tests.rules.windows import cannot_judge, found, is_silent, severity, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.signals.window import Window

NAME = "tensors_from_lists"
SAMPLES = "import numpy as np\nsamples = [np.full(4, i) for i in range(3)]\n"
FIXES = {
    "pytorch": (f"import torch\n{SAMPLES}", "assert batch.shape == (3, 4)"),
    "jax": (f"import jax.numpy as jnp\n{SAMPLES}", "assert batch.shape == (3, 4)"),
}
Library = tuple[str, str]
JNP = (f"{LIB}/jax/_src/numpy/array_constructors.py", "array")
# The last line makes the tensor, and nothing else.
LISTS = {
    "observations of many worlds": """\
import torch
obs = [observe(world) for world in worlds]
x = torch.tensor(obs).to(device)""",
    "a memory of moves": """\
import torch, random
states, moves = zip(*random.sample(memory, 64))
x = torch.FloatTensor(states)""",
    "what is added to": """\
from torch import tensor
class Buffer:
    def add(self, row):
        self.rows.append(row)
    def batch(self):
        return tensor(self.rows, dtype=float32)""",
    "written out": """\
import jax.numpy as jnp
x = jnp.array([[float(c) for c in line.split(",")] for line in lines])""",
    "a slice of a list": """\
import tensorflow as tf
numbers = sorted(readings)
x = tf.convert_to_tensor(numbers[i : i + 512])""",
    "numbers of an array": """\
import torch
x = torch.as_tensor(table[i].tolist()).unsqueeze(0)""",
}
NO_LISTS = {
    "an array": "import torch\nrows = np.stack(samples)\nx = torch.tensor(rows)",
    "an argument": "import torch\ndef f(rows):\n    return torch.tensor(rows)",
    "a few numbers": "import torch\nx = torch.tensor([left, right, 0.5])",
    "a stack of tensors": "import torch\nrows = [f(x) for x in xs]\nx = torch.stack(rows)",
    "NumPy's own": "import numpy as np\nrows = [f(x) for x in xs]\nx = np.array(rows)",
    "another's tensor": "from mine import tensor\nrows = [f(x) for x in xs]\nx = tensor(rows)",
}


def job(folder: Path, source: str, *shares: tuple[int, int], library: Library = TORCH) -> Window:
    """Return the window of a program; the rest of a thousand samples is in a line after it."""
    after = len(source.splitlines()) + 1
    rest = 1000 - sum(count for _, count in shares)
    rows = [(line, library, count) for line, count in (*shares, (after, rest))]
    return of_rows(written(folder, f"{source}\ny = model(x)\n"), rows)


def last(source: str) -> int:
    return len(source.splitlines())


@pytest.mark.parametrize("style", LISTS)
def test_a_list_that_becomes_a_tensor(style: str, tmp_path: Path) -> None:
    source = LISTS[style]
    library = JNP if "jnp" in source else TORCH
    finding = found(NAME, job(tmp_path, source, (last(source), 400), library=library))
    assert finding.where[0].line == last(source)
    assert severity(NAME, finding) is Severity.HIGH
    assert finding.gain is not None
    assert 0.25 < finding.gain.low < 0.4 < finding.gain.high < 0.5


@pytest.mark.parametrize("style", NO_LISTS)
def test_what_is_no_list_or_not_known(style: str, tmp_path: Path) -> None:
    source = NO_LISTS[style]
    assert is_silent(NAME, job(tmp_path, source, (last(source), 400)))


def test_a_little_of_it_is_healthy(tmp_path: Path) -> None:
    source = LISTS["observations of many worlds"]
    assert is_silent(NAME, job(tmp_path, source, (last(source), 20)))


@pytest.mark.parametrize(("back", "low"), [(150, 0.2), (500, 0.0), (0, 0.0)])
def test_a_line_that_runs_the_model_too(back: int, low: float, tmp_path: Path) -> None:
    lists = "import torch\nrows = [f(x) for x in xs]\n"
    source = f"{lists}y = net(torch.tensor(rows))\nloss.backward()"
    finding = found(NAME, job(tmp_path, source, (3, 400), *[(4, back)] * (back > 0)))
    assert finding.gain is not None
    # A pass back takes longer than one forward: what is more than that are the lists.
    assert finding.gain.low == pytest.approx(low, abs=0.05)
    assert finding.gain.high > 0.4


def test_it_needs_samples() -> None:
    assert cannot_judge(NAME, window())
