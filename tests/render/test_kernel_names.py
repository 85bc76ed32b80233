"""Names of kernels from real traces, and what is left of them."""

from __future__ import annotations

import pytest

from whyidle.monitor.render.kernel_names import LONGEST, short_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("volta_sgemm_128x64_nt", "volta_sgemm_128x64_nt"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_0"),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            "ncclKernel_AllReduce_RING_LL_Sum_float",
        ),
        (
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, "
                "at::detail::Array<char*, 3> >(int, at::native::AddFunctor<float>)"
            ),
            "vectorized_elementwise_kernel<AddFunctor<float>>",
        ),
        (
            (
                "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
                "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::"
                "operator()() const::{lambda(double)#1}, std::array<char*, 2ul> >(int)"
            ),
            "unrolled_elementwise_kernel<direct_copy_kernel_cuda>",
        ),
        (
            "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
            "max_pool_forward_nchw<float, float>",
        ),
        ("_ZN2ck6device12_GLOBAL__N_111conv_kernelIfEEvPT_", "conv_kernel"),
        ("_Z3addPfS_", "add"),
        ("loop_add_fusion.3", "loop_add_fusion.3"),
        ("input_transpose_fusion_1.kd", "input_transpose_fusion_1"),
        ("(weird)", "(weird)"),
        ("", ""),
        ("[red]\x1b[31m", "[red]\\x1b[31m"),
    ],
)
def test_the_part_that_matters_is_left(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize("part", ["(", ")", "<", "a::", "{lambda", "_ZN9", "const ", "::", "4, "])
def test_no_name_takes_long(part: str) -> None:
    assert len(short_name(part * 100_000)) <= LONGEST
