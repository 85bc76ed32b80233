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
    "data_parallel_one_process": Rule(
        "nn.DataParallel drives several GPUs from one process and copies the model at each step",
        ("D3 §1", "D5"),
        {
            "pytorch": Fix(
                "One process for each GPU: start with torchrun, and wrap the model once.",
                """\
torch.distributed.init_process_group()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(model.to(device), device_ids=[device])""",
            ),
        },
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
    "many_small_copies": Rule(
        "Many small copies go to the device in each step",
        ("D2 §3",),
        {
            "jax": Fix(
                "Copy the whole batch in one call.",
                "batch = jax.device_put(batch)",
            ),
            "pytorch": Fix(
                "Put the pieces together on the host and copy them once.",
                "batch = torch.stack(samples).to(device, non_blocking=True)",
            ),
            "flux": Fix("Copy whole batches: iterate over CuIterator(loader)."),
        },
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
    "shared_gpu_contention": Rule(
        "Other processes compute on the same GPU",
        ("D5",),
        {
            "pytorch": Fix(
                "Move one of the jobs. torch.cuda.set_per_process_memory_fraction only caps the "
                "memory (more than that fails), it makes nothing faster.",
            ),
            "jax": Fix(
                "Move one of the jobs. XLA_CLIENT_MEM_FRACTION only caps the memory; it replaces "
                "XLA_PYTHON_CLIENT_MEM_FRACTION, and JAX refuses both together.",
            ),
        },
    ),
    "slow_pcie_link": Rule(
        "The PCIe link of a GPU is slower or narrower than the GPU and its slot allow",
        ("beyond the documents",),
        {
            "pytorch": Fix("Reseat the card, and check the slot, riser and firmware settings."),
            "jax": Fix("Reseat the card, and check the slot, riser and firmware settings."),
        },
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
    "wasted_energy": Rule(
        "Energy goes into time in which the GPU does nothing",
        ("D3 trend 3",),
        {
            "pytorch": Fix("Remove what makes the GPU wait: each finding says what it costs."),
            "jax": Fix("Remove what makes the GPU wait: each finding says what it costs."),
        },
        kind=Kind.INFORMATION,
    ),
}
