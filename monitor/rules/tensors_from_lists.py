"""Tensors are made from Python lists, number by number.

## What it sees
Main-thread samples at lines that make a tensor from a list (`torch.tensor(rows)`,
`jnp.array([...])`). Lists passed as arguments are not judged.

## Why it costs
For each number PyTorch takes 108 ns, JAX 2,300 ns, NumPy 16 ns, an array's copy 0.1 ns. A list of
arrays takes PyTorch 94 ns, after `np.stack` 0.6 ns.

## How to fix
Make constants once, before the loop.

## When it is wrong
Lists of different lengths need padding. If the list is parsed from text, the parsing stays.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.code.lists import made_of_list
from whyidle.monitor.code.source import calls
from whyidle.monitor.core.finding import Confidence, Evidence, Found
from whyidle.monitor.core.host_class import LAUNCHES, HostClass
from whyidle.monitor.rules import Fix, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.gain import Side, comes_back

# To make an array of the same list first takes 16 of 108 ns for a number, and as much is left.
LEFT: Final = 0.15
_MAKING: Final = LAUNCHES | {HostClass.UNCLEAR, HostClass.LIBRARY}


def detect(window: Window) -> Verdict:
    """Judge the time at lines that make tensors of lists."""
    account = window.sampled
    alone = sum(row.share for row in account.rows if _makes(row))
    mixed = sum(row.share for row in account.rows if _makes(row) is False)
    # What else there is on those lines is the pass back, of which all may be there if none is seen.
    back = [row.share for row in account.rows if row.frames and _passes_back(row.frames[0])]
    high = min(1.0, alone + mixed)
    low = alone + max(0.0, mixed - (sum(back) if back else 1.0))
    sure = max(0.0, low - account.error(low)) * (1.0 - LEFT)
    gain = comes_back(window, sure, min(1.0, high + account.error(high)), Side.HOST)
    # Every program makes a tensor of a list now and then: less is not worth a person's time.
    if min(high, gain.high) < Severity.MEDIUM.least:
        return None
    return Found(
        gain=gain,
        evidence=(Evidence.of("main thread: at lines that make them", window.job.sampled(high)),),
        where=account.lines(lambda row: _makes(row) is not None)[:3],
        slice=Slice.IDLE_DISPATCH if window.device == "gpu" else None,
        confidence=Confidence.INFERRED,
    )


def _makes(row: HostRow) -> bool | None:
    """Tell whether a row is of a line that does only that; ``None``: it does not do it."""
    return made_of_list(row.frames[0]) if row.frames and row.doing in _MAKING else None


def _passes_back(line: CodeLine) -> bool:
    made = calls(line.file, line.line)
    return any(getattr(call.func, "attr", "") == "backward" for call in made)


_TEXT: Final = "Collect into an array from the start. Pass that on"

rule = Rule(
    title="Tensors are made from Python lists, number by number",
    fixes={
        "pytorch": Fix(
            f"{_TEXT}: torch.from_numpy. Turn a list of arrays into one with np.stack first.",
            """\
rows = np.empty((len(samples), 4), np.float32)  # was: rows = []
for number, sample in enumerate(samples):
    rows[number] = sample  # was: rows.append(sample)
batch = torch.from_numpy(rows)  # was: torch.tensor(rows)""",
        ),
        "jax": Fix(
            f"{_TEXT}: jnp.asarray. Turn a list of arrays into one with np.stack first.",
            """\
rows = np.empty((len(samples), 4), np.float32)  # was: rows = []
for number, sample in enumerate(samples):
    rows[number] = sample  # was: rows.append(sample)
batch = jnp.asarray(rows)  # was: jnp.array(rows)""",
        ),
    },
)
