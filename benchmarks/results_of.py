"""Run a program, and print what its training came to: a digest of each array that it ended with.

The locals of its function ``train`` are looked at when that returns: models, parameters, losses.
Run: .venv/bin/python benchmarks/results_of.py PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import runpy
import sys
from types import FrameType
from typing import Any

import numpy as np

LOOKED_AT = ("train", "main", "fit")
# What such a line begins with.
DIGEST = "digest "


def digests(name: str, value: Any, depth: int = 0) -> dict[str, tuple[float, float]]:
    """Return the sum and the size of every array of fractions in a value."""
    if hasattr(value, "state_dict") and hasattr(value, "parameters"):
        value = value.state_dict()
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict) and depth < 4:
        found: dict[str, tuple[float, float]] = {}
        for key, each in value.items():
            found |= digests(f"{name}.{key}", each, depth + 1)
        return found
    return _digest(name, value)


def _digest(name: str, value: Any) -> dict[str, tuple[float, float]]:
    # A file has a method of that name, too.
    if hasattr(value, "detach") and hasattr(value, "dtype"):
        value = value.detach().cpu().numpy()
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return {}
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return {}
    if array.dtype.kind != "f" or not array.size:
        return {}
    array = array.astype(np.float64)
    return {name: (float(array.sum()), float(np.sqrt((array**2).sum())))}


def main() -> None:
    """Run the program with its own arguments."""
    program, *arguments = sys.argv[1:]
    found: dict[str, tuple[float, float]] = {}

    def returned(frame: FrameType, event: str, _value: Any) -> None:
        if (
            event == "return"
            and frame.f_code.co_name in LOOKED_AT
            and frame.f_code.co_filename == program
        ):
            sys.setprofile(None)
            for name, value in sorted(frame.f_locals.items()):
                found.update(digests(name, value))

    sys.argv = [program, *arguments]
    sys.setprofile(returned)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        sys.setprofile(None)
    for name, (total, size) in found.items():
        # The sum as a share of the size: near zero it is rounding alone.
        print(f"{DIGEST}{name} {size:.9e} {1 + total / (size * 1000 + 1e-30):.9e}")


if __name__ == "__main__":
    main()
