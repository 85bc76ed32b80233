"""Products of float32 matrices are of TF32 precision: fewer digits, so only where allowed."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted

_SETS: Final = {"set_float32_matmul_precision", "allow_tf32", "fp32_precision",
                "jax_default_matmul_precision", "default_matmul_precision", "autocast"}  # fmt: skip


def change(source: Source, _wanted: Wanted) -> Change:
    """Say it once, right after the imports."""
    torch = source.spelt("torch")
    jax = source.spelt("jax")
    if (torch is None) is (jax is None):
        raise NotHere
    if _SETS & (source.words | source.texts) or "precision" in source.words:
        raise Refused("the program says how precise products are itself")
    found = Change(source)
    found.after_imports(
        f'{torch}.set_float32_matmul_precision("high")'
        if torch is not None
        else f'{jax}.config.update("jax_default_matmul_precision", "tensorfloat32")'
    )
    found.notes.append("Products have 10 bits of a fraction, not 23; sums stay in float32.")
    return found


codemod = Codemod(
    title="Products of matrices are of TF32", rules=("full_precision_matmul",), changes_numbers=True
)
