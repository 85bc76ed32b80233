"""Check that the anchors of a family stand where a statement may: check_family.py [FAMILY ..]."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.faultbench.program import KINDS, Anchor, Program, families  # noqa: E402  found by the line above

KEYS: Final = frozenset(
    {"loss", "model", "batch", "opt", "index", "params", "array", "tokens", "tensor", "arrays", "x"}
    # Of programs of many processes: the number of this one.
    | {"rank"}
)


def mistakes(family: str) -> Iterator[str]:
    """Yield what is wrong with a family."""
    program = Program.of_family(family)
    for kind in KINDS:
        anchors = list(program.anchors(kind))
        for anchor in anchors:
            yield from _of_anchor(anchor)
        for anchor in anchors[:1]:
            program.insert(anchor, f"_seen = ({''.join(f'{name}, ' for name in _names(anchor))})")
    for file, lines in program.files.items():
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            yield f"{file}: with statements at its anchors it does not parse: {error}"
    if not any(program.anchors("step")):
        yield "no `#@ step`"


def _of_anchor(anchor: Anchor) -> Iterator[str]:
    at = f"{anchor.file}:{anchor.line + 1}"
    yield from (f"{at}: no such key: {key}" for key in anchor.names if key not in KEYS)
    for name in _names(anchor):
        if not all(part.isidentifier() for part in name.split(".")):
            yield f"{at}: not a name: {name}"


def _names(anchor: Anchor) -> list[str]:
    return [name for key in anchor.names for name in anchor.list(key)]


def main() -> None:
    """Check those that were named, or all."""
    wrong = 0
    for family in sys.argv[1:] or families():
        program, found = Program.of_family(family), list(mistakes(family))
        wrong += len(found)
        anchors = [kind for kind in KINDS if any(program.anchors(kind))]
        print(f"{family}: {program.framework}, anchors {', '.join(anchors)}")
        for each in found:
            print(f"  {each}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
