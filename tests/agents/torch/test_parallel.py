"""What wraps a model is reported where it trains, and nowhere else."""

from __future__ import annotations

from _thread import get_ident
from pathlib import Path

import pytest

from tests.agents.torch.inside import TRAINING, training
from whyidle.agents.context import ProbeContext
from whyidle.agents.timers import Timers
from whyidle.agents.torch import parallel
from whyidle.agents.torch.model import Model

pytest.importorskip("torch.distributed")

# All of them end when one is told to.
RANK = """
import torch.distributed as dist
start(); until(reachable); ready()
meet = "file://" + os.path.dirname(PARENT) + "/group"
dist.init_process_group("gloo", init_method=meet, rank=RANK, world_size=2)
WRAP
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = data[:16]
while True:
    train(x, y)
    ends = torch.tensor(len(stop)); dist.all_reduce(ends)
    if ends: break
dist.destroy_process_group()
"""
DDP = "model = torch.nn.parallel.DistributedDataParallel(model)"
FSDP2 = """
from torch.distributed.fsdp import fully_shard
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
for layer in (model.layers[0], model.layers[2], model): fully_shard(layer, mesh=mesh)
"""


def rank(number: int, wrap: str, folder: Path) -> tuple[str, Path]:
    place = folder / str(number)
    place.mkdir()
    return TRAINING + RANK.replace("=RANK", f"={number}").replace("WRAP", wrap), place


@pytest.mark.parametrize(
    ("name", "wrap", "sharded"),
    [("DistributedDataParallel", DDP, None), ("fully_shard", FSDP2, ["DTensor"])],
)
def test_a_rank_reports_what_wraps_its_model(
    name: str, wrap: str, sharded: list[str] | None, tmp_path: Path
) -> None:
    first, second = (rank(number, wrap, tmp_path) for number in range(2))
    with training(*first) as one, training(*second) as other:
        one.beside, other.beside = (other,), (one,)
        for number, job in enumerate((one, other)):
            job.says("parallel", name)
            job.says("model", "Net")
            job.says("sharded", sharded)
            state = job.of("state")[-1][3]
            assert (state["world_size"], state["rank"]) == (2, number)
            assert state["distributed_backend"] == "gloo"


@pytest.fixture
def part() -> Model:
    return Model(ProbeContext(Timers(), lambda _: None, lambda _: None, get_ident()))


def run_in(file: str, source: str, part: Model) -> None:
    exec(compile(source, f"/somewhere/{file}", "exec"), {"look": lambda: part._sample(0)})


@pytest.mark.parametrize("file", parallel.WRAPPERS)
def test_a_file_that_is_imported_or_makes_a_model_reports_nothing(
    file: str, part: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "is_one_of_many", lambda: True)
    # An import, a decorator at an import, and a model that is made.
    run_in(file, "look()", part)
    run_in(file, "def wraps(f): look()\n@wraps\ndef forward(): pass", part)
    run_in(file, "class Wrapper:\n def __init__(self): look()\nWrapper()", part)
    assert part.facts() == {}
    name, runs = parallel.WRAPPERS[file]
    run_in(file, f"def {runs}(): look()\n{runs}()", part)
    assert part.facts() == {"parallel": name}


MODEL = """
class {name}:
 def forward(self): look()
for _ in range({looks}): {name}().forward()
"""


def test_the_models_of_a_gan_are_both_named_and_what_hardly_runs_is_not(part: Model) -> None:
    run_in("gan.py", MODEL.format(name="Gen", looks=20), part)
    run_in("gan.py", MODEL.format(name="Disc", looks=40), part)
    run_in("gan.py", MODEL.format(name="Score", looks=3), part)
    run_in("torch/nn/modules/loss.py", MODEL.format(name="BCELoss", looks=40), part)
    assert part.facts()["model"] == "Gen and Disc"


def test_a_process_of_its_own_is_not_reported_as_one_of_many(part: Model) -> None:
    assert not parallel.is_one_of_many()
    for file, (_, runs) in parallel.WRAPPERS.items():
        run_in(file, f"def {runs}(): look()\n{runs}()", part)
    assert part.facts() == {"parallel": "DataParallel"}
