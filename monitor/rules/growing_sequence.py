"""Generation computes the whole sequence again for each token.

## What it sees
Stack samples of the main thread in a loop of yours that appends a token to a sequence, an array or
a list, and gives the sequence to the model in the next pass; in one that gives the model its last
output and appends keys and values to the earlier ones; or in `generate` of transformers, whose
cache grows unless it is asked for a fixed length. How much of a GPU's time this leaves idle is not
given: a trace shows it.

## Why it costs
Without a cache of keys and values the model computes the whole text again for each token of it.
With a growing cache each token has new shapes: nothing can be compiled or captured in a graph once
and for all, JAX compiles again, and for one prompt at a time Python takes longer than the device.

## How to fix
Keep keys and values of all earlier tokens in buffers that are as long as the longest text, write
the new ones in their place, and give the model one token. Then the step has one shape: compile it
(`torch.compile(mode="reduce-overhead")`, `jax.jit`, `jax.lax.scan` over the tokens). Generate for
many prompts at once. In transformers: `cache_implementation="static"`. For more than a quick look,
use a server that batches by itself (vLLM, SGLang).

## When it is wrong
A few sample tokens during training cost little, and are not reported. Short texts in large batches
on a busy device gain nothing from a cache. In a loop on the CPU, where each computed token costs, a
cache saves more than is known here.

## Documents
Beyond the documents: they generate nothing.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.code.growing import caching_loops, grown_at
from whyidle.monitor.core.amounts import LITTLE, MOSTLY
from whyidle.monitor.core.finding import Confidence, Evidence, Found
from whyidle.monitor.rules import Fix, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.account import HostRow, by_line
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.user_lines import own

_IN_STEPS: Final = frozenset({Phase.STEP, Phase.PERIODIC})


def detect(window: Window) -> Verdict:
    """Judge loops that generate."""
    account = window.sampled
    caching = caching_loops(row.frames for row in account.rows if row.phase in _IN_STEPS)

    def line_of(row: HostRow) -> CodeLine | None:
        if row.phase is Phase.GENERATION and row.begins is not None:
            return row.begins
        if row.phase not in _IN_STEPS:
            return None
        in_loop = (caching[loop] for loop in caching if any(map(loop.has, row.frames)))
        return grown_at(row.frames) or next(in_loop, None)

    lines = {row: line_of(row) for row in account.rows}
    where = by_line(account.rows, lines.get)
    share = sum(place.share or 0.0 for place in where)
    compute = window.share(Slice.COMPUTE) if window.device == "gpu" else None
    if share < LITTLE or (compute is not None and compute.value >= MOSTLY):
        return None
    has_cache = any(
        row.phase is Phase.GENERATION or line in caching.values() for row, line in lines.items()
    )
    # Where a GPU is seen to wait it costs; on a CPU all that is computed again does.
    costs = compute is not None or (window.device == "cpu" and not has_cache)
    measures = {"main thread: generates": window.job.sampled(share), "the GPU computes": compute}
    return Found(
        gain=None,
        evidence=Evidence.known(measures),
        where=own(where),
        severity=Severity.MEDIUM if costs and share >= MOSTLY else Severity.LOW,
        confidence=Confidence.INFERRED,
    )


rule = Rule(
    title="Generation computes the whole sequence again for each token",
    fixes={
        "pytorch": Fix(
            "Cache keys and values in fixed-length buffers, one token per call. Compile that"
            ' step. In transformers: generate(cache_implementation="static"), with many prompts'
            " at once.",
            """\
# once, for each layer; the same for values
keys = torch.zeros(batch, heads, longest, width)
# not: torch.cat([keys, new_keys], 2)
keys[:, :, at : at + 1] = new_keys
scores = query @ keys.transpose(2, 3)
scores = scores.masked_fill(torch.arange(longest) > at, -torch.inf)""",
        ),
        "jax": Fix(
            "Cache keys and values in fixed-length arrays, and scan the tokens. Under jit that"
            " is one shape and one program.",
            """\
def next_token(carry, at):
    keys, token = carry
    # not: jnp.concatenate
    keys = jax.lax.dynamic_update_slice(keys, key_of(token), (at, 0))
    token = pick(keys, token, at)
    return (keys, token), token

# under jax.jit
_, tokens = jax.lax.scan(next_token, (keys, token), jnp.arange(longest))""",
        ),
    },
    paced_by="samples",
)
