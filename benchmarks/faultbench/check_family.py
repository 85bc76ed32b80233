"""Check that the anchors of a family stand where a statement may stand: check_family.py FAMILY ..."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.faultbench.program import KINDS, Program, families  # noqa: E402  found by the line above

KEYS = {"loss", "model", "batch", "opt", "index", "params", "array", "tokens", "tensor", "arrays", "x"}


def mistakes(family: str) -> list[str]:
    """Return what is wrong with a family."""
    program, found = Program.of_family(family), []
    for kind in KINDS:
        for anchor in list(program.anchors(kind)):
            for key, names in anchor.names.items():
                if key not in KEYS:
                    found.append(f"{anchor.file}:{anchor.line + 1}: no such key: {key}")
                found += [
                    f"{anchor.file}:{anchor.line + 1}: not a name: {name}"
                    for name in names.split(",")
                    if not all(part.isidentifier() for part in name.split("."))
                ]
    for kind in KINDS:
        for anchor in list(program.anchors(kind))[:1]:
            values = [name for key in anchor.names for name in anchor.list(key)]
            program.insert(anchor, f"_seen = ({', '.join(values)},)" if values else "_seen = ()")
    for file, lines in program.files.items():
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            found.append(f"{file}: with statements at its anchors it does not parse: {error}")
    if not any(program.anchors("step")):
        found.append("no `#@ step`")
    return found


def main() -> None:
    """Check those that were named, or all."""
    wrong = 0
    for family in sys.argv[1:] or families():
        found = mistakes(family)
        wrong += len(found)
        program = Program.of_family(family)
        anchors = [kind for kind in KINDS if any(program.anchors(kind))]
        print(f"{family}: {program.framework}, anchors {', '.join(anchors)}")
        for each in found:
            print(f"  {each}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
