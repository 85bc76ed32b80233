"""A job of two ranks, however it was started: attach to who started them, and hear who is late."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT, Monitor

pytest.importorskip("torch.distributed")

# Rank 1 reads for 30 ms in each step; all end together once a file is there.
JOB = """
import os, subprocess, sys, time
import torch
import torch.distributed as dist
from torch import multiprocessing

def read(rank):
    time.sleep(0.03 * (rank == 1))

def train(rank, meet, until):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meet}", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10**9):
        read(rank)
        optimizer.zero_grad()
        model(torch.randn(64, 256)).square().mean().backward()
        optimizer.step()
        if step % 10 == 9:
            ends = torch.tensor(float(os.path.exists(until)))
            dist.all_reduce(ends)
            if ends.item():
                break
        if step == 20 and rank == 0:
            print("ready", flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    how, *more = sys.argv[1:]
    if how == "spawn":
        multiprocessing.spawn(train, tuple(more), nprocs=2)
    elif how == "popen":
        some = [subprocess.Popen([sys.executable, __file__, str(n), *more]) for n in range(2)]
        sys.exit(sum(each.wait() for each in some))
    else:
        train(int(os.environ.get("RANK", how)), *more)
"""
# The same with two processes of JAX, which a parent starts.
OF_JAX = """
import os, subprocess, sys, time

def read(rank):
    if rank == 1:
        time.sleep(0.02)

def train(rank, port, until):
    import jax, jax.numpy as jnp, numpy as np
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    from jax.sharding import NamedSharding, PartitionSpec
    mesh = jax.make_mesh((2,), ("data",))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*each)) for each in (["data"], []))
    w = jax.device_put(np.zeros((64, 64), np.float32), whole)
    @jax.jit
    def update(w, x, ends):
        return w - jax.grad(lambda w: jnp.square(x @ w - 1).mean())(w), ends.max()
    for step in range(10**9):
        read(rank)
        ends = np.full((1, 1), float(os.path.exists(until)), np.float32)
        x, ends = (jax.make_array_from_process_local_data(rows, each)
                   for each in (np.ones((8, 64), np.float32), ends))
        w, ends = update(w, x, ends)
        if float(ends):
            break
        if step == 20 and rank == 0:
            print("ready", flush=True)

if __name__ == "__main__":
    if len(sys.argv) > 3:
        train(int(sys.argv[1]), *sys.argv[2:])
    else:
        some = [[sys.executable, __file__, str(n), *sys.argv[1:]] for n in range(2)]
        sys.exit(sum(each.wait() for each in [subprocess.Popen(one) for one in some]))
"""
# The same with Hugging Face's launcher, which has a framework loaded itself.
OF_ACCELERATE = """
import os, sys, time
import torch
from accelerate import Accelerator

def read(rank):
    time.sleep(0.03 * (rank == 1))

accelerator = Accelerator(cpu=True)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
data = torch.utils.data.DataLoader(torch.randn(4096, 256), 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
step, ends = 0, torch.tensor(0.0)
while not ends:
    for x in data:
        read(accelerator.process_index)
        optimizer.zero_grad()
        accelerator.backward(model(x).square().mean())
        optimizer.step()
        step += 1
        if step == 20:
            accelerator.print("ready", flush=True)
    ends = accelerator.reduce(torch.tensor(float(os.path.exists(sys.argv[-1]))))
accelerator.end_training()
"""
TRAINERS = ROOT / ".venv" / "trainers" / "bin" / "python"
ACCELERATE = (str(TRAINERS), "-m", "accelerate.commands.launch", "--multi_gpu",
              "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no",
              "--dynamo_backend", "no")  # fmt: skip
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")


@contextmanager
def job(folder: Path, how: str) -> Iterator[int]:
    """Start a job, and yield the pid of who started its ranks once they train."""
    script, until = folder / "train.py", folder / "until"
    script.write_text({"jax": OF_JAX, "accelerate": OF_ACCELERATE}.get(how, JOB))
    starts = {"torchrun": TORCHRUN, "accelerate": ACCELERATE}.get(how, (sys.executable,))
    more = (free_port(),) if how == "jax" else (how, folder / "meet")
    errors = folder / "errors"
    with errors.open("w") as said:
        process = subprocess.Popen(
            [*starts, str(script), *map(str, more), str(until)],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    try:
        assert process.stdout is not None
        # Gloo says something before, maybe on the same line.
        while not (line := process.stdout.readline()).endswith("ready\n"):
            assert line, "the job has ended"
        yield process.pid
    finally:
        until.touch()
        process.communicate(timeout=30)
    assert process.returncode == 0, errors.read_text()[-3000:]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize("how", ["spawn", "popen", "torchrun", "accelerate", "jax"])
def test_the_late_rank_is_named_whoever_started_it(
    how: str, monitor: Monitor, tmp_path: Path
) -> None:
    if how == "jax":
        pytest.importorskip("jax")
    if how == "accelerate" and not TRAINERS.exists():
        pytest.skip(".ci/trainers was not run")
    with job(tmp_path, how) as pid:
        watched = monitor("attach", pid, "--for", "16", "--no-trace", "--json", "-q")
        assert watched.returncode == 0, watched.stderr
    answer = json.loads(monitor("diagnose", "last", "--json").stdout)
    ranks = answer["ranks"]
    assert [each["rank"] for each in ranks["each"]] == [0, 1]
    # Of JAX nobody counts steps that are not marked.
    assert how == "jax" or all(each["steps"] > 100 for each in ranks["each"])
    assert ranks["straggler"]["rank"] == 1
    (finding,) = (each for each in answer["findings"] if each["rule"] == "straggler_rank")
    assert finding["where"][0]["function"] == "read"
    assert finding["title"].startswith("Rank 1 is late")
    # The first rank is shown: on a CPU its thread waits for the other one.
    slices = answer["budget"]["slices"]
    assert how == "jax" or slices["exposed_comm"] > 0.4 * sum(slices.values())


def test_a_trace_of_each_rank_at_the_same_time(monitor: Monitor, tmp_path: Path) -> None:
    with job(tmp_path, "spawn") as pid:
        done = monitor("trace", pid, "--all-ranks", "--seconds", "0.5", "--json")
        assert done.returncode == 0, done.stderr
        # No page shows anything before.
        assert f"once there is a recording: monitor attach {pid}" in done.stderr
    answer = json.loads(done.stdout)
    taken = answer["taken"]
    assert [each["rank"] for each in taken["ranks"]] == [0, 1]
    files = [Path(each["file"]) for each in taken["ranks"]]
    assert {file.parent for file in files} == {Path(taken["folder"])}
    assert len(list(Path(taken["folder"]).iterdir())) == 2
    # A machine that does much besides takes short ones.
    assert taken["overlap_s"] > 0
    # As of a folder of files.
    assert [each["rank"] for each in answer["ranks"]["each"]] == [0, 1]


def test_ranks_are_looked_for_below_who_started_them(monitor: Monitor) -> None:
    done = monitor("trace", "1", "--all-ranks")
    assert done.returncode == 2
    done = monitor("trace", __file__, "--all-ranks")
    assert "is for a running process" in done.stderr
