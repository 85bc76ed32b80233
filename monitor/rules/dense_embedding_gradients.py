"""The gradient of a large embedding is dense: each step goes through all of its rows.

## What it sees
A CPU trace in which the gradient of embeddings takes at least ten times as long as the lookup. GPUs
are not judged.

## Why it costs
Each step writes a gradient for the whole table: for 300,000 rows and batches of 4,096, Adam took
twenty times as long.

## How to fix
SGD and Adagrad also accept sparse gradients. Use `torch.optim.SparseAdam` for the embeddings only.

## When it is wrong
Tied weights have a dense gradient anyway. Weight decay and clipping by norm reject sparse ones.
Unused rows stop moving, which changes the training.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code.source import line_of, text_of
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import BEYOND_CHANCE, MOST_SHOWN, SURELY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.operators import TABLE_GRADIENT, optimizers_of
from whyidle.monitor.signals.traced import LEAST_STEPS
from whyidle.monitor.signals.user_lines import asking

# As long as looking the rows up: below it a table is about as large as what a batch uses of it, and
# with Adagrad or in bags a sparse gradient was slower (``benchmarks/step_costs.py``).
LEAST_RATIO: Final = 10.0
# What surely comes back of the gradient; and as much of the optimizer, where that takes
# so long and remembers something of each row: a tenth where it does not, by the same measure.
OF_GRADIENT: Final = 0.6
SPARSE: Final = frozenset({"SGD", "Adagrad", "Adam"})
REMEMBERS: Final = frozenset({"Adagrad", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop"})
OF_OPTIMIZER, OF_PLAIN = 1.0, 0.1
_LOOKED_UP: Final = r"aten::(embedding|_embedding_bag(_forward_only)?)"
_UPDATED: Final = r"Optimizer\.step#.*"
_CLEARED: Final = r"Optimizer\.zero_grad#.*"
_MADE: Final = re.compile(
    r"^(?!\s*(class|def)\b).*(\bEmbedding(Bag)?|\b(F|functional)\.embedding(_bag)?)\((?!.*sparse\s*=)"
)
# What a line gives a name to: ``self.words = ...``, ``words: nn.Embedding = ...``, ``"words": ...``
_NAMED: Final = re.compile(
    r"""(\w+)["']?\s*(?::\s*[\w.]+\s*)?[=:]\s*(?:\w+\.)*Embedding(?:Bag)?\("""
)
_TIES: Final = re.compile(r"\btie(d|s)?(_\w+)?\b")
_BEGINS: Final = re.compile(r"\binit\.\w+\(")
_FORBIDS: Final = re.compile(r"clip_grad_norm|weight_decay\s*=\s*(?!0(\.0*)?\b)")


def detect(window: Window) -> Verdict:
    """Judge what the gradients of embeddings take, beside looking them up."""
    trace = window.needed(window.trace, Need.TRACE)
    looked_up, gradient = trace.in_calls(_LOOKED_UP), trace.in_calls(TABLE_GRADIENT)
    if not looked_up or gradient < max(BEYOND_CHANCE, LEAST_RATIO * looked_up):
        return None
    # A piece of a step, or the first one, has other shares.
    if trace.steps < LEAST_STEPS:
        return window.lacks(Need.LONGER_TRACE)
    made = asking(window.job, _MADE, None)
    if any(map(_is_read_as_a_whole, made)):
        return None
    kinds = {str(each.get("kind")) for each in optimizers_of(window)}
    updates = window.job.mean(m.PROCESS_OPTIMIZER_TIME)
    updating = 0.0 if updates is None else updates.value
    # How many times the gradient of a table its optimizer takes, at least.
    times = OF_OPTIMIZER if kinds and kinds <= REMEMBERS else OF_PLAIN
    low = OF_GRADIENT * (gradient - looked_up) + min(updating, times * gradient)
    # Of one trace, where it has both: shares of two windows may add up to more than there is.
    both = min(1.0, gradient + (trace.in_calls(_UPDATED) or updating) + trace.in_calls(_CLEARED))
    # The old table is given back to the system elsewhere: of a step both were 0.91, and 0.96 came
    # back.
    high = both + SURELY * (1 - both)
    # Whether it can have sparse gradients is not known of a library's; with these it cannot.
    takes_sparse_ones = made and kinds <= SPARSE and not asking(window.job, _FORBIDS)
    measures = {
        "gradient of embeddings": trace.measure(gradient, "ratio"),
        "their rows looked up": trace.measure(looked_up, "ratio"),
        "time in optimizers": updates,
    }
    return Found(
        gain=Gain.between(low, high),
        evidence=Evidence.known(measures),
        where=made[:MOST_SHOWN],
        severity=None if takes_sparse_ones else Severity.LOW,
        slice=Slice.COMPUTE,
        confidence=Confidence.INFERRED,
    )


def _is_read_as_a_whole(place: Place) -> bool:
    """Tell whether a table is something else as well, such as the last layer."""
    lines = [x.partition("#")[0] for x in (text_of(place.file) or "").splitlines()]
    made = _NAMED.search(line_of(place.file, place.line) or "")
    used = re.compile(rf"\b{made[1]}\.weight\b(?!\.data)" if made else r"\.weight\s*=")
    return any(_TIES.search(x) or (used.search(x) and not _BEGINS.search(x)) for x in lines)


rule = Rule(
    title="Each step updates all rows of an embedding, but uses few",
    fixes={
        "pytorch": Fix(
            "Make the embedding with sparse=True, and train it with SparseAdam.",
            """\
table = torch.nn.Embedding(rows, width, sparse=True)
of_table = torch.optim.SparseAdam(table.parameters(), lr=rate)
of_rest = your_optimizer(rest.parameters(), **as_before)""",
        )
    },
    only=("pytorch",),
    device="cpu",
)
