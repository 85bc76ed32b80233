"""What this dashboard shows, and how: set once, before the first request."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from whyidle.monitor.core.paths import database

# How often an open page refreshes.
REFRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the command line."""

    store: Path = field(default_factory=database)
    # The run to show if the link names none: a number, a label, or ``last``.
    run: str = "last"
    # Behind a reverse proxy: our base path, without slashes around it.
    base: str = ""
    # The bundled sample, in which nothing can be changed.
    is_sample: bool = False
    # Whether the page may change something in a running job: a knob that is tried.
    allow_actions: bool = False
    refresh_seconds: float = REFRESH_SECONDS


class _Current:
    settings: Settings | None = None


def use(settings: Settings) -> None:
    """Set what all pages of this process show."""
    _Current.settings = settings


def current() -> Settings:
    """Return the settings; by default, they show the user's own store."""
    if _Current.settings is None:
        _Current.settings = Settings()
    return _Current.settings
