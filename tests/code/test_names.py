"""What names certainly mean: each answer is certain, or nothing."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from whyidle.monitor.code.names import Source


def last(text: str) -> tuple[Source, ast.Name]:
    """Return the name that the last line of a program is."""
    source = Source(dedent(text).strip("\n") + "\n")
    names = [x for x in source.everything if isinstance(x, ast.Name)]
    return source, max(names, key=lambda x: (x.lineno, x.col_offset))


@pytest.mark.parametrize(("text", "full"), [
    ("import torch\ntorch", "torch"),
    ("import torch.nn as nn\nnn", "torch.nn"),
    ("import os.path\nos", "os"),
    ("from torch import nn as n\nn", "torch.nn"),
    ("from . import nn\nnn", ".nn"),
    ("from .nn import a\na", ".nn.a"),
    ("len", "len"),
    ("import torch\ntorch = 1\ntorch", None),
    ("def len(x): ...\nlen", None),
    ("import torch\ndef f(torch):\n    torch", None),
    ("import torch\nclass A:\n    torch = 1\n    def f(self):\n        torch", "torch"),
    ("import torch\ndef f():\n    global torch\n    torch = 1\ntorch", None),
    ("import a\nb = [a for a in x]\na", "a"),
    ("import a\nb = [(a := c) for c in x]\na", None),
    ("try:\n    import a\nexcept E as a:\n    pass\na", None),
    ("import a\nmatch x:\n    case [a, *_]:\n        pass\na", None),
    ("unknown", None),
])  # fmt: skip
def test_what_is_imported(text: str, full: str | None) -> None:
    source, name = last(text)
    assert source.imported(name) == full


@pytest.mark.parametrize(("text", "value"), [
    ("a = 1\na", "1"),
    ("a: int = 1\na", "1"),
    ("a, b = 1, 2\nb", "2"),
    ("a, b = f()\nb", None),
    ("a = 1\na = 2\na", None),
    ("a = 1\ndef f():\n    a", "1"),
    ("a = 1\ndef f():\n    global a\n    a = 2\na", None),
    ("def f(x=lambda a: a):\n    a = 3\n    a", "3"),
])  # fmt: skip
def test_what_a_name_is_set_to(text: str, value: str | None) -> None:
    source, name = last(text)
    made = source.value(name)
    assert (None if made is None else source.code(made)) == value


def test_where_a_name_is_read() -> None:
    source, name = last("""
        total = 0
        def f():
            def total(): ...
            return total
        def g():
            return [total for x in y], lambda total: total
        total
        """)
    assert [use.lineno for use in source.uses(name)] == [6, 7]


def test_how_something_is_written_here() -> None:
    source = Source("import jax\nimport jax.numpy as jnp\ndef f(jnp):\n    g()\n")
    assert source.spelt("jax.numpy.sum") == "jnp.sum"
    assert source.spelt("jax.numpy.sum", source.calls[0]) == "jax.numpy.sum"
    assert source.spelt("torch.sum") is None


def test_a_piece_has_the_parentheses_around_it() -> None:
    source = Source("f((a + b), (c))\nx = (  # why\n    a)\ny = (a), (b)\n")
    call = source.calls[0]
    assert [source.code(x) for x in call.args] == ["(a + b)", "(c)"]
    assert source.is_bare(source.module.body[2].value)  # type: ignore[attr-defined]
