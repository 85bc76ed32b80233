"""Python code splits the text into tokens, in the thread that launches the steps.

## What it sees
Stack samples of the main thread in the tokenizers of transformers that are written in Python
(`use_fast=False`, or a model that has no other), and in functions of yours with such a name (`bpe`,
`tokenize`, `encode` of a tokenizer). Those of the library `tokenizers` are written in Rust, and are
not reported.

## Why it costs
Such a tokenizer processes each word in Python, which takes tens of microseconds for each token; the
one in Rust takes about one, and uses a thread for each text of a list. In a server every request
waits for it before anything is computed.

## How to fix
Use the fast tokenizer (`AutoTokenizer` does by default), and pass it a list of texts in one call.
Tokenize a data set once, before training (`datasets.map(batched=True)`). If there is only the slow
one, run it in a pool of processes.

## When it is wrong
The two handle a few special tokens differently: compare both on a sample of your texts.

## Documents
Beyond the documents: their samples are numbers.
"""

from __future__ import annotations

from whyidle.monitor.rules import Rule, both
from whyidle.monitor.rules._kinds import phase
from whyidle.monitor.signals.phases import Phase

# The one in Rust takes a tenth at most: the makers of transformers say a twentieth.
detect = phase(Phase.TOKENISATION, left=0.1, by_name=True)

rule = Rule(
    title="Python code splits the text into tokens",
    fixes=both(
        "Use the fast tokenizer on a list of texts in one call. Tokenize a data set once,"
        " before training.",
        """\
tokenizer = AutoTokenizer.from_pretrained(name)  # not: use_fast=False
# not: one text at a time
tokens = tokenizer(texts, padding=True, return_tensors="np")""",
    ),
)
