"""Faults of the catalogue that no rule detects yet: listed with their fix, and never found.

A fault leaves this table when its file comes. The code for TensorFlow and Flux.jl was not run.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import Fix
from whyidle.monitor.rules._rule import Kind, Rule

PLANNED: Final[dict[str, Rule]] = {
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
}
