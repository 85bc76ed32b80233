"""Changes of programs of PyTorch that are no loaders'."""

from __future__ import annotations

import pytest

from tests.fixes.programs import change, refused, tried


# Switches ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("line", "new"), [
    ("torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(False)"),
    ("autograd.set_detect_anomaly(mode=True, check_nan=True)",
     "autograd.set_detect_anomaly(mode=False, check_nan=True)"),
    ("with torch.autograd.detect_anomaly(): f()", "with torch.autograd.set_detect_anomaly(False): f()"),
    ('os.environ["CUDA_LAUNCH_BLOCKING"] = "1"', 'os.environ["CUDA_LAUNCH_BLOCKING"] = "0"'),
    ('jax.config.update("jax_debug_nans", True)', 'jax.config.update("jax_debug_nans", False)'),
    ("trainer = Trainer(detect_anomaly=True)", "trainer = Trainer(detect_anomaly=False)"),
])  # fmt: skip
def test_a_switch_is_turned_off(line: str, new: str) -> None:
    program = f"import os\nimport jax\nimport torch\nfrom torch import autograd\n{line}\n"
    assert change("debugging_off", program)[1] == [new]


@pytest.mark.parametrize("line", ["torch.autograd.set_detect_anomaly(args.debug)",
                                  'jax.config.update("jax_debug_nans", DEBUG or args.nans)'])  # fmt: skip
def test_a_switch_that_is_set_elsewhere(line: str) -> None:
    assert "set by other code" in refused("debugging_off", f"import torch\nimport jax\n{line}\n")


# Optimizers --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("old", "new"), [
    ("torch.optim.AdamW(p, foreach=False)", "torch.optim.AdamW(p, fused=True)"),
    ("optim.SGD(model.parameters(), 0.1, foreach=False, momentum=0.9)",
     "optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)"),
    ("Adam(p)", "Adam(p, fused=True)"),
    ("optim.RMSprop(p, lr=1e-3, foreach=False)", "optim.RMSprop(p, lr=1e-3, foreach=True)"),
])  # fmt: skip
def test_an_optimizer_updates_all_at_once(old: str, new: str) -> None:
    program = f"import torch\nfrom torch import optim\nfrom torch.optim import Adam\no = {old}\n"
    assert change("optimizer_kernels", program)[1] == [f"o = {new}"]


@pytest.mark.parametrize(("program", "why"), [
    ("o = torch.optim.Adam(p, **options)", "elsewhere"),
    ("o = torch.optim.Adam(p, capturable=True)", "capturable"),
    ("e = torch.nn.Embedding(9, 9, sparse=True)\no = torch.optim.SGD(p, foreach=False)", "sparse"),
    ("a = torch.optim.Adam(p)\nb = torch.optim.Adam(q)", "several"),
])  # fmt: skip
def test_an_optimizer_is_left(program: str, why: str) -> None:
    assert why in refused("optimizer_kernels", f"import torch\n{program}\n")


# Gradients ---------------------------------------------------------------------------------------
ONE = "import torch\nfor x in data:\n    {}\n    loss.backward()\n    opt.step()\n"


@pytest.mark.parametrize("line", ["opt.zero_grad(set_to_none=False)", "model.zero_grad(False)",
                                  "self.opt.zero_grad(\n        set_to_none=False,\n    )"])  # fmt: skip
def test_gradients_are_dropped(line: str) -> None:
    _, new = change("gradients_to_none", ONE.format(line))
    assert new == [line.partition("(")[0] + "()"]


@pytest.mark.parametrize("program", [
    ONE.format("opt.zero_grad(set_to_none=False)") + "    n = w.grad.norm()\n",
    ONE.format("opt.zero_grad(set_to_none=False)") + "    other.backward()\n",
    ONE.format("opt.zero_grad(set_to_none=args.none)"),
])  # fmt: skip
def test_gradients_stay(program: str) -> None:
    assert refused("gradients_to_none", program)


# The collector -----------------------------------------------------------------------------------
def test_the_collector_in_a_method_and_nested_loops() -> None:
    old, new = change(
        "collector",
        """
import gc as collector

class Trainer:
    def fit(self):
        # Each epoch.
        for epoch in range(3):
            for x, y in self.loader:
                self.opt.zero_grad()
                self.model(x).backward()
                self.opt.step()
                collector.collect()
""",
    )
    assert old == ["for x, y in self.loader:", "collector.collect()"]
    assert new == [
        "collector.collect()",
        "collector.freeze()  # the collector never looks again at what is alive now",
        "for step, (x, y) in enumerate(self.loader):",
        "if step % 100 == 0:",
        "collector.collect()",
    ]


def test_the_collector_that_runs_by_itself() -> None:
    _, new = change(
        "collector",
        """
import torch
def main():
    records = [{} for _ in range(100000)]
    i = 0
    while i < 100:
        loss = model(records[i])
        loss.backward()
        opt.step()
        i += 1
""",
        "records[i]",
    )
    assert new[0] == "import gc"
    assert new[1:3] == [
        "gc.collect()",
        "gc.freeze()  # the collector never looks again at what is alive now",
    ]


def test_the_collector_in_a_loop_with_a_bar() -> None:
    _, new = change(
        "collector",
        """
import gc
from tqdm import tqdm
for number, x in enumerate(tqdm(loader)):
    model(x).backward()
    gc.collect()
""",
    )
    assert "if number % 100 == 0:" in new


@pytest.mark.parametrize(("program", "why"), [
    ("import gc\nfor x in data:\n    x.backward()\n    n = gc.collect()\n", "returns"),
    ("import gc, weakref\nfor x in data:\n    x.backward()\n    gc.collect()\n", "weakref"),
    ("import gc\nwhile True:\n    x.backward()\n    gc.collect()\n", "counts"),
    (("import gc\ndef epoch():\n    for x in data:\n        x.backward()\n        gc.collect()\n"
     "for e in range(3):\n    epoch()\n"), "again and again"),
    ("for x in a:\n    x.backward()\nfor x in b:\n    x.backward()\n", "several loops"),
])  # fmt: skip
def test_the_collector_is_left(program: str, why: str) -> None:
    assert why in refused("collector", program)


# The allocator -----------------------------------------------------------------------------------
@pytest.mark.parametrize("line", ["torch.cuda.empty_cache()", "cuda.empty_cache()",
                                  "if i % 2: torch.cuda.empty_cache()"])  # fmt: skip
def test_the_cache_is_kept(line: str) -> None:
    program = "import torch\nfrom torch import cuda\nfor i in range(9):\n    x.backward()\n    "
    if line.startswith("if"):
        assert tried("cache_kept", program + line.replace(": ", ":\n        ") + "\n") is not None
        return
    old, new = change("cache_kept", program + line + "\n")
    assert (old, new) == ([line], [])


def test_the_cache_is_emptied_elsewhere() -> None:
    program = "import torch\nfor i in range(9):\n    x.backward()\ntorch.cuda.empty_cache()\n"
    assert tried("cache_kept", program) is None
    inside = (
        "import torch\nfor i in range(9):\n    x.backward()\n    a = torch.cuda.empty_cache()\n"
    )
    assert refused("cache_kept", inside)


# Graphs that are kept ----------------------------------------------------------------------------
KEPT = "import torch\n{begin}\nfor x in data:\n    loss = model(x)\n    loss.backward()\n    {keep}\n{end}\n"


@pytest.mark.parametrize(("begin", "keep", "end", "new"), [
    ("total = 0", "total += loss", "print(total.item())", "total += loss.detach()"),
    ("total = 0", "total = total + 2 * loss", "print(float(total))", "total = total + (2 * loss).detach()"),
    ("kept = []", "kept.append(loss)", "print(len(kept), kept[-1])", "kept.append(loss.detach())"),
])  # fmt: skip
def test_no_graph_is_kept(begin: str, keep: str, end: str, new: str) -> None:
    assert change("detached", KEPT.format(begin=begin, keep=keep, end=end), keep)[1] == [new]


@pytest.mark.parametrize(("keep", "end"), [("total = total + loss", "total.backward()"),
                                           ("total = total + loss", "save(total)")])  # fmt: skip
def test_a_graph_that_may_be_needed(keep: str, end: str) -> None:
    assert refused("detached", KEPT.format(begin="total = 0", keep=keep, end=end), keep)
