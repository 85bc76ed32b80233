"""The rule padded_batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, recorded, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules.padded_batches import BACK
from whyidle.monitor.signals.window import Window
from whyidle.monitor.traces.calls import ALWAYS_LISTED

NAME = "padded_batches"
FIXES = {
    "pytorch": (
        "import torch\npad = 0",
        "assert collate([[1, 2, 3], [4]]).tolist() == [[1, 2, 3], [4, 0, 0]]",
    ),
}
TEXT = "ids = torch.full((len(rows), 200), PAD)\nloss.backward()\n"


def job(
    folder: Path,
    text: str = TEXT,
    *,
    longest: int = 50,
    length: int = 200,
    part: float = 1.0,
    kind: str = "cpu",
    **more: Any,
) -> Window:
    """Return a job whose rows are 200 long, of which a batch needs so much."""
    file = folder / f"train_{abs(hash(text))}.py"
    file.write_text(text)
    trace = answer({Slice.COMPUTE: 0.9}, kind=kind, **more)
    lines = (SourceLine(str(file), len(text.splitlines()), "step", 1.0),)
    padding = {"length": length, "longest": longest, "mean": 30, "part": part, "batches": 4}
    backend = "cpu" if kind == "cpu" else "cuda"
    facts = {"torch": {"backend": backend, "padding": padding}}
    means = {m.PROCESS_OPTIMIZER_TIME: 0.1}
    return window(trace, facts=facts, lines=lines, means=means, inside=True)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "self.enc = tokenizer(texts, padding='max_length', max_length=200)\nloss.backward()\n",
        "x = np.zeros((n, 200)) + PAD\nloss.backward()\n",
        TEXT + "layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)\n",
        "wave = F.pad(wave, (0, MOST - len(wave)))\nloss.backward()\n",
    ],
)
def test_rows_that_are_filled_up_to_the_longest_of_all(tmp_path: Path, text: str) -> None:
    finding = found(NAME, job(tmp_path, text))
    assert [place.line for place in finding.where] == [1]
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(BACK[0] * 0.8 * 0.75)
    assert finding.gain.high == pytest.approx(0.8 * min(BACK[1] * 0.75, 1 - 0.25**2))
    assert [each.value for each in finding.evidence] == [50, 200, 30, 4]


def test_what_operators_cost_by_themselves_stays(tmp_path: Path) -> None:
    many = {"devices": [{"kind": "cpu", "index": "0", "kernels": 2000, "span_ns": 100_000_000}]}
    plain, slow = (found(NAME, job(tmp_path, **more)).gain for more in ({}, many))
    assert plain is not None
    assert slow is not None
    # 2000 of them in the 100 ms of the trace.
    assert plain.low - slow.low == pytest.approx(BACK[0] * 0.26 * 0.75)
    assert plain.high == slow.high


def test_on_a_gpu_half_of_what_it_computes_may_stay(tmp_path: Path) -> None:
    gain = found(NAME, job(tmp_path, kind="gpu")).gain
    assert gain is not None
    assert gain.low == pytest.approx(BACK[0] * 0.45 * 0.75)


def test_attention_over_long_rows_may_be_all_of_a_step(tmp_path: Path) -> None:
    gain = found(NAME, job(tmp_path, length=2048, longest=1024)).gain
    assert gain is not None
    assert gain.high == pytest.approx(0.8 * 0.75)


def test_where_pictures_are_most_of_a_batch(tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, part=0.02))


def test_a_large_table_is_as_long_for_short_rows(tmp_path: Path) -> None:
    name = "aten::embedding_dense_backward"
    table = [{"name": name, "count": 10, "per_step": 1.0, "total_ns": 30_000_000}]
    gain = found(NAME, job(tmp_path)).gain
    seen = job(tmp_path)
    seen.traces[0].answer["calls"] = table  # type: ignore[typeddict-item]
    less = found(NAME, seen).gain
    assert gain is not None
    assert less is not None
    assert gain.low - less.low == pytest.approx(BACK[0] * 0.3 * 0.75)


@pytest.mark.parametrize(
    "text",
    [
        TEXT + "packed = nn.utils.rnn.pack_padded_sequence(x, lengths)\n",
        TEXT + "x = torch.nested.nested_tensor(rows)\n",
        TEXT + "out = flash_attn_varlen_func(q, k, v, cu_seqlens)\n",
    ],
)
def test_who_skips_the_padding_computes_none(tmp_path: Path, text: str) -> None:
    assert is_silent(NAME, job(tmp_path, text))


def test_who_only_speaks_of_it_computes_all(tmp_path: Path) -> None:
    found(NAME, job(tmp_path, TEXT + "# not yet: pack_padded_sequence(x)\n"))


@pytest.mark.parametrize("name", ["_pack_padded_sequence", "_nested_tensor_from_mask"])
def test_a_trace_shows_it_too(tmp_path: Path, name: str) -> None:
    assert f"aten::{name}" in ALWAYS_LISTED
    assert is_silent(NAME, job(tmp_path, calls={f"aten::{name}": 1.0}))


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("ids = ids[:, :longest]\n", True),
        ("x = batch['input_ids'][:, :mask.sum(1).max()]\n", True),
        ("x = batch.input_ids[:, :longest]\n", True),
        ("x = ids[:, -longest:]\n", True),
        ("x = ids.narrow(1, 0, longest)\n", True),
        ("x = x + self.places[:, :length]\n", False),
        ("x = x + places[:, :x.shape[1]]\n", False),
        ("y = logits[:, :-1]\n", False),
        ("y = ids[:n, 2:]\n", False),
        ("y = ids[:, at:to]\n", False),
        ("y = ids[k, :n]\n", False),
        ("ids[:, :n] = rows\n", False),
    ],
)
def test_who_cuts_rows_may_compute_none(tmp_path: Path, text: str, *, cuts: bool) -> None:
    finding = found(NAME, job(tmp_path, TEXT + text))
    assert finding.gain is not None
    assert (finding.gain.low == 0) is (finding.severity is Severity.LOW) is cuts
    assert finding.gain.high > 0.5


def test_rows_that_are_hardly_longer(tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, longest=180))


def test_what_is_not_known(tmp_path: Path) -> None:
    del tmp_path
    facts = {"torch": {"backend": "cpu"}}
    assert cannot_judge(NAME, window(answer({Slice.COMPUTE: 0.9}), facts=facts, inside=True))
    assert is_silent(NAME, window(facts={"jax": {"backend": "cpu"}}, inside=True))


def test_without_a_trace_nobody_knows_what_computes(tmp_path: Path) -> None:
    seen = job(tmp_path)
    assert cannot_judge(NAME, Window(seen.target, seen.kind, (), seen.job))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert [place.function for place in finding.where] == ["collate"]
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))


def test_another_fault() -> None:
    assert is_silent(NAME, recorded("unfused_optimizer/before_torch"))
