"""``torch.cuda.empty_cache()`` is not called in each step: the allocator keeps its memory."""

from __future__ import annotations

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import training_loop
from whyidle.monitor.fixes._source import Source


def change(source: Source, _wanted: Wanted) -> Change:
    """Take the calls out of training loops."""
    found = Change()
    for call in source.calls_of("torch.cuda.empty_cache", "torch.cuda.memory.empty_cache"):
        statement = source.statement(call)
        if training_loop(source, statement) is None:
            continue
        alone = (
            isinstance(statement, cst.SimpleStatementLine)
            and len(statement.body) == 1
            and isinstance(statement.body[0], cst.Expr)
            and statement.body[0].value is call
        )
        if not alone:
            raise Refused("empty_cache() stands inside another statement", source.line(call))
        if len(source.siblings(statement)) > 1:
            found.edits[statement] = lambda _: cst.RemoveFromParent()
        else:
            found.replace(statement, cst.parse_statement("pass"))
    if not found.edits:
        raise NotHere
    found.notes.append(
        "The memory that the allocator holds stays with it: other processes see less."
    )
    return found


codemod = Codemod(
    title="The allocator keeps its memory between steps",
    rules=("allocation_churn",),
    change=change,
)
