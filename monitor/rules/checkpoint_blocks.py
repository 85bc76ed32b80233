"""Saving checkpoints blocks the training.

## What it sees
Stack samples of the main thread in code that saves: `torch.save`, safetensors, orbax, Flax, Keras,
`np.savez`, `pickle.dump`, the checkpoints of Lightning, transformers, DeepSpeed and
torch.distributed, and the rest of a block of yours that calls one of them. What the job's own code
marks comes first (one of our callbacks, `whyidle.monitor.phase`). It counts how often this happened
while it watched. A job that saves every hour and did not save in that time is not judged.

## Why it costs
Copying to the host, packing and writing run one after the other in the thread that launches the
steps, and the device has nothing to do until the file is written. With several ranks, all wait for
the slowest disk.

## How to fix
Save a tenth as often: a crash costs half of the time between two saves, and crashes are rare. Copy
the state to the host and go on, while a thread writes it: `torch.distributed.checkpoint.async_save`
and orbax (`ocp.CheckpointManager`, `AsyncCheckpointer`) do that. If writing is quick, the copy is
most of a save, and only saving less often helps.

## When it is wrong
What is seen once in a window may be due once a day: then the range begins at zero, and the severity
is low. If saves already run in the background, what is left is the copy, or the wait for the
previous save: then only saving less often helps.

## Documents
Beyond the documents: they save nothing.
"""

from __future__ import annotations

from whyidle.monitor.rules import Fix, Rule
from whyidle.monitor.rules._kinds import phase
from whyidle.monitor.signals.phases import Phase

# A tenth as often. In a thread, a copy to memory that is new takes three quarters as long as
# torch.save to a page cache (64 MB, PyTorch 2.13), and next to nothing beside a network drive.
detect = phase(Phase.CHECKPOINT, left=0.1)

rule = Rule(
    title="Saving checkpoints blocks the training",
    fixes={
        "pytorch": Fix(
            "Save a tenth as often. A save can also be written in the background:"
            " torch.distributed.checkpoint.async_save copies the state and writes it in a thread.",
            """\
# once: saver, saved = concurrent.futures.ThreadPoolExecutor(1), None
if step % 1000 == 0:  # was: step % 100
    state = model.state_dict()
    state = {k: x.to("cpu", copy=True) for k, x in state.items()}
    if saved is not None:
        saved.result()  # raises if that save failed
    saved = saver.submit(torch.save, state, "latest.pt")""",
        ),
        "jax": Fix(
            "Save a tenth as often. A save can also be written in the background: Orbax's"
            " CheckpointManager copies the state and writes it in a thread, unless"
            " enable_async_checkpointing is off.",
            """\
# once: saver, saved = concurrent.futures.ThreadPoolExecutor(1), None
if step % 1000 == 0:  # was: step % 100
    leaves = [np.array(x) for x in jax.tree.leaves(params)]  # copies
    if saved is not None:
        saved.result()  # raises if that save failed
    saved = saver.submit(np.savez, "latest.npz", *leaves)""",
        ),
    },
)
