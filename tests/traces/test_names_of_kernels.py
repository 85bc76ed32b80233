"""What the names of kernels say, by names that libraries really give."""

from __future__ import annotations

import pytest

from whyidle.monitor.traces.kernels.collectives import collectives
from whyidle.monitor.traces.kernels.precision import KernelFacts, facts
from whyidle.monitor.traces.kernels.tallies import Named

KERNELS = {
    # cuBLAS, cuDNN and CUTLASS
    "volta_sgemm_128x32_nt": ("matmul", False, "f32"),
    "ampere_dgemm_64x64_nn": ("matmul", False, "f64"),
    "ampere_s1688gemm_128x128_ldg4_nn": ("matmul", True, "tf32"),
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn": ("matmul", True, "bf16"),
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn": ("matmul", True, "f16"),
    "turing_int8_i8816gemm_int8_128x128_ldg16_relu_tn": ("matmul", True, "int8"),
    "nvjet_hsh_64x8_64x16_4x1_v_bz_TNT": ("matmul", True, "f16"),
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN": ("matmul", True, "bf16"),
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_ffma_kernel_cublas": (
        "matmul",
        False,
        "f32",
    ),
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tensor16x8x8_kernel_cudnn": (
        "convolution",
        True,
        "tf32",
    ),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_cublas": (
        "matmul",
        True,
        "bf16",
    ),
    "sm89_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize128x64x64_stage4": ("matmul", True, "fp8"),
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)": (
        "matmul",
        True,
        "tf32",
    ),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(P)": (
        "matmul",
        False,
        "f32",
    ),
    "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(P)": (
        "matmul",
        True,
        "f64",
    ),
    "volta_scudnn_128x64_relu_interior_nn_v1": ("convolution", False, "f32"),
    "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_interior_nhwc_tn_v1": (
        "convolution",
        True,
        "f16",
    ),
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)": (
        "convolution",
        False,
        "f32",
    ),
    # attention
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t> >": (
        "attention",
        True,
        "bf16",
    ),
    "_attn_fwd": ("attention", None, None),
    # AMD: Tensile, MIOpen, CK
    "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_1LDSB0.kd": ("matmul", True, "bf16"),
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x64_MI32x32x8x1_SN": ("matmul", True, "f16"),
    "Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1_TT4_4": ("matmul", False, "f32"),
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8": ("convolution", True, "bf16"),
    "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1": ("convolution", False, "f32"),
    "__amd_rocclr_copyBuffer.kd": ("copy", None, None),
    # 16 bits wide, of whatever type
    "batched_transpose_32x32_half": ("other", None, None),
    # PyTorch, Triton, XLA
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)": (
        "other",
        None,
        "f32",
    ),
    "void at::native::reduce_kernel<512, 1, ReduceOp<c10::Half, func_wrapper_t<float> > >": (
        "other",
        None,
        "f16",
    ),
    "void split_embedding_backward_kernel<c10::Half>(fbgemm_gpu::Placement)": (
        "other",
        None,
        "f16",
    ),
    "triton_poi_fused_add_0": ("other", None, None),
    "triton_tem_fused_mm_3": ("matmul", None, None),
    "gemm_fusion_dot_general_1": ("matmul", None, None),
    "loop_convert_fusion": ("other", None, None),
    "convolution.12": ("convolution", None, None),
    "my_kernel": ("unknown", None, None),
    "": ("unknown", None, None),
}

COLLECTIVES = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "AllReduce f32 RING LL",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "AllReduce f32 RING LL"
    ),
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE(x)": "ReduceScatter bf16 RING SIMPLE",
    "ncclDevKernel_AllReduce_Sum_bf16_NVLS_SIMPLE": "AllReduce bf16 NVLS SIMPLE",
    "ncclAllReduceRingLL128Kernel_sum_f16(ncclColl)": "AllReduce f16 RING LL128",
    "ncclSymDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16": "AllReduce bf16",
    "ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)": "AllGather LL",
    # These move bytes: the type is a filler.
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)": "SendRecv RING SIMPLE",
    "ncclBroadcastRingLLKernel_copy_i8(ncclColl)": "Broadcast RING LL",
    "ncclDevKernel_SendRecv(x)": "SendRecv",
    "ncclDevKernel_Reduce_Sum_f64_TREE_LL": "Reduce f64 TREE LL",
    "ncclDevKernel_Generic_4(x)": "unknown",
    "all-reduce.12": "AllReduce",
    "all-gather-start.1": "AllGather",
    "all-to-all": "AllToAll",
    "collective-permute-done": "SendRecv",
    "collective-broadcast.1": "Broadcast",
    "recv-done": "SendRecv",
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_name_of_a_kernel(name: str) -> None:
    assert facts(name) == KernelFacts(*KERNELS[name])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_name_of_a_collective(name: str) -> None:
    (found,) = collectives([Named(name, 3, 30, 1.0)])
    assert (found.name, found.count, found.total) == (COLLECTIVES[name], 3, 30)


def test_collectives_of_one_kind_are_added_up() -> None:
    found = collectives(
        [
            Named("ncclDevKernel_AllGather_RING_LL(int)", 1, 10, 0.1),
            Named("ncclDevKernel_SendRecv(x)", 1, 30, 0.3),
            Named("ncclDevKernel_AllGather_RING_LL(long)", 2, 40, 0.4),
        ]
    )
    assert [(one.name, one.count, one.total) for one in found] == [
        ("AllGather RING LL", 3, 50),
        ("SendRecv", 1, 30),
    ]
