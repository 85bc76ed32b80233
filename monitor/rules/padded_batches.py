"""Much of each batch is padding.

## What it sees
The lengths of rows without padding, in a few batches of a DataLoader.

## Why it costs
Layers take longer by the factor of the length, attention by up to its square. Masks save nothing.

## How to fix
In transformers: `DataCollatorWithPadding(padding="longest")`, and `group_by_length=True` (later
`train_sampling_strategy="group_by_length"`). Packed rows leave almost no padding. If each new
length compiles again, round up to a few lengths.

## When it is wrong
Models that skip padding (packed or nested sequences) gain nothing. Batches on a GPU, without a
DataLoader, or of JAX are not inspected.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from whyidle.monitor.code.batches import cuts
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE, MOSTLY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.operators import TABLE_GRADIENT, work_free
from whyidle.monitor.signals.user_lines import asking, own

# What comes back of the step for each part of a row less: 0.97 to 1.19 for ten networks on a CPU
# (``benchmarks/step_costs.py``), most with attention over long rows, of 512 at most. Attention over
# longer ones may take all of a step.
BACK: Final = (0.95, 1.2)
LONGEST_MEASURED: Final = 512
# Who packs rows computes no padding.
_SKIPS: Final = re.compile(
    r"pack_padded_sequence|pack_sequence|\bnested_tensor|\bvarlen|cu_seqlens|flex_attention"
)
_SKIPPED: Final = r"aten::(_pack_padded_sequence|_nested_tensor_from_mask)"
# Who asks for one length, or fills rows up.
_ONE_LENGTH: Final = re.compile(
    r"""padding\s*=\s*["']max_length["']|pad_to_max_length\s*=\s*True"""
)
_FILLS: Final = re.compile(r"(?i)\b(new_)?(full|zeros|ones|empty)\w*\(.*pad|\b(\w*_)?pad(_\w+)?\(")


def detect(window: Window) -> Verdict:
    """Judge how much of a batch nobody needs."""
    said = window.fact("padding")
    if not isinstance(said, Mapping):
        return window.lacks(Need.INSIDE, "rows of a batch of a DataLoader, in main memory")
    length, longest = said["length"], said["longest"]
    spare = 1 - longest / length
    if spare < LITTLE or said["part"] < MOSTLY:
        return None
    if (window.trace and window.trace.calls(_SKIPPED)) or asking(window.job, _SKIPS):
        return None
    least, most = window.needed(_computes(window), Need.TRACE)
    # The user's files that the main thread was found in.
    files = {place.file for place in own(map(Place.at, window.job.lines), most=None)}
    may_cut = any(map(cuts, files))
    high = 1 - (1 - spare) ** 2
    if length <= LONGEST_MEASURED:
        high = min(BACK[1] * spare, high)
    measure = window.job.measure
    return Found(
        gain=Gain.between(0.0 if may_cut else BACK[0] * least * spare, most * high),
        evidence=(
            Evidence.of("the longest of a batch needs", measure(longest, "count")),
            Evidence.of("length of a row", measure(length, "count")),
            Evidence.of("a row needs on average", measure(said["mean"], "count")),
            Evidence.of("batches looked at", measure(said["batches"], "count")),
        ),
        where=asking(window.job, _ONE_LENGTH) or asking(window.job, _FILLS),
        slice=Slice.COMPUTE,
        severity=Severity.LOW if may_cut else None,
        confidence=Confidence.INFERRED,
    )


def _computes(window: Window) -> tuple[float, float] | None:
    """Return the least and the most of a step that takes longer for longer rows."""
    work = window.share(Slice.COMPUTE)
    if work is None:
        return None
    updates = window.job.mean(m.PROCESS_OPTIMIZER_TIME)
    most = max(0.0, work.value - (updates.value if updates and window.device == "cpu" else 0.0))
    # An operator's own price, and a table of embeddings, are the same for any length; how much that
    # is on a GPU is not known.
    fixed = most / 2
    if window.device == "cpu" and window.trace is not None:
        fixed = work_free(window.trace) + window.trace.in_calls(TABLE_GRADIENT)
    return max(0.0, most - fixed), most


rule = Rule(
    title="Much of each batch is padding",
    fixes={
        "pytorch": Fix(
            "Pad each batch only to its own longest row, and group rows by length.",
            """\
def collate(rows):  # of DataLoader(.., collate_fn=collate)
    rows = [torch.as_tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(
        rows, batch_first=True, padding_value=pad
    )""",
        )
    },
    only=("pytorch",),
)
