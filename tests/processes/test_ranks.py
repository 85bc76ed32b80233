from __future__ import annotations

import os

import pytest

from tests.conftest import start_job
from whyidle.monitor.processes.process import describe
from whyidle.monitor.processes.ranks import Rank, rank_of

TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "4",
}
SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        (TORCHRUN, Rank(3, 1, 8, "torchrun")),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Rank(0, None, 1, "torchrun")),
        (OPENMPI, Rank(2, 0, 4, "openmpi")),
        (SLURM, Rank(5, 1, 16, "slurm")),
        # What the step has counts, not what was asked for the whole job.
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "8"}, Rank(5, 1, 8, "slurm")),
        ({"SLURM_PROCID": "0"}, Rank(0, None, None, "slurm")),
        ({"PMIX_RANK": "7"}, Rank(7, None, None, "pmix")),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"},
            Rank(1, 1, 2, "pmi"),
        ),
        (
            {
                "MV2_COMM_WORLD_RANK": "1",
                "MV2_COMM_WORLD_LOCAL_RANK": "1",
                "MV2_COMM_WORLD_SIZE": "2",
            },
            Rank(1, 1, 2, "mvapich"),
        ),
    ],
)
def test_each_launcher_numbers_its_workers(environment: dict[str, str], rank: Rank) -> None:
    assert rank_of(environment) == rank


def test_what_stands_closest_to_the_worker_counts() -> None:
    assert rank_of({**SLURM, **OPENMPI, **TORCHRUN}) == rank_of(TORCHRUN)
    # A job script of SLURM is its process 0, and mpirun's workers inherit that.
    assert rank_of({**SLURM, "SLURM_PROCID": "0", **OPENMPI}) == rank_of(OPENMPI)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        # Somebody's rank of a matrix.
        {"RANK": "16"},
        {"WORLD_SIZE": "4", "LOCAL_RANK": "0"},
        {"RANK": "", "WORLD_SIZE": "4"},
        {"RANK": "-1", "WORLD_SIZE": "4"},
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"RANK": "0", "WORLD_SIZE": "0"},
        {"RANK": "one", "WORLD_SIZE": "4"},
        {"RANK": "1.0", "WORLD_SIZE": "4"},
        {"RANK": "\u0661", "WORLD_SIZE": "4"},
        {"RANK": "9" * 5000, "WORLD_SIZE": "4"},
        {**TORCHRUN, "LOCAL_RANK": "9"},
        {"PMIX_RANK": "4294967294"},
    ],
)
def test_what_is_no_rank_is_unknown(environment: dict[str, str]) -> None:
    assert rank_of(environment) is None


def test_nonsense_of_one_launcher_does_not_hide_another() -> None:
    assert rank_of({"RANK": "x", "WORLD_SIZE": "?", **SLURM}) == rank_of(SLURM)
    assert rank_of({**TORCHRUN, "LOCAL_RANK": "x"}) == Rank(3, None, 8, "torchrun")


def test_a_running_worker_is_numbered() -> None:
    with start_job(env={**os.environ, **TORCHRUN}) as job:
        who = describe(job.pid)
        job.kill()
    assert who is not None
    assert who.rank == Rank(3, 1, 8, "torchrun")
