"""The probe ``jax``: its parts.

Its state has these facts, as far as its parts know them:

    version                 of JAX
    debug_nans, debug_infs, disable_jit, enable_x64, log_compiles, check_tracer_leaks,
    enable_checks, disable_most_optimizations
                            options as set for the whole process; what a ``with`` of the job's
                            sets for one thread is not seen
    compilation_cache       whether compiled programs are kept on disk, for the next start
    own_profiler            whether the job traced itself at any look since the last state
    backend                 the platform that computes when nothing else is said: "cpu", "gpu", ..
    backends                all that are initialised; nothing of the following before the first is
    devices                 those of the backend that belong to this process
    devices_of_all          those of the backend in all processes
    processes               how many processes the job spans
    rank                    which of them this one is; null where it is alone
    devices_used            devices with an array of this process on them
    gpus_present            NVIDIA GPUs in /dev, as the job sees it; null where it cannot be seen
    gpus_visible            what CUDA_VISIBLE_DEVICES says; null where it is not set
    platforms_asked         what the user has chosen, with JAX_PLATFORMS; null for nothing
    dtypes                  {type: bytes} of the arrays alive, the largest; two digits are exact
    replicated_bytes, divided_bytes
                            of arrays on several devices: whole on each, or a part on each
    collectives             in the programs that were inspected
    executables             compiled programs alive; two digits are exact
    executables_known       of these, how many have a known name: the agent takes its time
    executables_by_name     {name: count}, the most frequent; many of one name were recompiled
                            ("jit_step" is the program of a function ``step``)
    largest_executables     [PROGRAM, ..], by flops, then by operations; then by bytes

PROGRAM is ``{"name", "operations", "whole", "loops", "collectives", "products", "argument_bytes",
"output_bytes", "aliased_bytes", "temporary_bytes", "flops"}``: ``operations`` counts instructions
(of a larger program, only its beginning: ``whole`` is false); ``products`` is {type: count} of the
products of matrices and convolutions, by the type of what is multiplied, of the first 200;
``aliased_bytes`` are arguments whose memory becomes a result, as by donation; ``flops`` counts the
body of a loop once, so that it says too little where ``loops`` is not 0. Sizes and flops are null
where the backend has none, or the program is too large to ask for them.
"""

from __future__ import annotations

from ..framework import FrameworkProbe
from ..keras_batches import OnJax
from .arrays import Arrays
from .callbacks import Callbacks
from .compiles import Compiles
from .debugging import DebuggingModes
from .device_puts import DevicePuts
from .devices import Devices
from .executables import Executables
from .reads import Reads
from .step_annotations import StepAnnotations


class JaxProbe(FrameworkProbe):
    """The probe, from on to off."""

    name = "jax"
    module = "jax"
    parts = (
        Compiles,
        Executables,
        Arrays,
        Devices,
        DebuggingModes,
        Reads,
        DevicePuts,
        Callbacks,
        StepAnnotations,
        OnJax,
    )
