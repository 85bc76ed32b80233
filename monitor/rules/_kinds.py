"""What rules of one kind have in common: what they look at, and what they say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from whyidle.monitor.core.finding import Confidence, Found, Verdict
from whyidle.monitor.rules._rule import Detect
from whyidle.monitor.signals.asides import found, of_phase, taken
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.window import Window

# Every second step: what is read less often is logging.
OFTEN: Final = 0.5
# Smaller values are over in a tenth of a millisecond, at 10 GB/s: a few numbers, a seed, a key.
LEAST_BYTES: Final = 1 << 20
Also = Callable[[Window, Found], Found]


def phase(of: Phase, *, left: float, by_name: bool = False, also: Also | None = None) -> Detect:
    """Judge the time in a phase beside the steps, of which a fix leaves a part.

    ``by_name``: what only the names of functions show counts, as a hint.
    """

    def detect(window: Window) -> Verdict:
        account = window.sampled
        some = of_phase(account, of)
        named = [row for row in account.rows if row.phase is of] if by_name and not some else []
        if some is None and not named:
            return None
        finding = found(window, some or taken(account, named), left)
        if finding is None:
            return None
        if named:
            finding = replace(finding, confidence=Confidence.HINTED)
        return finding if also is None else also(window, finding)

    return detect
