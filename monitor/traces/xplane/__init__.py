"""Read XPlane, the profiles of JAX and TensorFlow: without protobuf, jax or xprof.

Two walks: the first one finds planes, lines and names (``outline``), the second one decodes the
events, a few megabytes at a time (``chunks``, ``chain``, ``events``), with loops in C where they
were built (``compiled``). Time is counted in ps.
"""

from whyidle.monitor.traces.xplane.reading import read

__all__ = ["read"]
