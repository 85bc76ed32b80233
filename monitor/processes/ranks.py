"""The number that a launcher gave to one of a job's equal workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# No job has more workers than this has digits.
_LONGEST = 9


class Rank(NamedTuple):
    """A worker's number; ``None`` for what its launcher does not set."""

    rank: int
    local_rank: int | None
    world_size: int | None
    source: str


class _Names(NamedTuple):
    source: str
    rank: str
    local_rank: tuple[str, ...]
    world_size: tuple[str, ...]
    # The first name alone may mean anything (a user's RANK of a matrix): another must confirm it.
    common: bool = False


# The launcher closest to the worker comes first: everything that a job script starts inherits
# SLURM's names, and a worker of torchrun under srun has both.
_LAUNCHERS = (
    _Names("torchrun", "RANK", ("LOCAL_RANK",), ("WORLD_SIZE",), common=True),
    _Names(
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
    ),
    _Names(
        "mvapich",
        "MV2_COMM_WORLD_RANK",
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_SIZE",),
    ),
    _Names("pmix", "PMIX_RANK", ("PMIX_LOCAL_RANK",), ("PMIX_SIZE",)),
    _Names("pmi", "PMI_RANK", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("PMI_SIZE",)),
    _Names("slurm", "SLURM_PROCID", ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)


def rank_of(environment: Mapping[str, str]) -> Rank | None:
    """Return the number from the environment that the process was started with."""
    return next((r for names in _LAUNCHERS if (r := _read(names, environment))), None)


def _read(names: _Names, environment: Mapping[str, str]) -> Rank | None:
    rank = _number(environment, (names.rank,))
    local_rank = _number(environment, names.local_rank)
    world_size = _number(environment, names.world_size)
    if rank is None or (names.common and local_rank is None and world_size is None):
        return None
    if world_size is not None and max(rank, local_rank or 0) >= world_size:
        return None
    return Rank(rank, local_rank, world_size, names.source)


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    texts = (environment.get(name, "") for name in names)
    return next((int(t) for t in texts if t.isascii() and t.isdigit() and len(t) <= _LONGEST), None)
