"""Whose code a frame is."""

from __future__ import annotations

import pytest

from whyidle.monitor.traces.model import Site
from whyidle.monitor.traces.where.frame_names import is_frame, site_in, site_of

USERS = {
    "train.py(45): main": Site("train.py", 45, "main"),
    "./train.py(62): <module>": Site("./train.py", 62, "<module>"),
    "/home/me/project/train.py(62): <module>": Site("/home/me/project/train.py", 62, "<module>"),
    # A package of the user's looks like any other package, whether installed or not.
    "moca/library/profiling/profile.py(53): run": Site(
        "moca/library/profiling/profile.py", 53, "run"
    ),
    "datasets/cifar.py(9): __getitem__": Site("datasets/cifar.py", 9, "__getitem__"),
    "test.py(3): <lambda>": Site("test.py", 3, "<lambda>"),
    "../data.py(7): load": Site("../data.py", 7, "load"),
    "C:\\work\\train.py(8): main": Site("C:\\work\\train.py", 8, "main"),
    "<ipython-input-3-0f5c>(2): step": Site("<ipython-input-3-0f5c>", 2, "step"),
    "/tmp/ipykernel_71/33.py(4): <module>": Site("/tmp/ipykernel_71/33.py", 4, "<module>"),
    "$train.py:12 main": Site("train.py", 12, "main"),
    "$generate_gemm_trace.py:31 run_gemms": Site("generate_gemm_trace.py", 31, "run_gemms"),
}
OTHERS = [
    "torch/nn/modules/module.py(1501): _call_impl",
    "torchvision/models/resnet.py(284): forward",
    "datasets/arrow_dataset.py(2800): __getitem__",
    "/opt/venv/lib/python3.11/site-packages/mine/model.py(3): f",
    "/usr/lib/python3/dist-packages/apt/cache.py(3): f",
    "/usr/lib/python3.11/threading.py(1002): _bootstrap",
    "/src/pytorch/torch/optim/sgd.py(71): step",
    "/src/vllm/vllm/worker.py(71): run",
    "/tmp/torchinductor_me/ab/cabc.py(40): call",
    "/opt/conda/bin/torchrun(8): <module>",
    "threading.py(1032): _bootstrap",
    "multiprocessing/process.py(108): run",
    "typing_extensions.py(9): f",
    "<frozen runpy>(88): _run_code",
    "<string>(1): <module>",
    "<eval_with_key>.3(4): forward",
    "<built-in method item of Tensor object at 0x7f02>",
    "nn.Module: Linear_0",
    "$core.py:630 bind",
    "$pjit.py:200 cache_miss",
    "$threading.py:1032 _bootstrap",
    "$_private.py:4 f",
    "$<string>:1 <module>",
    "$builtins isinstance",
    "$<unknown> get",
]
NO_FRAMES = [
    "aten::mul",
    "Optimizer.step#SGD.step",
    "void at::native::elementwise_kernel<128, 2>(int, float)",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "PjitFunction(step)",
    # Frames, but of wrappers, which say nothing.
    "$traceback_util.py:191 reraise_with_filtered_traceback",
    "torch/utils/_contextlib.py(120): decorate_context",
    "torch/optim/optimizer.py(505): wrapper",
    "",
]


@pytest.mark.parametrize("name", USERS)
def test_a_frame_of_the_users_is_a_site(name: str) -> None:
    assert site_of(name) == USERS[name]
    assert is_frame(name)


@pytest.mark.parametrize("name", OTHERS)
def test_a_frame_of_a_framework_or_of_python_is_no_site(name: str) -> None:
    assert site_of(name) is None
    assert is_frame(name)


@pytest.mark.parametrize("name", NO_FRAMES)
def test_what_is_no_frame(name: str) -> None:
    assert site_of(name) is None
    assert not is_frame(name)


@pytest.mark.parametrize("name", ["a.py(" + "9" * 5000 + "): f", "$a.py:" + "9" * 5000 + " f"])
def test_a_line_number_out_of_all_bounds_is_no_site(name: str) -> None:
    assert site_of(name) is None


def test_a_call_stack_begins_with_the_innermost_frame() -> None:
    lib = "/opt/lib/python3.7/site-packages/torch/nn/functional.py(2263): batch_norm"
    assert site_in(f"{lib};model.py(7): forward;train.py(46): <module>") == Site(
        "model.py", 7, "forward"
    )
    assert site_in(lib) is None
    assert site_in("") is None
