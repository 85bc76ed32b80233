"""The job computes in float64.

## What it sees
Most parameters (PyTorch), or most of what JAX multiplies, are float64 or complex128.

## Why it costs
A CPU takes up to twice as long. Data-center GPUs have half as many float64 units, smaller cards a
32nd or 64th.

## How to fix
NumPy makes float64, `torch.from_numpy` keeps it, and one such array converts all that is added to
it. Use `jax_enable_x64` only for values that need it.

## When it is wrong
Long differential equations, very long sums and nearly singular matrices need the digits. JAX
programs without products may be missed.

## Documents
Beyond the five documents: D4 and D5 advise less than float32.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.source import callee, imports, nodes_of
from whyidle.monitor.core.amounts import MOSTLY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.core.host_class import LAUNCHES, HostClass
from whyidle.monitor.libraries.frames import is_call, is_module
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.products import double_share, doubles
from whyidle.monitor.signals.user_lines import asking, files

DOUBLE: Final = ("float64", "complex128")
_FLOATING: Final = re.compile(r"b?float\d+.*|complex\d+")
# Of the work on a CPU: half the bytes, twice the numbers in a vector; small operators gain little.
BACK_ON_CPU: Final = (0.1, 0.57)
# A convolution of PyTorch has fast code there for float32 alone (measured: 4.4 times as fast).
BACK_OF_CONVOLUTIONS: Final = (0.1, 0.8)
# Of the work on a GPU: from nothing, where it waits for launches, to one unit for each 64.
BACK_ON_GPU: Final = (0.0, 0.98)
_ASKS: Final = re.compile(
    r"\.double\(|float64|complex128|jax_enable_x64|\bFloat64\b|DoubleTensor|dtype=(float|complex)\b"
)
_EXACT: Final = (
    "Keep float64 for the matrices that are factored. Their results need the digits: try the rest"
    " in float32, and compare the results."
)


def detect(window: Window) -> Verdict:
    """Judge the data types of parameters, products and arrays."""
    # What a program computes in; else what the floating numbers are, with all work of one kind.
    found, kinds = None if window.computes("pytorch") else doubles(window), window.fact("dtypes")
    if found is not None:
        share, of = found.share, "products in compiled programs"
        # Where programs differ, all the time may be in the one that has most of it.
        double_least, double_most = found.least, share if found.programs == 1 else 1.0
    elif isinstance(kinds, Mapping):
        share, double_least, double_most = double_share(kinds, _FLOATING, DOUBLE) or 0.0, 1.0, 1.0
        of = "parameters" if window.computes("pytorch") else "bytes of arrays"
    else:
        return window.lacks(Need.INSIDE)
    if share < MOSTLY:
        return None
    trace, host = window.trace, window.host
    # What part of the work comes back, and how much of the time is the framework's work.
    least, most = BACK_ON_GPU
    if window.device == "cpu":
        convolves = trace is None or bool(trace.calls(r".*conv.*"))
        of_pytorch = window.computes("pytorch") and convolves
        least, most = BACK_OF_CONVOLUTIONS if of_pytorch else BACK_ON_CPU
    low, high, evidence = 0.0, 1.0, {}
    if (traced := None if trace is None else trace.share(Slice.COMPUTE)) is not None:
        low = high = traced.value
        evidence = {"the device computes": traced}
    elif host is not None and window.device == "cpu":
        # Beside the calls there is their preparation.
        surely = host.share(*LAUNCHES, HostClass.FRAMEWORK_WAIT)
        low = max(0.0, surely - host.error(surely))
        high = min(1.0, surely + host.share(HostClass.UNCLEAR) + host.error(surely))
        evidence = {"main thread in the framework": window.job.sampled(surely)}
    exact = any(map(_is_exact, files(window.job)))
    return Found(
        gain=Gain.between(double_least * least * low, double_most * most * high),
        evidence=Evidence.known(
            {f"{of} in float64": window.job.measure(share, "ratio"), **evidence}
        ),
        confidence=Confidence.INFERRED if evidence else Confidence.HINTED,
        where=asking(window.job, _ASKS),
        slice=Slice.COMPUTE,
        severity=Severity.LOW if exact else None,
        fixes=both(_EXACT) if exact else None,
    )


@lru_cache(maxsize=64)
def _is_exact(file: str) -> bool:
    """Tell whether a file factors matrices, or works with a library that does."""
    modules = imports(file).values()
    names = (callee(node) for node in nodes_of(file) if isinstance(node, ast.Call))
    return is_call(Role.EXACT, names) or any(is_module(Role.EXACT, each) for each in modules)


rule = Rule(
    title="The job computes in float64",
    fixes={
        "pytorch": Fix(
            "Make the model and the batches float32 where they are created.",
            """\
model = model.float()
data = torch.from_numpy(array).float()  # NumPy makes float64""",
        ),
        "jax": Fix(
            "Leave jax_enable_x64 off, and load the data as float32.",
            """\
jax.config.update("jax_enable_x64", False)
data = jax.device_put(array.astype("float32"))  # NumPy makes float64""",
        ),
    },
)
