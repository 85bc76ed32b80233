"""Source with pieces changed: the rest keeps its formatting to the letter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import libcst as cst

from whyidle.monitor.fixes._pieces import dotted
from whyidle.monitor.fixes._source import Edit, Source


def rewritten(
    source: Source, edits: Mapping[cst.CSTNode, Edit], imports: Iterable[str] = ()
) -> str:
    """Return the text with these pieces changed."""
    if not edits:
        return source.text
    module = source.module.visit(_Rewriting(edits))
    if not isinstance(module, cst.Module):
        raise TypeError("a module became something else")
    for name in imports:
        module = _importing(module, name)
    return module.code


class _Rewriting(cst.CSTTransformer):
    def __init__(self, edits: Mapping[cst.CSTNode, Edit]) -> None:
        super().__init__()
        self.edits = edits

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> Any:
        """Change a piece that is to be changed."""
        edit = self.edits.get(original_node)
        return updated_node if edit is None else edit(updated_node)


def _importing(module: cst.Module, name: str) -> cst.Module:
    """Import a module before the first import that is not of ``__future__``."""
    body = list(module.body)
    at = next((i for i, x in enumerate(body) if _imports(x)), None)
    new = cst.parse_statement(f"import {name}\n", module.config_for_parsing)
    if at is None:
        at = 1 if module.get_docstring() is not None else 0
    elif isinstance(new, cst.SimpleStatementLine):
        old = body[at]
        if isinstance(old, cst.SimpleStatementLine):
            new = new.with_changes(leading_lines=old.leading_lines)
            body[at] = old.with_changes(leading_lines=())
    body.insert(at, new)
    return module.with_changes(body=body)


def _imports(statement: cst.BaseStatement) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    if isinstance(first, cst.ImportFrom):
        return first.module is None or dotted(first.module) != "__future__"
    return isinstance(first, cst.Import)
