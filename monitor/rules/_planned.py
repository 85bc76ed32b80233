"""Faults of the catalogue that no rule detects yet: listed with their fix, and never found.

A fault leaves this table when its file comes. The code for TensorFlow and Flux.jl was not run.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import Fix
from whyidle.monitor.rules._rule import Kind, Rule

PLANNED: Final[dict[str, Rule]] = {
    "activations_fill_memory": Rule(
        "Activations kept for the backward pass fill the memory, so that the batch stays small",
        ("D4 §4",),
        {
            "jax": Fix(
                "Compute them again in the backward pass: wrap each layer in jax.checkpoint.",
                "layer = jax.checkpoint(layer)",
            ),
            "pytorch": Fix(
                "Compute them again in the backward pass.",
                "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
            ),
        },
        kind=Kind.MEMORY,
    ),
    "eager_tensorflow": Rule(
        "TensorFlow runs the step operation by operation, not as a graph",
        ("D5",),
        {
            "tensorflow": Fix(
                "Put the whole step into one tf.function, with the shapes that it takes.",
                """\
@tf.function(input_signature=[tf.TensorSpec([None, 224, 224, 3]), tf.TensorSpec([None], tf.int32)])
def step(x, y): ...""",
            ),
        },
    ),
    "fragmented_memory": Rule(
        "Device memory is free, but in pieces too small to be of use",
        ("D3 trap 2",),
        {
            "pytorch": Fix(
                "Let segments grow: set PYTORCH_ALLOC_CONF=expandable_segments:True (older name: "
                "PYTORCH_CUDA_ALLOC_CONF) before the job starts.",
            ),
            "jax": Fix(
                "Leave preallocation on and give it more with XLA_CLIENT_MEM_FRACTION=0.9; keep "
                "fewer temporaries, and shard what is large.",
            ),
        },
        kind=Kind.MEMORY,
    ),
    "memory_not_released": Rule(
        "A process that does no work holds device memory",
        ("D2 §2",),
        {
            "pytorch": Fix(
                "Delete the tensors and call torch.cuda.empty_cache() once after training, never "
                "inside the loop.",
            ),
            "jax": Fix("Delete the arrays, then call jax.clear_caches()."),
            "flux": Fix("Call GC.gc() first, then CUDA.reclaim()."),
        },
        kind=Kind.MEMORY,
    ),
    "replicated_parameters": Rule(
        "Every device holds all parameters, and the memory is nearly full",
        ("D4 §6",),
        {
            "jax": Fix(
                "Shard them over an axis of the mesh.",
                """\
mesh = jax.make_mesh((8,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
by_row = jax.NamedSharding(mesh, jax.P("model"))
params = jax.device_put(params, by_row)""",
            ),
            "pytorch": Fix(
                "Shard them with fully_shard (FSDP2), layer by layer, then the whole model.",
                """\
for layer in model.layers:
    torch.distributed.fsdp.fully_shard(layer)
torch.distributed.fsdp.fully_shard(model)""",
            ),
        },
        kind=Kind.MEMORY,
    ),
    "straggler_rank": Rule(
        "One rank comes last to every collective, and all others wait for it",
        ("beyond the documents",),
        {
            "pytorch": Fix("Look at that rank's host: its clocks, its loader, its neighbours."),
            "jax": Fix("Look at that process's host: its clocks, its input, its neighbours."),
        },
    ),
    "tensorflow_takes_all_memory": Rule(
        "TensorFlow holds nearly all memory of the GPU and uses little of it",
        ("D5",),
        {
            "tensorflow": Fix(
                "Before anything uses the GPU let the memory grow, or set a limit; never both.",
                """\
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)""",
            ),
        },
        kind=Kind.MEMORY,
    ),
    "transfer_stalled_by_full_memory": Rule(
        "Copies to the device take longer and longer, because its memory is nearly full",
        ("D2 causes",),
        {
            "pytorch": Fix("Drop what is no longer needed before the copy, and prefetch less."),
            "jax": Fix("Donate the arguments that are replaced, and prefetch fewer batches."),
            "flux": Fix("Call GC.gc(false) every few steps, and iterate over CuIterator(loader)."),
        },
    ),
}
