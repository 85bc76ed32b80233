"""What this dashboard shows, and how: set once, before the first page is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from whyidle.monitor.core.paths import database

# A page that is looked at is read anew so often.
REFRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of who started it."""

    store: Path = field(default_factory=database)
    # The run that is shown where a link names none: a number, a label, or ``last``.
    run: str = "last"
    # Behind a reverse proxy: the part of the path that is ours, without slashes around it.
    base: str = ""
    # The sample that comes with the program: there is nothing to be changed in it.
    is_sample: bool = False
    refresh_seconds: float = REFRESH_SECONDS


class _Current:
    settings: Settings | None = None


def use(settings: Settings) -> None:
    """Let all pages of this process show that."""
    _Current.settings = settings


def current() -> Settings:
    """Return what is to be shown; where nobody said it, the store of this user."""
    if _Current.settings is None:
        _Current.settings = Settings()
    return _Current.settings
