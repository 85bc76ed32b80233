"""Saving checkpoints blocks the training.

## What it sees
Main-thread samples in code that saves (`torch.save`, orbax, Keras, `np.savez`, `pickle.dump`), or
marked with `whyidle.monitor.phase` or our callbacks. Only saves during the recording count.

## Why it costs
Steps wait, and all ranks wait for the slowest disk.

## How to fix
A crash costs half of the time between two saves. Orbax's `AsyncCheckpointer` writes in the
background.

## When it is wrong
A single save may be due once a day: the severity is low.

## Documents
Beyond the five documents.
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
