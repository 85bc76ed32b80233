"""The rule slow_tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, of_rows, written
from tests.rules.windows import cannot_judge, found, is_silent, judge, window
from whyidle.monitor.core.finding import Confidence
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

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
    assert finding.title == "Tokenizing on the host takes 30% of the main thread's time"
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


OWN = """\
import re
class BPE:
    def bpe(self, word):
        return [merges.get(pair, word) for pair in zip(word, word[1:])]
    def encode(self, text):
        return [vocab[c] for word in re.findall("x+", text) for c in self.bpe(word)]

def reply(text):
    return model(torch.tensor([tok.encode(text)]))

def reply_fast(text):
    return model(fast.encode(text))
"""


def own(tmp_path: Path, places: list[tuple[int, str]], leaf: tuple[str, str] | None) -> Window:
    """Return a window of which 60% is at some lines of one's own, and in a library below them."""
    file = str(written(tmp_path, OWN))
    frames = tuple(CodeLine(file, line, name) for line, name in places)
    inside = frames[0] if leaf is None else CodeLine(leaf[0], 9, leaf[1])
    samples = StackSamples()
    samples.samples = 1000
    samples.count(Chain(frames, inside, None if leaf is None else inside), 600, 600, 0)
    rest = CodeLine(TORCH[0], 9, TORCH[1])
    samples.count(Chain((CodeLine(file, 12, "reply_fast"),), rest, rest), 400, 400, 0)
    facts = {"torch": {"backend": "cpu"}}
    return window(stacks=samples, lines=samples.lines(), facts=facts, inside=True)


@pytest.mark.parametrize(
    "places",
    [
        [(4, "bpe"), (6, "encode"), (9, "reply")],
        [(6, "encode"), (9, "reply")],
        [(4, "tokenize_words"), (9, "reply")],
    ],
)
def test_a_tokenizer_of_ones_own(places: list[tuple[int, str]], tmp_path: Path) -> None:
    watched = own(tmp_path, places, None)
    finding = found(NAME, watched)
    assert finding.confidence is Confidence.HINTED
    assert finding.where[0].line == 9
    assert finding.title == "Tokenizing on the host takes 60% of the main thread's time"
    # A loop over the words of a text is none over the samples of a batch.
    assert [each.rule.id for each in diagnose(watched).findings] == [NAME]


@pytest.mark.parametrize(
    ("places", "leaf"),
    [
        # An encoder of a model, one that is not called so, and a tokenizer in Rust.
        ([(6, "encode"), (12, "reply_fast")], None),
        ([(6, "encode"), (9, "reply")], TORCH),
        ([(9, "reply")], (f"{LIB}/tokenizers/implementations/base_tokenizer.py", "encode")),
    ],
)
def test_what_is_no_tokenizer_of_ones_own(
    places: list[tuple[int, str]], leaf: tuple[str, str] | None, tmp_path: Path
) -> None:
    assert judge(NAME, own(tmp_path, places, leaf)) is None
