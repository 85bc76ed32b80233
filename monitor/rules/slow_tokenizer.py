"""Python code splits the text into tokens, in the thread that launches the steps.

## What it sees
Main-thread samples in a Python tokenizer of transformers (`use_fast=False`), or in your functions
with such names (`bpe`, `encode`).

## Why it costs
Python takes tens of microseconds for each token, Rust about one, with a thread for each text.

## How to fix
`AutoTokenizer` is fast by default. For a data set use `datasets.map(batched=True)`; run a slow
tokenizer in a pool of processes.

## When it is wrong
A few special tokens differ: compare both on your texts.

## Documents
Beyond the five documents.
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
