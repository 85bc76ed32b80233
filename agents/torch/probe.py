"""The probe ``torch``: its parts.

The facts of its state, each as far as it is known:

    version, cuda_version        of torch, and of the CUDA that it was built for (null: none)
    backend                      where most of the parameters are: "cpu", "cuda", ..
    devices, devices_used        GPUs that the process can use, and those where it has memory
    gpus_present                 GPUs of the driver, null where there is none
    cuda_initialized             whether the process has used CUDA
    model                        the class of the outermost ``forward`` seen; file:line before
                                 Python 3.11
    parameters, parameter_bytes  what the optimizers move, in this process
    dtypes, parameter_devices    {name: parameters}
    sharded                      how sharded parameters are kept: "FullyShardedDataParallel"
                                 (flat ones), "DTensor"
    batch_size                   of the loader that was seen first
    loaders                      [{workers, pin_memory, persistent_workers, prefetch_factor,
                                 batch_size, kind: "map" or "iterable", dataset}], the latest first
    padding                      {length, longest, mean, part, batches}: how long the rows of the
                                 batches are that were looked at; the longest of each, and all of
                                 them, without the filling at their end; how much of all numbers
                                 is in such rows; means of so many batches
    parallel                     what is around the model: "DistributedDataParallel",
                                 "FullyShardedDataParallel", "fully_shard", ..
    world_size, rank, distributed_backend
    collective                   {number, name, sizes, types, group, state}: the last it began,
                                 where it has begun none for 30 s; null while they go on
    autocast                     names of the types of the regions entered
    matmul_precision, convolution_precision
                                 of float32 on GPUs: "tf32", "ieee", "none" (as the framework likes)
    float32_matmul_precision     before torch had those
    cudnn_benchmark, cudnn_deterministic, deterministic_algorithms, default_dtype
    timed_batches, timed_reads, timed_optimizer_steps
                                 the share that is timed, once these came too fast for all
    num_threads                  that one operation on the CPU takes, as it was at the first look
    anomaly_detection            whether it was on at any look since the last state
    own_profiler                 the same of a profiler that the job began itself
    optimizers                   [{kind: its class, of_torch, tensors, device, state_device,
                                 foreach, fused: as its largest group says, null where torch
                                 chooses, "absent" where it has no such flag}], the largest first
"""

from __future__ import annotations

from ..framework import FrameworkProbe, Part
from ..keras_batches import OnTorch
from ..modules import loaded
from .collectives import Collectives
from .compilations import Compilations
from .debugging import DebuggingModes
from .loaders import LoaderWaits
from .memory import CudaMemory
from .model import Model
from .optimizers import Optimizers
from .padding import Padding
from .parallel import Processes
from .parameters import Parameters
from .precision import Autocasts, Switches
from .profiler_steps import ProfilerSteps
from .reads import Reads
from .steps import OptimizerSteps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Version(Part):
    """The version of torch."""

    name = "version"

    def facts(self) -> dict[str, Any]:
        """Return the version."""
        return {"version": str((loaded("torch.version") or {}).get("__version__"))}


class TorchProbe(FrameworkProbe):
    """The probe, from on to off."""

    name = "torch"
    module = "torch"
    parts = (
        Version,
        OptimizerSteps,
        ProfilerSteps,
        OnTorch,
        LoaderWaits,
        Padding,
        Reads,
        Compilations,
        Autocasts,
        Switches,
        DebuggingModes,
        CudaMemory,
        Processes,
        Collectives,
        Parameters,
        Optimizers,
        Model,
    )
