"""Read Kineto's JSON, which PyTorch's profiler writes: of any length and any age."""

from whyidle.monitor.traces.kineto.reading import read

__all__ = ["read"]
