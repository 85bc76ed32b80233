"""Whether a line of the user's only asks again and again whether something has come."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.source import called_in, nodes_at
from whyidle.monitor.libraries.frames import is_call
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import CodeLine

_DOES_NOTHING: Final = (ast.Pass, ast.Continue, ast.Expr)


def spins_at(line: CodeLine) -> bool:
    """Tell whether a line is of a loop that only gives its core away between two looks."""
    if not is_users(line.file):
        return False
    return any(
        isinstance(node, ast.While)
        and all(isinstance(each, _DOES_NOTHING) for each in node.body)
        and is_call(Role.SPIN, called_in(node.body))
        for node in nodes_at(line.file, line.line)
    )
