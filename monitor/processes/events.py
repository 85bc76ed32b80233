"""Something that happened in a process of the job, or that we did to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whyidle.monitor.processes.process import ProcessKey


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One entry of a recording's journal."""

    kind: str
    key: ProcessKey
    text: str
    severity: str = "info"
    # On our monotonic clock, in seconds; ``None``: now.
    at: float | None = None
    data: Mapping[str, Any] | None = None
    # What comes all the time is stored, and no news.
    is_news: bool = True
