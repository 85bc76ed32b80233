"""``torch.cuda.empty_cache()`` is not called in each step: the allocator keeps its memory."""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.fixes._change import Change, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted


def change(source: Source, _wanted: Wanted) -> Change:
    """Take the calls out of training loops."""
    found = Change(source)
    for call in source.calls_of("torch.cuda.empty_cache", "torch.cuda.memory.empty_cache"):
        if source.training_loop(source.statement(call)) is None:
            continue
        statement = source.parent(call)
        if not isinstance(statement, ast.Expr):
            raise Refused("empty_cache() stands inside another statement", call)
        found.remove(statement)
    found.notes.append(
        "The memory that the allocator holds stays with it: other processes see less."
    )
    return found


codemod = Codemod(
    title="The allocator keeps its memory between steps",
    rules=("allocation_churn",),
    framework="pytorch",
)
