"""The list of ``monitor demo --list``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console

from whyidle.monitor.demo.pairs import WORDS, Pair, how, installed
from whyidle.monitor.render.budget import NARROWEST

# A sentence is hard to read in a narrower column, and goes below instead.
READABLE: Final = 30
_INDENT: Final = "  "


def listing(pairs: Sequence[Pair], titles: Mapping[str, str]) -> str:
    """Return each fault, its frameworks, and its title."""
    rows: dict[str, list[Pair]] = {}
    for pair in pairs:
        rows.setdefault(pair.name, []).append(pair)
    entries = [
        (name, ", ".join(_framework(pair) for pair in found), _title(found[0], titles))
        for name, found in rows.items()
    ]
    width = Console().width
    lines = [*_rows(entries, width), "", "Run one: monitor demo FAULT"]
    lacking = sorted({p.framework for p in pairs if not installed(p.framework)})
    if lacking:
        names = " and ".join(WORDS[each] for each in lacking)
        lacking_here = f"{names}: not installed here. Type: {how(lacking)}"
        lines += textwrap.wrap(lacking_here, max(NARROWEST, width), break_on_hyphens=False)
    return "\n".join(lines)


def _title(pair: Pair, titles: Mapping[str, str]) -> str:
    return " + ".join(titles.get(each, each) for each in pair.faults)


def _rows(entries: Sequence[tuple[str, str, str]], width: int) -> Iterator[str]:
    """Return a table with whole sentences beside the names, or below them if space is short."""
    heads = ("fault", "frameworks", "what is wrong")
    first, second = (max(len(row[i]) for row in (heads, *entries)) + 2 for i in (0, 1))
    left = first + second
    for name, frameworks, title in (heads, *entries):
        line = f"{name:<{first}}{frameworks:<{second}}"
        if width - left >= READABLE:
            wrapped = textwrap.wrap(title, width - left) or [""]
            yield f"{line}{wrapped[0]}"
            yield from (f"{'':{left}}{rest}" for rest in wrapped[1:])
        else:
            yield from [line.rstrip()] if left <= width else [name, f"{_INDENT}{frameworks}"]
            yield from textwrap.wrap(
                title, max(NARROWEST, width), initial_indent=_INDENT, subsequent_indent=_INDENT
            )


def _framework(pair: Pair) -> str:
    name = WORDS[pair.framework]
    return name if installed(pair.framework) else f"({name})"
