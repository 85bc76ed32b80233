"""The part ``parallel``: whether the process is one of many, and what wraps a model for that.

``torch.distributed`` keeps in each process what it is part of; no message is sent to find out.
"""

from __future__ import annotations

from weakref import ref

from ..framework import Part
from ..modules import loaded, need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The ends of the files whose code runs around a model, and the functions that do so when it trains:
# such a file runs at its import too, and when a model is made.
WRAPPERS = {
    "torch/nn/parallel/data_parallel.py": ("DataParallel", "forward"),
    "torch/nn/parallel/distributed.py": ("DistributedDataParallel", "forward"),
    "torch/distributed/fsdp/fully_sharded_data_parallel.py": (
        "FullyShardedDataParallel",
        "forward",
    ),
    "torch/distributed/pipelining/schedules.py": ("pipelining", "step"),
    "deepspeed/runtime/engine.py": ("DeepSpeed", "forward"),
}
# The wrapper that needs no other processes.
ALONE = "DataParallel"
DISTRIBUTED = "torch.distributed.distributed_c10d"
NCCL = "nccl"
# What is called on a model, and makes it another one: by the class of what it keeps for it.
CALLED = "torch.distributed._composable_state"
MARKS = {"FSDPState": "fully_shard", "_ReplicateState": "replicate"}
# Modules that are checked for that: the outermost is among the first.
MOST_MODULES = 100


def wrapper(file: str, function: str) -> str | None:
    """Return what wraps a model in this function, if it does."""
    for end, (name, runs) in WRAPPERS.items():
        if function == runs and file.endswith(end):
            return name
    return None


def around(seen: set[str]) -> list[str]:
    """Return what wraps the model: what was seen and is possible, and what was applied to it."""
    if not is_one_of_many():
        return sorted(seen & {ALONE})
    called = (loaded(CALLED) or {}).get("_module_state_mapping")
    # The data of a weak-key dict, read as it is.
    states = getattr(called, "data", None)
    if not isinstance(states, dict):
        return sorted(seen)
    kinds = {_class(state) for state in list(states.values())[:MOST_MODULES]}
    return sorted(seen | {MARKS[kind] for kind in kinds if kind in MARKS})


def is_one_of_many() -> bool:
    """Tell whether this process has joined a group, even one of its own."""
    return _of_world("_default_pg") is not None


def uses_threads() -> bool:
    """Tell whether a group exchanges by threads of its own, as gloo does and NCCL does not."""
    groups = _of_world("pg_map")
    return isinstance(groups, dict) and any(str(each[0]) != NCCL for each in list(groups.values()))


def _of_world(name: str) -> Any:
    return getattr((loaded(DISTRIBUTED) or {}).get("_world"), name, None)


def _class(state: Any) -> str:
    # Newer versions keep a weak reference.
    return type(state() if isinstance(state, ref) else state).__name__


class Processes(Part):
    """Reads the group of all processes."""

    name = "torch.distributed"

    def begin(self) -> None:
        """Check that it is kept where we look, if torch was built with it."""
        self._last: dict[str, Any] = {"world_size": 1}
        self.facts()

    def facts(self) -> dict[str, Any]:
        """Return how many processes work together, and by which backend."""
        # A build without it has no such module.
        if loaded(DISTRIBUTED) is None:
            return {}
        group = need(DISTRIBUTED, "_world", "_default_pg")
        if group is not None:
            self._last = {
                "world_size": int(group.size()),
                "rank": int(group.rank()),
                "distributed_backend": str(need(DISTRIBUTED, "get_backend")()),
            }
        # A job that ends leaves its group first: it was one of many all the same.
        return dict(self._last)
