from __future__ import annotations

from tests.link.conftest import puppet

__all__ = ["puppet"]
