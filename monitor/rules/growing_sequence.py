"""Generation computes the whole sequence again for each token.

## What it sees
A loop that appends a token and passes the whole sequence again, or appends to keys and values, or
transformers' `generate` without a fixed-length cache.

## Why it costs
A growing cache changes shapes: JAX compiles again, and no graph can be captured.

## How to fix
Compile the step (`torch.compile(mode="reduce-overhead")`, `jax.jit`). For regular use, take a
server that batches (vLLM, SGLang).

## When it is wrong
Short texts in large batches on a busy device gain nothing.

## Documents
Beyond the five documents.
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
        if row.phase is Phase.GENERATION:
            return grown[row] or row.begins
        if row.phase not in _IN_STEPS:
            return None
        in_loop = (caching[loop] for loop in caching if any(map(loop.has, row.frames)))
        return grown[row] or next(in_loop, None)

    grown = {row: grown_at(row.frames) for row in account.rows}
    lines = {row: line_of(row) for row in account.rows}
    where = by_line(account.rows, lines.get)
    share = sum(place.share or 0.0 for place in where)
    compute = window.share(Slice.COMPUTE) if window.device == "gpu" else None
    if share < LITTLE or (compute is not None and compute.value >= MOSTLY):
        return None
    has_cache = any(line is not None and grown[row] is None for row, line in lines.items())
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
