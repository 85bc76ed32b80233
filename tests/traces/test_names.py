"""What names mean, in the spelling of every profiler."""

from __future__ import annotations

import pytest

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.names import LONGEST_READ, Category, host_cause


@pytest.mark.parametrize(
    ("category", "name", "cause"),
    [
        ("driver", "cudaLaunchKernel", Cause.DRIVER_CALL),
        ("driver", "cudaStreamSynchronize", Cause.SYNC),
        ("driver", "hipMalloc", Cause.ALLOCATOR),
        ("driver", "cudaGraphInstantiate", Cause.CAPTURE),
        ("driver", "cuModuleLoadData", Cause.COMPILE),
        ("annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Cause.INPUT),
        ("annotation", "Optimizer.step#SGD.step", Cause.OPTIMIZER),
        ("annotation", "PythonRefManager::CollectGarbage", Cause.AROUND),
        ("annotation", "Lazy Function Loading", Cause.COMPILE),
        ("annotation", "Buffer Flush", Cause.PROFILER),
        ("annotation", "backend_compile_and_load", Cause.COMPILE),
        ("annotation", "PjRtCpuClient::Compile", Cause.COMPILE),
        ("annotation", "np.asarray(jax.Array)", Cause.SYNC),
        ("operator", "aten::add", Cause.OP),
        # Running what was compiled is no compilation.
        ("operator", "CompiledFunction", Cause.OP),
        ("operator", "Torch-Compiled Region: 0/0", Cause.OP),
        (
            "python",
            "torch/_functorch/_aot_autograd/subclass_codegen.py(3): _compiled_forward",
            Cause.PYTHON,
        ),
        ("python", "torch/_functorch/aot_autograd.py(900): aot_module_simplified", Cause.COMPILE),
        ("python", "torch/utils/data/dataloader.py(700): __next__", Cause.INPUT),
        ("python", "transformers/pipelines/pt_utils.py(120): __next__", Cause.PYTHON),
        ("python", "<built-in function sleep>", Cause.BLOCKED),
        ("python", "<built-in method acquire of _thread.lock object at 0x1>", Cause.BLOCKED),
        # JAX writes frames in its own way.
        ("python", "$time sleep", Cause.BLOCKED),
        ("python", "$gc collect", Cause.GC),
        ("python", "$queue.py:154 get", Cause.BLOCKED),
        ("python", "$dataloader.py:700 __next__", Cause.INPUT),
        ("python", "$_npyio_impl.py:510 save", Cause.CHECKPOINT),
        ("python", "$train.py:12 main", Cause.PYTHON),
        ("python", "$builtins isinstance", Cause.PYTHON),
    ],
)
def test_a_name_means(category: Category, name: str, cause: Cause) -> None:
    assert host_cause(category, name) is cause


def test_only_the_beginning_of_a_name_is_read() -> None:
    """Patterns with a gap would take the square of a hostile name's length."""
    assert host_cause("annotation", "PjRt" + "x" * 100 + "::Await") is Cause.SYNC
    assert host_cause("annotation", "PjRt" + "x" * LONGEST_READ + "::Await") is Cause.AROUND
