"""Whom a line of the user's calls, by its text alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.code.callees import calls_of, computes_before_it_reads, reads_at
from whyidle.monitor.code.scopes import Calls

# Each line that has a comment is asked for, in several people's styles.
STYLES = {
    "a script": """
import time, json
import numpy as np
import torch
from torch.nn import functional as F
z = torch.relu(torch.ones(3))  # framework
checksum = 0
for value in range(30_000):  # host
    checksum = (checksum * 31 + value) % 65_521  # host
a = np.sort(np.random.standard_normal(200_000))  # library
b = a * 2 + a.mean()  # library
time.sleep(0.03)  # library
text = json.dumps({"a": 1})  # library
rows = []
rows.append(text)  # host
row = {"text": text}  # host
total = sum(len(str(row)) for row in rows)  # host
loss = F.mse_loss(z, z)
loss.backward()  # framework
mean = float(loss)  # framework
both = float(loss) + np.mean(b)  # unclear
""",
    "a model of PyTorch": """
import torch
from torch import nn
class Attention(nn.Module):
    def forward(self, h, adj, scale=2):
        scores = h / adj  # framework
        kept = torch.where(adj > 0, h, scores)  # framework
        return kept * scale  # framework
class Scaler:
    def forward(self, rows, by):
        return rows / by  # unclear
class Pictures(torch.utils.data.Dataset):
    def __call__(self, rows, by):
        return rows / by  # unclear
""",
    "a model of Flax": """
from flax import linen as nn
class Block(nn.Module):
    width: int
    @nn.compact
    def __call__(self, x, mask):
        return x * mask  # framework
""",
    "a layer of Keras": """
import keras
class Masked(keras.layers.Layer):
    def call(self, x, mask: int):
        y = x - 1.0  # framework
        return mask + 1  # host
""",
    "loops that count": """
def go(loader, sizes):
    kept = []
    for number, batch in enumerate(loader):
        if (number, 7) not in kept:  # host
            kept.append((number, 7))  # host
        out = batch * 2  # unclear
    for (k, size), row in zip(enumerate(sizes), range(9)):
        label = k * 2 + row  # host
        wide = size * 2  # unclear
    return out, label, wide
""",
    "arguments that are given a new value": """
def shaped(x, first=None, *rest):
    x = x / 255  # unclear
    x = x.reshape(-1, 28)  # unclear
    rest = rest * 2  # unclear
    return x * 2  # unclear
""",
    "methods": """
import jax.numpy as jnp
from PIL import Image

class Trainer:
    def step(self, x, y):
        out = self.model(x)  # unclear
        t = x * 2  # unclear
        w = jnp.ones(4)  # framework
        u = w @ w + 1  # framework
        names = [x + y for x, y in zip(range(3), range(4))]  # host
        picture = Image.open("a.png").convert("RGB")  # library
        with open("log") as log:
            log.write("x" * 40)  # host
        return out, t, u, names, picture
""",
    "what annotations say": """
import numpy as np
import jax
from typing import Any
from models import Net

def batches(random: np.random.Generator, table: np.ndarray | None, size: int, net: Net):
    while True:
        x = random.standard_normal((size, 8))  # library
        y = table.take(x)  # library
        half = size // 2  # host
        yield net(x, y), half  # unclear

def step(w: jax.Array, x: "jax.Array", rows: list, any: Any, loss: float, at: jax.Device):
    f = loss * 2  # unclear
    d = at.load(f)  # unclear
    u = w @ w  # framework
    v = x * 2  # unclear
    p = rows[0] * 2  # unclear
    q = any * 2  # unclear
    return u, v, p, q
""",
    "what a class has made": """
import numpy
import torch
from tokens import Tokenizer

class Data:
    def __init__(self, seed, rows):
        self.rng = numpy.random.default_rng(seed)
        self.rows, self.cache, self.seen = rows, [], 0
        self.tokenizer = Tokenizer()

    def draw(this):
        this.seen += 1
        x = this.rng.permutation(100)  # library
        y = this.rows[0] * 2  # unclear
        z = this.cache[0] * 2  # unclear
        pick = lambda n: this.rng.choice(n)  # library
        return pick(x), y, z, this.tokenizer(x)  # unclear

class Agent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = torch.zeros(3)
        self.either = torch.zeros(3)

    def reset(self, given):
        self.either = given
        self.state = torch.zeros(3)

    def walk(self, env):
        self.state, reward = env(self.mean)
        c = self.state * 2  # unclear
        return c, lambda self: self.mean * 2  # unclear

    @staticmethod
    def collate(batch):
        return batch.mean * 2  # unclear

    def act(self, x):
        a = self.mean * 2  # framework
        b = self.either * 2  # unclear
        return a, b, self.rng.choice(3)  # unclear
""",
    "what its own functions give": """
import functools
import flax.linen as nn
import jax
import numpy as np
import torch
from lib import other

def bank(size):
    found = np.zeros((size, 8))
    for row in range(size):
        found[row] = row
    return found

def tensors(rows):
    for row in rows:
        yield torch.as_tensor(row)

@functools.partial(jax.jit, static_argnums=1)
def step(params, rate):
    return params

@torch.no_grad()
def passed(rows):
    return 3

def round_and_round(n):
    return round_and_round(n - 1) * n

@functools.lru_cache(maxsize=None)
def remembered(n):
    return np.ones(n)

@other
def wrapped(n):
    return n

mel = np.ones((3, 8)) @ bank(8).T  # library
state = step(params, 0.1)  # framework
for x in tensors(rows):
    y = x * 2  # framework
n = passed(rows) + 1  # unclear
k = round_and_round(5) + 1  # unclear
c = remembered(3) * 2  # library
w = wrapped(3) * 2  # unclear

def both():
    return torch.zeros(3), 5

def either(n):
    return np.zeros(n)

def either(n):
    return torch.zeros(n)

def there(n):
    return torch.zeros(3) if n == 0 else back(n)

def back(n):
    return there(n - 1)

found, number = both()
q = number * 2  # unclear
e = either(3) * 2  # unclear
t = there(3) * 2  # unclear
g = back(3) * 2  # unclear

class Net(torch.nn.Module):
    def forward(self, x):
        a = self.loss(x) * 2  # framework
        b = self.sizes() * 2  # unclear
        c = self.sum(x) * 2  # framework
        return a + b + c + sum(3 * 4 for r in "abc")  # unclear

    def sizes(self):
        return 3

    def loss(self, x):
        return torch.square(x)

    def sum(self, x):
        return torch.sum(x)

    def count(self):
        return sum(len("a") for r in "abc")  # host

class Kept(Net):
    def __init__(self):
        self.table = self.bank()

    def bank(self):
        return np.zeros(3)

    def use(self):
        return self.table * 2  # library
""",
    "whether something is in it": """
import numpy as np

class Pairs:
    def __init__(self, pairs, rng):
        self.rng = np.random.default_rng(3)
        self.seen = [pairs[a:b] for a, b in zip(range(3), range(4))]

    def draw(self, users, wanted):
        for user in users:
            j = self.rng.integers(9)  # library
            if j not in self.seen[user]:  # library
                wanted.append(j)  # host
            if user in wanted:  # host
                both = user * wanted  # unclear
        return both
""",
    "functions in functions": """
def main():
    import torch as th

    def inner(batch):
        found = {}
        for key in ("a", "b"):
            found[key] = len(key) + 1  # host
        return th.cat([th.zeros(3), batch])  # framework

    hits = 0
    while hits < 100:  # host
        hits += 1  # host
    inner(th.ones(2))
""",
}


@pytest.mark.parametrize("style", STYLES)
def test_whom_a_line_calls(style: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(STYLES[style])
    for number, text in enumerate(STYLES[style].splitlines(), 1):
        _, found, wanted = text.partition("  # ")
        if found:
            assert calls_of(str(file), number) == Calls(wanted), text


def test_a_file_that_is_not_there_says_nothing() -> None:
    assert calls_of("/nowhere/train.py", 3) is Calls.UNCLEAR


READS = """
import threading
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import accuracy_score
from numpy import asarray as to_host

step = jax.jit(lambda x: x * 2)
x = step(jnp.ones(4))  # computes
seen = np.asarray(x)  # reads
mean = np.mean(x)  # reads
text = f"{float(x[0]):.3f}"  # reads
x.block_until_ready()  # reads
jax.block_until_ready(x)  # reads
score = accuracy_score(labels, x)  # reads
rows = to_host(x)  # reads
history = np.zeros(9)  # computes
history = np.append(history, 1.0)  # computes
def bank(size):
    return np.zeros(size)
mel = bank(history)  # computes
done = threading.Event()
done.wait()  # computes
table = np.load(path)  # computes
log.write(str(3))  # computes

class Loop:
    def fit(self, batch):
        loss = self.model(batch)  # computes
        self.total += loss.item()  # reads
        self.rows.append(loss.detach().cpu())  # reads
        return bool(loss > 3)  # reads
"""


def test_lines_that_bring_a_value_to_the_host(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(READS)
    marked = [
        (number, line, line.endswith("# reads"))
        for number, line in enumerate(READS.splitlines(), 1)
        if line.endswith(("# reads", "# computes"))
    ]
    assert len(marked) == 18
    for number, line, reads in marked:
        assert reads_at(str(file), number) is reads, line


@pytest.mark.parametrize(
    ("line", "computes"),
    [
        ("probs = out.softmax(-1).cpu()", True),
        ("word = torch.exp(out / 0.8).cpu().numpy()", True),
        ("rows = (out @ table).tolist()", True),
        ("best = float(out.max())", True),
        ("kept.append(out.cpu().numpy())", False),
        ("rows = out.detach().view(-1).tolist()", False),
        ("mean = np.mean(out.cpu().numpy())", False),
        ("part = out[i * 3 : (i + 1) * 3].cpu()", False),
        ("ids = out[0][len(kept):].tolist()", False),
        ("rows = out.view(3 * len(kept), -1).tolist()", False),
        ("ids = out[0].argmax(-1).tolist()", True),
        ("worst = np.median(np.abs(out.detach().cpu().numpy() - kept), axis=1).max()", False),
        ("parts = [part.cpu() for part in out]", False),
        ("out = model(batch)", False),
    ],
)
def test_what_is_made_on_the_line_that_reads_it(line: str, computes: bool, tmp_path: Path) -> None:
    head = "import numpy as np\nimport torch\nkept, table = [], torch.eye(3)\n"
    (tmp_path / "train.py").write_text(f"{head}out = torch.ones(3, 3)\n{line}\n")
    assert computes_before_it_reads(str(tmp_path / "train.py"), 5) is computes
