"""Pieces of a text are replaced where they stand, and the rest of it stays to the letter."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.fixes.programs import refused
from whyidle.monitor.code.names import Source
from whyidle.monitor.fixes._change import Change, Refused


def made(text: str) -> tuple[Source, Change]:
    source = Source(dedent(text).lstrip("\n"))
    return source, Change(source)


@pytest.mark.parametrize(("before", "after"), [
    ("f()", "f(n=1)"),
    ("f(a)", "f(a, n=1)"),
    ("f(a,)", "f(a, n=1,)"),
    ("f((a))", "f((a), n=1)"),
    ("f(n=0)", "f(n=1)"),
    ("f(\n    a,\n    b=2,  # two\n)", "f(\n    a,\n    b=2,  # two\n    n=1,\n)"),
    ("f(\n    a,\n    b=2  # two\n)", "f(\n    a,\n    b=2,\n    n=1  # two\n)"),
    ("f(a,\n  b)", "f(a,\n  b,\n  n=1)"),
    ("f(é, 'ü')", "f(é, 'ü', n=1)"),
])  # fmt: skip
def test_a_call_gets_an_argument_laid_out_like_the_others(before: str, after: str) -> None:
    source, change = made(before)
    change.argument(source.calls[0], "n", "1")
    assert change.text() == after


def test_a_call_with_a_generator_gets_none() -> None:
    source, change = made("f(x for x in y)")
    with pytest.raises(Refused, match="generator"):
        change.argument(source.calls[0], "n", "1")


def test_statements_stand_in_a_block() -> None:
    source, change = made("""
        def run():
          # Why.
          a = f(1,
                2)  # how

          b = '''
          text
          '''
          return a
        """)
    function = source.module.body[0]
    assert isinstance(function, ast.FunctionDef)
    change.wrap(function.body[:2], "if a")
    assert change.text() == dedent("""\
        def run():
          # Why.
          if a:
            a = f(1,
                  2)  # how

            b = '''
          text
          '''
          return a
        """)


def test_a_statement_goes_with_the_comments_on_it_alone() -> None:
    source, change = made(
        'a = 1\nb = """\n# no comment"""\n# on c\nc = 2\nd = f("""\n# none""")\ne = 3\n'
    )
    change.remove(source.module.body[2])
    change.remove(source.module.body[4])
    assert change.text() == 'a = 1\nb = """\n# no comment"""\nd = f("""\n# none""")\n'


def test_the_last_statement_of_a_block_becomes_pass() -> None:
    source, change = made("for x in y:\n    f()\n    g()\n")
    loop = source.module.body[0]
    assert isinstance(loop, ast.For)
    for each in loop.body:
        change.remove(each)
    assert change.text() == "for x in y:\n    pass\n"


def test_windows_ends_of_lines_stay() -> None:
    source, change = made("import os\r\nf(\r\n    a,\r\n)\r\n")
    change.argument(source.calls[0], "n", "1")
    change.imports("gc")
    assert change.text() == "import gc\r\nimport os\r\nf(\r\n    a,\r\n    n=1,\r\n)\r\n"


@pytest.mark.parametrize("text", ["a = 1; b = 2\n", "if x: a = 1\n"])
def test_what_shares_its_line_is_left(text: str) -> None:
    source, change = made(text)
    first = source.at_lines([1])[0]
    with pytest.raises(Refused, match="one line"):
        change.wrap([first.body[0] if isinstance(first, ast.If) else first], "if y")


def test_changes_that_meet_are_none() -> None:
    source, change = made("f(g(x))\n")
    change.replace(source.calls[0], "h()")
    change.replace(source.calls[1], "i()")
    with pytest.raises(Refused, match="meet"):
        change.text()


def test_a_piece_of_formatted_text_is_replaced_where_it_is_or_not_at_all() -> None:
    """Before Python 3.12 such pieces have wrong places where the text goes over several lines."""
    text = 's = f"""\n  {a} {a + b}\n {a}"""\n'
    source, change = made(text)
    for node in source.everything:
        if isinstance(node, ast.Name) and node.id == "b":
            try:
                change.replace(node, "c")
            except Refused:
                return
    assert change.text() == text.replace("a + b", "a + c")


def test_what_is_imported_where_it_may_fail_is_not_used_after_other_imports() -> None:
    program = "import os\ntry:\n    import torch\nexcept ImportError:\n    torch = None\n"
    sure = "import os\ntry:\n    import torch\nfinally:\n    pass\n"
    assert "line of its own" in refused("matmul_precision", sure)
    with pytest.raises(AssertionError, match="nothing of the kind"):
        refused("matmul_precision", program)
