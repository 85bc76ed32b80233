"""Prometheus' text format: families of series, one sample a line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Longer values of labels tell a person no more, and each is kept in every index.
LONGEST_LABEL: Final = 128

Kind = Literal["gauge", "counter", "histogram"]
Labels = Mapping[str, str]
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(slots=True)
class Family:
    """All series of one name."""

    name: str
    kind: Kind
    help: str
    # What stands behind the name (of a histogram), the labels, the value.
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float | None, labels: Labels, suffix: str = "") -> None:
        """Add a series; what is not known is left out, and never written as zero."""
        if value is not None and math.isfinite(value):
            self.samples.append((suffix, labels, value))


def page(families: Iterable[Family]) -> bytes:
    """Return the families that have a series as one text."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_help(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [
            f"{family.name}{suffix}{_written(labels)} {_number(value)}"
            for suffix, labels, value in family.samples
        ]
    return ("\n".join(lines) + "\n").encode()


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{valid(value).translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def valid(text: str) -> str:
    """Return a label's value without what a server would refuse."""
    # Bytes that are no UTF-8, before backslashes are escaped: a parser refuses "\\udcff".
    return text.encode("utf-8", "replace").decode()[:LONGEST_LABEL]


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    # Whole numbers as such: a driver's counters are longer than what %g keeps.
    return str(int(value)) if value == int(value) else repr(float(value))
