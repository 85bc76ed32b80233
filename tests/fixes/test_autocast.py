"""Forward pass and loss in bfloat16: what is wrapped, and what is left as it is.

Every program here that gets a patch runs as it is and patched, on the CPU. bfloat16 has 8 bits of a
fraction: losses agree to 2%, the tolerance that the patch names, and not to the last digit.
"""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.fixes.programs import change, refused, tried
from whyidle.monitor import fixes
from whyidle.monitor.fixes import Patch

TOLERANCE = 0.02

# A plain loop, with a list of layers and an accuracy.
PLAIN = """
import torch
from torch import nn

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 3)).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses, right = [], 0

for _ in range(20):
    x = torch.randn(64, 8).to(device)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    optimizer.zero_grad()
    # Forward.
    scores = model(x)
    loss = criterion(scores, y)  # the mean
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
    right += (scores.argmax(1) == y).sum().item()
"""
# Functions that are given what they need; a model of the file's own, a loss of two parts.
FUNCTIONS = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.scale = nn.BatchNorm2d(width), nn.Parameter(torch.ones(1))
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.scale * F.relu(self.conv(self.norm(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = nn.ModuleList([Block(8) for _ in range(2)])
        self.head = nn.Linear(8, 2)

    def features(self, x):
        for block in self.blocks:
            x = block(x)
        return x.mean(dim=(2, 3))

    def forward(self, x):
        return F.log_softmax(self.head(self.features(self.stem(x))), dim=1)


def train(model, batches, optimizer, device):
    model.train()
    losses = []
    for image, label in batches:
        image, label = image.to(device), label.to(device)
        optimizer.zero_grad(set_to_none=True)
        output = model(image)
        loss = F.nll_loss(output, label) + 0.1 * F.l1_loss(output.squeeze(), output.detach() * 0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(2)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Net()
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    data = [(torch.randn(16, 1, 8, 8) + n % 2, torch.full((16,), n % 2)) for n in range(12)]
    return train(model, data, optimizer, device)


losses = main()
"""
# A class that trains, a transformer, scores that are laid out for the loss, annotated names.
TRAINER = """
import torch
from torch import Tensor, nn


class Tokens(nn.Module):
    def __init__(self, size: int, width: int):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, 0.0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, size)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.layers(self.embed(ids)))


class Learner:
    def __init__(self, net, device):
        self.net, self.device = net, device
        self.loss_fn = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(net.parameters(), 1e-2)

    def step(self, ids: Tensor) -> float:
        logits = self.net(ids.to(self.device))
        targets = ids.flatten()
        loss: Tensor = self.loss_fn(logits.view(-1, 11), targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


torch.manual_seed(3)
learner = Learner(Tokens(11, 16).to("cpu"), torch.device("cpu"))
losses = [learner.step(torch.randint(0, 11, (6, 4)).to(learner.device)) for _ in range(15)]
"""
RIGHT = {"plain": PLAIN, "functions": FUNCTIONS, "trainer": TRAINER}


@pytest.mark.parametrize("name", RIGHT)
def test_losses_agree_to_the_tolerance_that_the_patch_names(name: str) -> None:
    patch = tried("autocast", RIGHT[name])
    assert isinstance(patch, Patch), patch
    assert f"--tolerance {TOLERANCE}" in " ".join(patch.notes)
    runs = []
    for text in (patch.before, patch.after):
        names: dict[str, object] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, patch.file, "exec"), names)
        runs.append(names)
    before, after = (run["losses"] for run in runs)
    assert isinstance(before, list)
    assert len(before) > 10
    assert after == pytest.approx(before, rel=TOLERANCE, abs=TOLERANCE)
    # It did run in half precision.
    assert after != before


def test_the_statements_from_the_model_to_the_loss_are_wrapped() -> None:
    old, new = change("autocast", PLAIN)
    assert new == [
        "with torch.autocast(device.type, dtype=torch.bfloat16):",
        "scores = model(x)",
        "loss = criterion(scores, y)  # the mean",
    ]
    assert old == new[1:]


def test_it_changes_what_is_computed_and_asks_to_be_allowed() -> None:
    assert fixes.load()["autocast"].changes_numbers
    wanted = {"/job/train.py": fixes.Wanted("full_precision_matmul")}
    text = PLAIN.lstrip("\n")
    mine = [fixes.load()["autocast"]]
    patch, why = fixes.patches_of(mine, [("/job/train.py", text)], wanted)
    assert patch is None
    assert "--allow-numerics" in why[0].why


# Traps ---------------------------------------------------------------------------------------------
TRAPS = {
    "autocast is there": ("scores = model(x)", "with torch.autocast('cuda'): scores = model(x)",
                          "autocast"),
    "a scaler is there": ("losses, right", "scaler = torch.amp.GradScaler()\nlosses, right",
                          "which type"),
    "the model is of half precision": (".to(device)\ncrit", ".to(device).half()\ncrit", "half"),
    "double precision is wanted": ("torch.manual_seed(1)", "torch.set_default_dtype(torch.float64)",
                                   "float64"),
    "BCELoss": ("nn.CrossEntropyLoss()", "nn.BCELoss()", "BCEWithLogitsLoss can"),
    "a loss of one's own": ("criterion(scores, y)", "((scores - y[:, None]) ** 2).mean()",
                            "needs float32"),
    "a loss of another library": ("criterion(scores, y)", "special(scores, y)", "needs float32"),
    "a penalty of one's own": ("criterion(scores, y)", "criterion(scores, y) + penalty(scores)",
                               "needs float32"),
    "the loss is computed elsewhere": ("loss = criterion(scores, y)", "if right: loss = criterion(scores, y)",
                                       "one statement next to"),
    "the loss is added to": ("    loss.backward()", "    loss += penalty()\n    loss.backward()",
                             "one statement next to"),
    "the backward pass is in between": ("    scores = model(x)",
                                        "    scores = model(x)\n    optimizer.step()", "more than"),
    "two losses": ("    optimizer.step()", "    other.backward()\n    optimizer.step()",
                   "more than one backward"),
    "the graph is kept": ("loss.backward()", "loss.backward(create_graph=True)", "backward pass"),
    "scores go to NumPy": ("(scores.argmax(1) == y).sum().item()", "scores.detach().numpy().sum()",
                           "used outside"),
    "scores are kept": ("losses.append(loss.item())", "losses.append(scores)", "used outside"),
    "it writes in place": ("scores = model(x)", "scores = model(x)\n    scores[:, 0] = 0",
                           "writes into"),
    "an unknown layer": ("nn.GELU()", "Strange()", "not seen here"),
    "a layer that needs float32": ("nn.GELU()", "nn.LSTM(32, 32)", "LSTM"),
    "layers from elsewhere": ("nn.GELU(), nn", "*more, nn", "not seen here"),
    "a model from elsewhere": ("nn.Sequential(nn.Linear(8, 32),", "timm.create_model(",
                               "which call is the model's"),
    "a device that is not known": ('torch.device("cuda" if torch.cuda.is_available() else "cpu")',
                                   "given.device_name", "kind of device"),
    "a device that is text, perhaps": ('torch.device("cuda" if torch.cuda.is_available() else "cpu")',
                                       "given.device", "kind of device"),
    "a method in place": ("criterion(scores, y)", "criterion(scores.div_(2), y)", "half precision"),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAPS)
def test_what_may_break_or_learn_otherwise_is_refused(name: str) -> None:
    old, new, why = TRAPS[name]
    assert PLAIN.count(old) == 1
    assert why in refused("autocast", PLAIN.replace(old, new))


FORWARDS = {
    "a part is written": ("        return x +", "        x[:, 0] = self.conv(x)[:, 0]\n        return x +",
                          "writes into"),
    "linear algebra": ("F.relu(", "torch.linalg.svdvals(", "linalg"),
    "a function of one's own": ("F.relu(", "mine(", "mine"),
    "NumPy within": ("F.relu(", "torch.from_numpy(", "from_numpy"),
    "another base": ("class Block(nn.Module)", "class Block(Base)", "Block"),
    "a parameter of another function": ("train(model, data, optimizer, device)",
                                        "train(*everything)", "model"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARDS)
def test_a_model_of_which_a_part_is_not_known_is_refused(name: str) -> None:
    old, new, why = FORWARDS[name]
    assert FUNCTIONS.count(old) == 1
    assert why in refused("autocast", FUNCTIONS.replace(old, new))


def test_programs_of_others_are_left() -> None:
    assert tried("autocast", "import jax\nloss.backward()\n") is None
    assert tried("autocast", "import torch\nprint(torch.ones(3))\n") is None
