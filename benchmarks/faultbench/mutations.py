"""Faults (``mutations.toml``) put into the source of a program."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.faultbench.program import MARK, Anchor, NotApplicable, Program

_NAME: Final = re.compile(r"\{(\w+)(\[0\])?\}")
_EACH: Final = re.compile(r"\{\*(\w+)\}")
_SIZES: Final = re.compile(r"\b(batch_size|BATCH_SIZE|BATCH|batch|bs|B)\s*=\s*(\d+)\b")
_SMALLER: Final = 16


@dataclass(frozen=True, slots=True)
class Insert:
    """Code at the first anchor that has the names it needs."""

    at: str
    code: str
    needs: Sequence[str] = ()
    imports: str = ""
    # Before the loop.
    setup: str = ""

    def apply(self, program: Program) -> None:
        """Put it in."""
        if self.at == "setup":
            # What a step works with is there before the loop.
            step, anchor = program.anchor("step", *self.needs), program.anchor("setup")
            program.insert(anchor, _filled(self.code, step))
        else:
            anchor = program.anchor(self.at, *self.needs)
            program.insert(anchor, _filled(self.code, anchor))
        if self.setup:
            # Where the fault is, is where it runs, in a function that stands there, too: what it
            # prepares is no part of it.
            runs = self.setup.lstrip().startswith(("def ", "@"))
            program.insert(program.anchor("setup"), self.setup, is_fault=runs)
        if self.imports:
            _import(program, anchor.file, self.imports.strip())


@dataclass(frozen=True, slots=True)
class Replace:
    """What matches is replaced, wherever it stands."""

    pattern: str
    by: str

    def apply(self, program: Program) -> None:
        """Replace it."""
        if not program.replace(self.pattern, self.by):
            raise NotApplicable(f"{program.family} has nothing like {self.pattern}")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault, in one spelling; or the cure of one that a healthy program has."""

    faults: Sequence[str] = ()
    cures: str | None = None
    name: str = ""
    framework: str | None = None
    insert: Sequence[Insert] = ()
    replace: Sequence[Replace] = ()
    neighbours: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    does: str | None = None

    def apply(self, program: Program) -> None:
        """Put the fault in; ``NotApplicable``: this program has no place for it."""
        if self.framework not in {None, program.framework}:
            raise NotApplicable(f"{program.family} does not use {self.framework}")
        changes: tuple[Insert | Replace, ...] = (*self.insert, *self.replace)
        for change in changes:
            change.apply(program)
        if self.does is not None:
            _DOES[self.does](program)
        program.neighbours += self.neighbours
        program.environment |= self.environment


def _filled(code: str, anchor: Anchor) -> str:
    def name(found: re.Match[str]) -> str:
        key = found[1]
        if key not in anchor.names:
            raise NotApplicable(f"`#@ {anchor.kind}` names no {key}")
        return anchor.names[key] if found[2] is None else anchor.list(key)[0]

    lines: list[str] = []
    for line in code.strip("\n").splitlines():
        each = _EACH.search(line)
        names = [""] if each is None else anchor.list(each[1])
        lines += [_NAME.sub(name, _EACH.sub(one, line)) for one in names]
    return "\n".join(lines)


def _import(program: Program, file: str, text: str) -> None:
    """Import at the head of a file, after its docstring and its imports of ``__future__``."""
    lines = program.files[file]
    anchors = [a for a in program.anchors("imports") if a.file == file]
    if anchors:
        program.insert(anchors[0], text, is_fault=False)
        return
    last = max((i for i, line in enumerate(lines) if re.match(r"(import|from) ", line)), default=-1)
    closes = last
    while closes >= 0 and "(" in lines[closes] and ")" not in "".join(lines[last : closes + 1]):
        closes += 1
        if ")" in lines[closes]:
            break
    lines[closes + 1 : closes + 1] = text.splitlines()


def _dropped_jit(program: Program) -> None:
    jit = r"(?:jax|nnx|eqx)\.(?:filter_)?jit"
    found = program.replace(rf"^\s*@(?:functools\.)?partial\({jit},.*\)\s*$", "# not compiled")
    found += program.replace(rf"^\s*@{jit}(?:\(.*\))?\s*$", "# not compiled")
    found += program.replace(rf"\b{jit}\((\w[\w.]*)(?:,[^()]*(?:\([^()]*\))?)?\)", r"\1")
    if not found:
        raise NotApplicable(f"{program.family} has no jit on a line of its own")


def _smaller_batches(program: Program) -> None:
    def smaller(found: re.Match[str]) -> str:
        return f"{found[1]}={max(1, int(found[2]) // _SMALLER)}"

    changed = 0
    for lines in program.files.values():
        for number, text in enumerate(lines):
            new = _SIZES.sub(smaller, text)
            if new != text:
                lines[number] = new + MARK
                changed += 1
    if not changed:
        raise NotApplicable(f"{program.family} says nowhere how large a batch is")


_DOES: Final[Mapping[str, Callable[[Program], None]]] = {
    "dropped_jit": _dropped_jit,
    "smaller_batches": _smaller_batches,
}


def _read() -> tuple[Mutation, ...]:
    text = Path(__file__).with_suffix(".toml").read_text()
    return tuple(
        msgspec.convert({"name": name, **one}, Mutation)
        for name, one in tomllib.loads(text).items()
    )


MUTATIONS: Final = _read()
