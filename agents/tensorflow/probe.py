"""The probe ``tensorflow``: its parts.

Its state has these facts, as far as its parts know them:

    version, keras          of TensorFlow, and of Keras where it is imported
    keras_backend           what Keras computes with: "tensorflow", "jax", "torch"
    floatx                  the type that Keras gives what has none
    backend                 where it computes: "tpu", "gpu", "cpu"; nothing before the first use,
                            nor where it only reads data for JAX or PyTorch
    devices                 logical devices of the backend
    gpus_present, gpus_visible, platforms_asked
                            as of JAX: GPUs in /dev, CUDA_VISIBLE_DEVICES, "cpu" where the job has
                            hidden the GPUs that TensorFlow found
    memory_growth           whether the memory of the GPUs grows as needed
    memory_limited          whether a limit is set for it
    run_functions_eagerly, data_debug_mode
                            switches for finding errors: nothing of the step, or of the input, is a
                            graph
    functions               functions that were called and are alive
    jit_compile             whether XLA compiles one of them
    products                {DTYPE: NUMBER} of matrix products and convolutions in graphs that train
    dtype_policy            Keras' policy for layers that are made from then on
    devices_used            devices where they are put by name; the first, where none is named
    pipelines               [[STAGE, ..], ..] of ``tf.data``, the latest first, each from the data
                            to the batch
    batches_of_pass         of the data that is waited for most, about how many a pass over it has
    first_waits             which part of these waits is for the first batch of a pass

STAGE is ``{"stage": "Map"}``; of one that calls a function also ``"function"``, its frame, and
``"python"``: whether that calls Python for each element (``tf.py_function``).
"""

from __future__ import annotations

from ..framework import FrameworkProbe
from .calls import Calls
from .optimizers import OptimizerSteps
from .pipelines import Pipelines
from .reads import Reads
from .settings import Settings
from .tracings import Tracings


class TensorFlowProbe(FrameworkProbe):
    """The probe, from on to off."""

    name = "tensorflow"
    module = "tensorflow"
    parts = (Tracings, Settings, Pipelines, Reads, Calls, OptimizerSteps)
