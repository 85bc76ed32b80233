"""Constants that several pairs share, each time chosen without the pair that is then judged.

For each pair the value is taken under which most of the other pairs came back as predicted, of
equals the one nearest to what the rules use. Constants with one pair behind them have no others
to be chosen from: the documents name them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.record_pairs import ABOUT, kept  # noqa: E402  found by the line above
from whyidle.monitor import rules  # noqa: E402
from whyidle.monitor.core.finding import Found  # noqa: E402
from whyidle.monitor.demo.printed import faster, is_inside  # noqa: E402
from whyidle.monitor.signals import sampling  # noqa: E402
from whyidle.monitor.signals.portable import load  # noqa: E402

# What is used now, and what else might be.
SHARED: tuple[tuple[ModuleType, str, tuple[float, ...]], ...] = (
    (sampling, "SURE", (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)),
)


def timed(windows: Path) -> list[Callable[[], bool]]:
    """Return a question to each pair of which a time is predicted: was it, as things are set?"""
    found = []
    for before in sorted(windows.glob("*/before_*.json.gz")):
        after = before.with_name(before.name.replace("before", "after", 1))
        if after.exists():
            recorded = kept(before)
            measured = faster(recorded, kept(after))
            if measured is not None:
                found.append(_asked(ABOUT[before.parent.name], recorded["window"], measured))
    return [ask for ask in found if ask() is not None]  # type: ignore[misc]


def _asked(rule: str, dumped: dict[str, Any], measured: float) -> Callable[[], bool | None]:
    judge = rules.load()[rule].judge
    window = load(dumped)

    def ask() -> bool | None:
        verdict = judge(window)
        if not isinstance(verdict, Found) or verdict.gain is None:
            return None
        return is_inside(verdict.gain.speedup, measured)

    return ask


def left_out(windows: Path) -> Iterator[dict[str, Any]]:
    """Yield, for each shared constant, how many pairs were predicted without having a say in it."""
    asked = timed(windows)
    for module, name, values in SHARED:
        used = getattr(module, name)
        held = {}
        for value in values:
            with _set(module, name, value):
                held[value] = [bool(ask()) for ask in asked]
        chosen = [_best(held, used, without) for without in range(len(asked))]
        yield {
            "constant": name,
            "used": used,
            "chosen": sorted(set(chosen)),
            "inside": sum(held[value][i] for i, value in enumerate(chosen)),
            "pairs": len(asked),
        }


def _best(held: dict[float, list[bool]], used: float, without: int) -> float:
    def others(value: float) -> int:
        return sum(held[value]) - held[value][without]

    return max(held, key=lambda value: (others(value), -abs(value - used)))


@contextmanager
def _set(module: ModuleType, name: str, value: float) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
