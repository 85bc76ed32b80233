"""Arguments of loaders: workers, persistent workers, pinned memory."""

from __future__ import annotations

import pytest

from tests.fixes.programs import change, refused, tried
from whyidle.monitor.fixes import Refusal

DATA = """
import torch
import torch.utils.data as D
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

class Files(Dataset):
    def __init__(self, names):
        self.names = names
    def __len__(self):
        return len(self.names)
    def __getitem__(self, i):
        return torch.load(self.names[i])
"""
WORKERS = "num_workers=4, persistent_workers=True"


def test_arguments_over_several_lines_keep_their_layout() -> None:
    old, new = change(
        "loader_arguments",
        DATA
        + """
def main():
    loader = D.DataLoader(
        Files(["a", "b"]),
        batch_size=8,  # small
        shuffle=True,
    )
    for x in loader:
        print(x)
""",
    )
    assert old == []
    assert new == ["num_workers=4,", "persistent_workers=True,"]


def test_a_method_and_a_number_that_is_set_beside_another() -> None:
    _, new = change(
        "loader_arguments",
        DATA
        + """
BATCH, WORKERS = 8, 0
class Trainer:
    def __init__(self, names):
        self.loader = D.DataLoader(Files(names=["a"]), BATCH, num_workers=WORKERS)
    def fit(self):
        for x in self.loader:
            x.sum().backward()
""",
    )
    set_to, made = new
    assert set_to == "BATCH, WORKERS = 8, 4"
    assert "BATCH, num_workers=WORKERS, persistent_workers=True)" in made


def test_a_part_of_tensors_and_a_place_instead_of_a_name() -> None:
    _, new = change(
        "loader_arguments",
        DATA
        + """
def main():
    whole = TensorDataset(torch.randn(10, 2), torch.zeros(10))
    part, rest = random_split(whole, [5, 5])
    loader = DataLoader(D.Subset(whole, range(5)), 4, True, None, None, 0)
    for x, y in loader:
        print(x, y)
""",
    )
    assert new == [
        "loader = DataLoader(D.Subset(whole, range(5)), 4, True, None, None, 4, persistent_workers=True)"
    ]


SLEEPS = {"loading spends on waits that use no CPU": 0.9}


@pytest.mark.parametrize(
    ("made", "measured", "new"),
    [
        ("", {"waiting for input": 0.8}, "4"),
        ("", {"waiting for input": 0.6, **SLEEPS}, "4"),
        ("", {"waiting for input": 0.85, **SLEEPS}, "6"),
        ("", {"waiting for input": 0.99, **SLEEPS}, "8"),
        ("num_workers=0", {"waiting for input": 0.85, **SLEEPS}, "6"),
        (
            "num_workers=2, persistent_workers=True",
            {"waiting for input": 0.7, "loader workers": 2, **SLEEPS},
            "7",
        ),
    ],
)
def test_who_only_waits_gets_as_many_workers_as_its_wait_asks(
    made: str, measured: dict[str, float], new: str
) -> None:
    program = f"""{DATA}
def main():
    loader = DataLoader(Files(["a", "b"]), {made})
    for x in loader:
        print(x)
"""
    _, (line,) = change("loader_arguments", program, **measured)
    assert f"num_workers={new}, persistent_workers=True" in line


@pytest.mark.parametrize(
    ("waits", "spends", "new"), [(1.0, 0.95, "8"), (0.99, 0.95, "8"), (0.95, 0.51, "4")]
)
def test_what_they_do_besides_waiting_finds_its_cores(
    waits: float, spends: float, new: str
) -> None:
    program = f"""{DATA}
def main():
    for x in DataLoader(Files(["a", "b"])):
        print(x)
"""
    measured = {"waiting for input": waits, **dict.fromkeys(SLEEPS, spends)}
    _, (line,) = change("loader_arguments", program, cores=2, **measured)
    assert f"num_workers={new}, persistent_workers=True" in line


@pytest.mark.parametrize("number", ["8", "args.workers"])
def test_enough_workers_that_stay_are_enough(number: str) -> None:
    program = f"""{DATA}
import argparse
args = argparse.ArgumentParser().parse_args()
def main():
    for x in DataLoader(Files(["a", "b"]), num_workers={number}, persistent_workers=True):
        print(x)
"""
    measured = {"waiting for input": 0.7, "loader workers": 8.0, **SLEEPS}
    found = tried("loader_arguments", program, **measured)
    assert isinstance(found, Refusal)
    assert found.why.endswith("stay alive already")


def test_workers_that_end_with_each_epoch_stay() -> None:
    _, new = change(
        "loader_arguments",
        DATA
        + """
def main():
    loader = DataLoader(Files(["a"]), 4, num_workers=2)
    for epoch in range(3):
        for x in loader:
            print(x)
""",
    )
    assert new == ['loader = DataLoader(Files(["a"]), 4, num_workers=2, persistent_workers=True)']


USED = "\nloader = DataLoader({})\nfor x in loader:\n    print(x)\n"


@pytest.mark.parametrize(("program", "why"), [
    (DATA + USED.format("Files(['a']), **options"), "come from elsewhere"),
    (DATA + USED.format("make_data(), 4"), "made elsewhere"),
    (DATA + USED.format("TensorDataset(torch.randn(9, 2).cuda()), 4"), "on the device"),
    (DATA + USED.format("TensorDataset(torch.randn(9, 2, device='cuda')), 4"), "on the device"),
    (DATA + USED.format("Files(['a']), 4, collate_fn=lambda rows: rows"), "collate_fn"),
    (DATA + USED.format("Files(['a']), num_workers=args.workers"), "other code"),
    (DATA.replace("(Dataset)", "(D.IterableDataset)") + USED.format("Files(['a'])"), "plain Dataset"),
    (DATA.replace("torch.load(", "torch.mul(torch.randn(2), ") + USED.format("Files(['a'])"), "random"),
    (DATA.replace("return torch.load", "self.last = i; return torch.load") + USED.format("Files(['a'])"),
     "keeps something"),
    (DATA.replace("= names", "= open(names)") + USED.format("Files('a')"), "open"),
    (DATA + "\ndata = Files(['a'])\nloader = DataLoader(data)\nfor x in loader:\n    data.reset()\n",
     "changes or asks"),
    (DATA + "\nloader = DataLoader(Files(['a']))\nwhile True:\n    x = next(iter(loader))\n", "starts again"),
    (DATA + "\ndef main(x):\n    for b in DataLoader(TensorDataset(x)):\n        print(b)\n", "elsewhere"),
    (DATA.replace("torch.load(", "self.transform(") + USED.format("Files(['a'])"), "self.transform"),
    (DATA.replace("torch.load(", "augment(") + "\ndef augment(x):\n    return x + random.random()\n"
     + USED.format("Files(['a'])"), "random"),
    ("import torch\nTABLE = torch.zeros(9, device='cuda')\n" + DATA.replace("torch.load(", "TABLE.sum(")
     + USED.format("Files(['a'])"), "device"),
    (DATA + "\na = DataLoader(Files(['a']))\nb = DataLoader(Files(['b']))\n", "several"),
])  # fmt: skip
def test_refused(program: str, why: str) -> None:
    assert why in refused("loader_arguments", program)


def test_another_loader_of_that_name_is_none() -> None:
    program = "from mine import DataLoader\nfor x in DataLoader([1]):\n    print(x)\n"
    assert tried("loader_arguments", program) is None


PINNED = """
import torch
from torch.utils.data import DataLoader
{}
for {} in {}:
    loss = model(x)
    loss.backward()
"""


@pytest.mark.parametrize("copies", ["x = x.to(device)", "x, y = x.to(device), y.to(device)",
                                    "x = x.cuda()"])  # fmt: skip
def test_batches_are_pinned(copies: str) -> None:
    _, new = change(
        "pinned_copies",
        f"""
import torch
from torch.utils.data import DataLoader
loader = DataLoader(data, 4)
for x, y in loader:
    {copies}
    model(x).backward()
""",
    )
    assert new[0] == "loader = DataLoader(data, 4, pin_memory=torch.cuda.is_available())"
    assert new[1].count("non_blocking=True") == copies.count("(")


def test_a_copy_back_is_waited_for() -> None:
    _, new = change(
        "pinned_copies",
        """
import torch
from torch.utils.data import DataLoader
for x in DataLoader(data):
    x = x.to("cpu")
    model(x).backward()
""",
    )
    assert len(new) == 1


@pytest.mark.parametrize(
    "loader", ["DataLoader(data, **options)", "DataLoader(data, pin_memory=pin)"]
)
def test_pinning_is_refused(loader: str) -> None:
    assert refused(
        "pinned_copies",
        f"""
import torch
from torch.utils.data import DataLoader
for x in {loader}:
    model(x.to(device)).backward()
""",
    )
