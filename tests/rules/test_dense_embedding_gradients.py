"""The rule dense_embedding_gradients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, recorded, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.window import Window

NAME = "dense_embedding_gradients"
FIXES = {
    "pytorch": (
        """
import torch
rows, width, rate = 100, 4, 1e-3
your_optimizer, as_before = torch.optim.Adam, {"lr": rate}
rest = torch.nn.Linear(width, 1)
""",
        """
rest(table(torch.tensor([3, 5]))).sum().backward()
assert table.weight.grad.is_sparse
of_table.step(), of_rest.step()
""",
    ),
}
MODULE = "self.table = nn.Embedding(rows, 32)\nloss.backward()\n"
ADAM = [{"kind": "Adam", "tensors": 3}]


def job(folder: Path, text: str = MODULE, *, optimizers: Any = ADAM, **shares: float) -> Window:
    """Return a job with such a model, and the parts of its time that these operators take."""
    file = folder / f"train_{abs(hash(text))}.py"
    file.write_text(text)
    trace = answer({Slice.COMPUTE: 1.0}, calls=dict.fromkeys(shares, 1.0))
    total = trace["budget"]["total_ns"]
    for call in trace["calls"]:
        call["total_ns"] = int(shares[call["name"]] * total)
        call["name"] = f"aten::{call['name']}"
    lines = (SourceLine(str(file), len(text.splitlines()), "step", 1.0),)
    facts = {"torch": {"backend": "cpu", "optimizers": optimizers}}
    means = {m.PROCESS_OPTIMIZER_TIME: 0.5}
    return window(trace, facts=facts, lines=lines, means=means, inside=True)


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        (MODULE, {"embedding": 0.01, "embedding_dense_backward": 0.3}),
        ("bags = torch.nn.EmbeddingBag(10**6, 16, mode='sum')\nloss.backward()\n",
         {"_embedding_bag": 0.01, "_embedding_bag_dense_backward": 0.3}),
        ("rows = F.embedding(ids, self.words)\nloss.backward()\n",
         {"embedding": 0.01, "embedding_dense_backward": 0.3}),
    ],
)  # fmt: skip
def test_a_table_of_which_a_batch_uses_little(
    tmp_path: Path, text: str, shares: dict[str, float]
) -> None:
    finding = found(NAME, job(tmp_path, text, **shares))
    assert finding.where[0].line == 1
    assert finding.gain is not None
    # Of the gradient the most, and of the optimizer's half as long as the gradient takes.
    assert finding.gain.low == pytest.approx(0.6 * 0.29 + 0.3)
    assert 0.8 < finding.gain.high < 0.95


def test_an_optimizer_that_remembers_nothing_is_hardly_shorter(tmp_path: Path) -> None:
    shares = {"embedding": 0.01, "embedding_dense_backward": 0.3}
    plain = found(NAME, job(tmp_path, optimizers=[{"kind": "SGD"}], **shares))
    unknown = found(NAME, job(tmp_path, optimizers=None, **shares))
    assert plain.gain is not None
    assert plain.gain.low == pytest.approx(0.6 * 0.29 + 0.03)
    assert plain.gain == unknown.gain


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        # Words that a batch uses most of; a table that takes no time; none at all.
        (MODULE, {"embedding": 0.05, "embedding_dense_backward": 0.3}),
        (MODULE, {"embedding": 0.001, "embedding_dense_backward": 0.02}),
        (MODULE, {"embedding": 0.2}),
        (MODULE, {"embedding_sparse_backward": 0.3}),
        # It is the last layer as well, so that all of its rows have gradients.
        ("self.words = nn.Embedding(v, d)\nself.head.weight = self.words.weight\nloss.backward()\n",
         {"embedding": 0.01, "embedding_dense_backward": 0.3}),
        ("layers = {'wte': nn.Embedding(v, d)}\nhead.weight = net.wte.weight\nloss.backward()\n",
         {"embedding": 0.01, "embedding_dense_backward": 0.3}),
        ("self.words = nn.Embedding(v, d)\ntie(self.head, self.words)\nloss.backward()\n",
         {"embedding": 0.01, "embedding_dense_backward": 0.3}),
        ("self.words = nn.Embedding(v, d)\nhead = Head(self.words.weight, initial=True)\nx()\n",
         {"embedding": 0.01, "embedding_dense_backward": 0.3}),
        (3 * "a = nn.Embedding(9, d)\n" + "w = nn.Embedding(v, d)\nlogits = h @ w.weight.T\nx()\n",
         {"embedding": 0.01, "embedding_dense_backward": 0.3}),
        ("self.words = nn.Embedding(v, d)\nlogits = h @ self.words.weight.T\nloss.backward()\n",
         {"embedding": 0.01, "embedding_dense_backward": 0.3}),
    ],
)  # fmt: skip
def test_tables_that_are_used(tmp_path: Path, text: str, shares: dict[str, float]) -> None:
    assert is_silent(NAME, job(tmp_path, text, **shares))


def test_a_piece_of_a_step_has_other_shares(tmp_path: Path) -> None:
    whole = job(tmp_path, embedding=0.01, embedding_dense_backward=0.3)
    trace = dict(whole.traces[0].answer)
    trace["steps"] = {**trace["steps"], "count": 1}
    piece = replace(whole.traces[0], answer=trace)
    assert cannot_judge(NAME, replace(whole, traces=(piece,)))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        # Made by a library, which may have tied it to its last layer.
        ("model = GPT2LMHeadModel(config)\nloss.backward()\n", "Adam"),
        # None of these take sparse gradients.
        (MODULE, "AdamW"),
        ("clip_grad_norm_(model.parameters(), 1.0)\n" + MODULE, "Adam"),
        ("opt = Adam(model.parameters(), weight_decay=1e-2)\n" + MODULE, "Adam"),
    ],
)
def test_where_a_sparse_gradient_may_not_be_possible(tmp_path: Path, text: str, kind: str) -> None:
    shares = {"embedding": 0.01, "embedding_dense_backward": 0.3}
    finding = found(NAME, job(tmp_path, text, optimizers=[{"kind": kind}], **shares))
    assert finding.severity is Severity.LOW
    surely = "opt = Adam(model.parameters(), weight_decay=0.0)\n" + MODULE
    assert found(NAME, job(tmp_path, surely, **shares)).severity is None


def test_what_makes_a_table_is_no_second_use(tmp_path: Path) -> None:
    text = "self.words = nn.Embedding(v, d)\nnn.init.normal_(self.words.weight)\nloss.backward()\n"
    shares = {"embedding": 0.01, "embedding_dense_backward": 0.3}
    assert found(NAME, job(tmp_path, text, **shares)).where[0].line == 1


def test_without_a_trace_nothing_is_known() -> None:
    assert cannot_judge(NAME, window(facts={"torch": {"backend": "cpu"}}, inside=True))
    assert is_silent(NAME, window(answer({Slice.COMPUTE: 1.0}, steps=1), facts={"torch": {}}))
    assert is_silent(NAME, window(facts={"jax": {"backend": "cpu"}}, inside=True))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert [place.line for place in finding.where] == [23, 24]
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))


def test_another_fault() -> None:
    assert is_silent(NAME, recorded("unfused_optimizer/before_torch"))
