"""What the name of a kernel says: what it computes, in which type, and whether on tensor cores.

Only names are at hand, so what a name does not say is unknown. The patterns follow the names
that cuBLAS, cuDNN, CUTLASS, PyTorch, FlashAttention, Triton, XLA, Tensile, MIOpen and CK give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from whyidle.monitor.traces.names import COPY_KERNEL

Family = Literal["matmul", "convolution", "attention", "copy", "other", "unknown"]
DType = Literal["fp8", "int8", "bf16", "f16", "tf32", "f32", "f64"]

# The families whose work tensor cores can do.
TENSOR_WORK: Final[tuple[Family, ...]] = ("matmul", "convolution", "attention")

# A name is read in lower case, and no further than this: what follows are arguments of arguments.
_READ: Final = 500

# PyTorch's own kernels are element by element, but for these few; cuDNN computes offsets apart.
_NATIVE: Final = re.compile(
    r"^void at::native::(?!.*(attention|attn|conv|gemm|gemv))|compute\w*offsets"
)
# In this order: an attention kernel multiplies matrices, and so does a convolution.
_FAMILIES: Final[tuple[tuple[Family, re.Pattern[str]], ...]] = (
    ("other", _NATIVE),
    ("copy", COPY_KERNEL),
    (
        "attention",
        re.compile(r"flash_?(fwd|bwd|attn|att|fprop|bprop)|fmha|sdpa|attn_(fwd|bwd)|attention"),
    ),
    (
        "convolution",
        re.compile(
            r"conv(?!er)|dgrad|wgrad|fprop|scudnn|\dcudnn_|winograd|igemm_(fwd|bwd|wrw)|^void fft2d"
        ),
    ),
    (
        "matmul",
        re.compile(
            r"(?<!fb)gemm|gemv|matmul|nvjet|^cijk_|splitkreduce|dot_general|\bdot(_kernel)?\b"
            r"|marlin|triton_tem_|(?<![a-z])b?mm(?![a-z])"
        ),
    ),
    (
        "other",
        re.compile(
            r"at::native|at_cuda_detail|at::cuda|elementwise|reduc|softmax|norm|\bbn_|batch|pool"
            r"|nchw|nhwc|triton_(poi|per|red|for)|fusion|^wrapped_|eigen|tensorflow::functor"
            r"|transpose|copy|fill|\bcub::|thrust|embedding|index|gather|scatter|sort|scan|dropout"
            r"|foreach|multi_tensor|adam|relu|gelu|silu|rope|rotary|offsets|tensorop|optensor"
            r"|permute|quantize|jagged|epilogue|im2d?2?col|im3d2col|random|philox|loss|cunn_"
            r"|unrolled|vectorized|scale|rowwise|qparam|indices|spin_kernel"
        ),
    ),
)

_TENSOR_CORES: Final = re.compile(
    r"_tensorop_|wgmma|gmma|hmma|imma|wmma|nvjet|_tensor\d+x\d+x\d+|warpgroupsize"
    r"|[shid](884|1688|8816|16816|16832|16864|161616)"
    r"|e[45]m[23]e[45]m[23]|opclasstensorop|mmatensorop|tfloat32"
    r"|flash_(fwd|bwd)|flashattn(fwd|bwd)|fmha_cutlass[fb]_(f16|bf16)|marlin"
    # AMD's matrix cores: MFMA tiles of Tensile, xdlops of MIOpen and CK.
    r"|_mi\d+x\d+|xdl|_gtcx"
)
_NO_TENSOR_CORES: Final = re.compile(
    r"(?<![a-z])[sdczh]gemm|gcgemm|simt|ffma|scudnn|convolve_[sdh]gemm|dgrad_engine|wgrad_alg\d_"
    r"|fft2d|winograd|gemv|\bdot_kernel|gemmk1|gemmsn|depthwise|grouped_direct|common_engine"
    r"|^cijk_(?!.*_mi\d)|sp3asmconv|naive_conv|splitkreduce"
)

# The narrowest type counts: what is added up in f32 is still multiplied in what comes in.
_DTYPES: Final[tuple[tuple[DType, re.Pattern[str]], ...]] = (
    ("fp8", re.compile(r"e4m3|e5m2|fp8|float8|nvjet_q|^cijk_[a-z]+_[a-z]+_[fb]8")),
    ("int8", re.compile(r"i8816|i16832|i16864|imma|i8i32|int8_gemm|tensorop_i\d|gemm_s8")),
    ("bf16", re.compile(r"bf16|bfloat16|nvjet_t|^cijk_[a-z]+_[a-z]+_b[bs]?[bhs]?_")),
    (
        "f16",
        re.compile(
            r"(?<!b)f16|fp16|(?<![a-z_])(__)?half2?(?![a-z])|hgemm|h884|h1688|nvjet_h"
            r"|^cijk_[a-z]+_[a-z]+_h[hs]?[bhs]?_"
        ),
    ),
    ("tf32", re.compile(r"tf32|tfloat32|s1688|^cijk_[a-z]+_[a-z]+_s_?mx")),
    ("f32", re.compile(r"\bfloat\d?\b|f32|fp32|sgemm|scudnn|^cijk_[a-z]+_[a-z]+_s_?b_")),
    ("f64", re.compile(r"\bdouble\b|f64|fp64|dgemm|d884|^cijk_[a-z]+_[a-z]+_d_?b_")),
)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What a name says; None is what it does not."""

    family: Family
    tensor_cores: bool | None
    dtype: DType | None


def facts(name: str) -> KernelFacts:
    """Read a kernel's name."""
    name = name[:_READ].lower()
    family = _first_family(name)
    dtype = next((dtype for dtype, pattern in _DTYPES if pattern.search(name)), None)
    if family in ("other", "copy"):
        return KernelFacts(family, None, None if dtype in ("int8", "tf32") else dtype)
    return KernelFacts(family, _tensor_cores(name), dtype)


def _first_family(name: str) -> Family:
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), "unknown")


def _tensor_cores(name: str) -> bool | None:
    if _TENSOR_CORES.search(name):
        return True
    return False if _NO_TENSOR_CORES.search(name) else None
