"""Products of float32 matrices are of TF32 precision: fewer digits, so only where allowed."""

from __future__ import annotations

from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._source import Source

_SETS: Final = {"set_float32_matmul_precision", "allow_tf32", "fp32_precision",
                "jax_default_matmul_precision", "default_matmul_precision", "autocast"}  # fmt: skip


def change(source: Source, _wanted: Wanted) -> Change:
    """Say it once, right after the imports."""
    torch = source.spelt("torch")
    jax = source.spelt("jax")
    if (torch is None) is (jax is None):
        raise NotHere
    texts = {
        x.raw_value for x in source.everything if isinstance(x, cst.SimpleString) and x.prefix == ""
    }
    if _SETS & (source.words | texts) or "precision" in source.words:
        raise Refused("the program says how precise products are itself")
    line = (
        f'{torch}.set_float32_matmul_precision("high")'
        if torch is not None
        else f'{jax}.config.update("jax_default_matmul_precision", "tensorfloat32")'
    )
    found = Change()
    found.after_imports(source, line)
    found.notes.append("Products have 10 bits of a fraction, not 23; sums stay in float32.")
    return found


codemod = Codemod(
    title="Products of matrices are of TF32",
    rules=("full_precision_matmul",),
    change=change,
    changes_numbers=True,
)
