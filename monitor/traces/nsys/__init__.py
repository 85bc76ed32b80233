"""Read what ``nsys export --type sqlite`` writes, of Nsight Systems 2021 and later.

NVIDIA documents the tables ("SQLite Schema Reference" of its User Guide); tables come only where
something was recorded, and columns came and went with the versions. So nothing is required but a
start and an end: what else is missing is unknown, and what is new is left alone.
"""

from whyidle.monitor.traces.nsys.reading import read

__all__ = ["read"]
