"""The inner loops in C, where they were built; else Python does the same, several times slower."""

from __future__ import annotations

from types import ModuleType

scan: ModuleType | None
try:
    from whyidle.monitor.traces.xplane import _scan as scan
except ImportError:  # built without a compiler
    scan = None
