"""Tensors that are made, drawn and multiplied where the work is."""

from __future__ import annotations

import pytest

from tests.fixes.programs import change, refused, tried
from whyidle.monitor import fixes

LOOP = """
import numpy as np
import torch
{more}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
device = torch.device("cuda")
rng = np.random.default_rng(1)

def train(model, optimizer, data, n):
    for x in data:
        extra = {made}
        loss = model(x, extra).mean()
        loss.backward()
        optimizer.step()
"""


def loop(made: str, more: str = "") -> str:
    return LOOP.format(made=made, more=more)


@pytest.mark.parametrize(
    ("made", "new"),
    [
        ("torch.zeros(n, 3).to(DEVICE)", "torch.zeros(n, 3, device=DEVICE)"),
        ("torch.full((n,), 0.5).to(device)", "torch.full((n,), 0.5, device=device)"),
        ("torch.arange(n).cuda()", 'torch.arange(n, device="cuda")'),
        ("torch.ones(3, dtype=torch.int64).to(x.device)",
         "torch.ones(3, dtype=torch.int64, device=x.device)"),
    ],
)  # fmt: skip
def test_plain_values_are_made_on_the_device(made: str, new: str) -> None:
    assert change("made_on_device", loop(made), "extra =")[1] == [f"extra = {new}"]


@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(n).to(torch.float16)",
        "torch.zeros(n).to(n)",
        "torch.zeros(n).to(x)",
        "torch.zeros(n, device=device).to(DEVICE)",
        "torch.zeros(n).half().to(DEVICE)",
        "torch.zeros(n)",
        "torch.zeros(*n).to(DEVICE)",
        "zeros(n).to(DEVICE)",
    ],
)
def test_what_is_not_certain_stays(made: str) -> None:
    assert tried("made_on_device", loop(made), "extra =") is None


def test_numbers_that_are_drawn_stay_where_they_are() -> None:
    assert "others" in refused("made_on_device", loop("torch.randn(n).to(DEVICE)"), "extra =")


@pytest.mark.parametrize(
    ("made", "new"),
    [
        ("torch.from_numpy(np.random.normal(size=(n, 3))).float().to(DEVICE)",
         "torch.randn(n, 3, device=DEVICE)"),
        ("torch.from_numpy(np.random.randn(n, 3).astype(np.float32)).to(device)",
         "torch.randn(n, 3, device=device)"),
        ("torch.tensor(rng.random(x.shape, dtype=np.float32), dtype=torch.float32).cuda()",
         'torch.rand(x.shape, device="cuda")'),
    ],
)  # fmt: skip
def test_numbers_are_drawn_on_the_device(made: str, new: str) -> None:
    assert change("random_on_device", loop(made), "extra =")[1] == [f"extra = {new}"]


@pytest.mark.parametrize(
    "made",
    [
        "torch.from_numpy(np.random.normal(1.0, 2.0, size=(n,))).float().to(DEVICE)",
        "torch.from_numpy(rng.uniform(-1, 1, (n,))).float().to(DEVICE)",
        "torch.from_numpy(np.random.normal(size=(n,))).to(DEVICE)",
        "torch.from_numpy(np.random.normal(size=(n,))).float()",
    ],
)
def test_other_distributions_precisions_and_places_are_refused(made: str) -> None:
    assert refused("random_on_device", loop(made), "extra =")


def test_other_numbers_only_where_they_are_allowed() -> None:
    found = fixes.load()
    assert found["random_on_device"].changes_numbers
    assert found["matmul_precision"].changes_numbers


def test_products_are_of_tf32_once() -> None:
    assert change("matmul_precision", loop("x"), "loss =")[1] == [
        "",
        'torch.set_float32_matmul_precision("high")',
    ]
    jax = "from __future__ import annotations\nimport jax\nprint(jax.devices())\n"
    assert change("matmul_precision", jax, "print")[1] == [
        "",
        'jax.config.update("jax_default_matmul_precision", "tensorfloat32")',
    ]


@pytest.mark.parametrize(
    "more",
    [
        'torch.set_float32_matmul_precision("highest")',
        "torch.backends.cuda.matmul.allow_tf32 = False",
        'torch.backends.cuda.matmul.fp32_precision = "ieee"',
    ],
)
def test_what_the_program_says_itself_stays(more: str) -> None:
    assert "itself" in refused("matmul_precision", loop("x", more), "loss =")
