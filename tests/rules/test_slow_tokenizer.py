"""The rule slow_tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, of_rows, written
from tests.rules.windows import cannot_judge, found, is_silent, window

NAME = "slow_tokenizer"
_BEFORE = """
name, texts = "a model", ["one", "two"]
class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, name): return cls()
    def __call__(self, texts, **how): return [len(text) for text in texts]
"""
FIXES = dict.fromkeys(("pytorch", "jax"), (_BEFORE, "assert tokens == [3, 3]"))
SERVES = "def reply(request):\n    ids = encode(request.text)\n    return model(ids)\n"


@pytest.mark.parametrize(
    "library",
    [
        ("transformers/tokenization_utils.py", "_tokenize"),
        ("transformers/tokenization_python.py", "tokenize"),
        ("transformers/models/bert_japanese/tokenization_bert_japanese.py", "tokenize"),
    ],
)
def test_a_tokenizer_in_python(library: tuple[str, str], tmp_path: Path) -> None:
    inside = f"{LIB}/{library[0]}", library[1]
    finding = found(NAME, of_rows(written(tmp_path, SERVES), [(2, inside, 300), (3, TORCH, 700)]))
    assert finding.title == "Tokenising on the host takes 30% of the main thread's time"
    assert finding.where[0].line == 2
    assert finding.gain is not None
    assert 0.2 < finding.gain.low < 0.3 < finding.gain.high < 0.34


@pytest.mark.parametrize(
    ("library", "samples"),
    [
        (("transformers/tokenization_utils_fast.py", "_batch_encode_plus"), 300),
        (("transformers/tokenization_utils_tokenizers.py", "_encode_plus"), 300),
        (("transformers/models/bert/tokenization_bert_fast.py", "__call__"), 300),
        (("transformers/tokenization_python.py", "from_pretrained"), 300),
        (("transformers/tokenization_python.py", "tokenize"), 20),
    ],
)
def test_fast_ones_starts_and_a_little_are_healthy(
    library: tuple[str, str], samples: int, tmp_path: Path
) -> None:
    inside = f"{LIB}/{library[0]}", library[1]
    rows = [(2, inside, samples), (3, TORCH, 1000 - samples)]
    assert is_silent(NAME, of_rows(written(tmp_path, SERVES), rows))


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())
