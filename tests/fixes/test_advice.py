"""A finding shows the user's own code with the change in it, or says in words what to set."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from whyidle.monitor import fixes
from whyidle.monitor.core.contracts.diagnosis import (
    CalledPlaceJson,
    EnergyJson,
    EvidenceJson,
    FindingJson,
    FixJson,
)
from whyidle.monitor.fixes import _snippet
from whyidle.monitor.fixes._layout import fitted

ADVICE = {"pytorch": FixJson(text="Do it.", code="# An example, not your code:\nworkers = 1")}
DATA = """
import argparse
import torch
from torch.utils.data import DataLoader, Dataset
class Photos(Dataset):
    def __len__(self):
        return 9
    def __getitem__(self, i):
        return torch.load(str(i))
"""


def advised(
    folder: Path, rule: str, program: str, advice: dict[str, FixJson] = ADVICE, **measured: float
) -> FixJson:
    """Return what a finding says that is at the line with a mark."""
    file = folder / "train.py"
    file.write_text(dedent(program))
    rows = file.read_text().splitlines()
    line = next(n for n, row in enumerate(rows, 1) if "# here" in row)
    place = CalledPlaceJson(file=str(file), line=line, function="main", chain=[])
    finding = FindingJson(
        rule=rule, severity="high", title="x", confidence="measured", slice=None, lost_share=None,
        paced_by="steps", speedup=None, expected=None,
        evidence=[
            EvidenceJson(name=name.replace("_", " "), value=n, unit="count", source="agent")
            for name, n in measured.items()
        ],
        where=[place], fixes=advice, documents=[], also_seen=[], behind=None,
        energy=EnergyJson(watts_lost=None, joules_per_step=None, money_per_step=None,
                          money_per_hour=None, currency="USD", unknown={}),
    )  # fmt: skip
    (found,) = fixes.advised([finding], [], fixes.by_rule(), 8)
    return found.fixes["pytorch"]


def test_the_loader_keeps_its_arguments(tmp_path: Path) -> None:
    program = (
        DATA
        + "loader = DataLoader(Photos(), 32, shuffle=True)\nfor x in loader:  # here\n    print(x)\n"
    )
    said = advised(tmp_path, "input_starved", program)
    assert "# train.py:10: Worker processes" in said.code
    # Where it is edited, which is not where it waits.
    assert said.where
    assert (Path(said.where.file).name, said.where.line) == ("train.py", 10)
    made = ast.parse(said.code).body[0]
    assert ast.unparse(made) == (
        "loader = DataLoader(Photos(), 32, shuffle=True, num_workers=8, persistent_workers=True)"
    )
    assert max(map(len, said.code.splitlines())) <= _snippet.WIDTH
    assert "example" not in said.code


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        ("Load in num_workers=N processes.", "Load in num_workers=8 processes."),
        ("Load with batch_size=N.", "Load with batch_size=N."),
    ],
)
def test_the_sentence_has_the_number_of_the_code(tmp_path: Path, advice: str, said: str) -> None:
    program = DATA + "loader = DataLoader(Photos(), 32)\nfor x in loader:  # here\n    print(x)\n"
    advices = {"pytorch": FixJson(text=advice, code="")}
    assert advised(tmp_path, "input_starved", program, advices).text == said


def test_a_patch_of_no_statement_has_no_line_to_edit() -> None:
    patch = fixes.Patch("a.py", "# old\nx = 1\n", "# new\nx = 1\n", "any", "Any", ())
    assert _snippet.edited(patch) is None


def test_the_optimizer_is_theirs(tmp_path: Path) -> None:
    program = """
    import torch
    def main(args, model):
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=args.lr,  # warms up
            momentum=0.9,
        )
        for x in range(9):
            optimizer.step()  # here
    """
    said = advised(tmp_path, "unfused_optimizer", program)
    assert said.code.splitlines()[1:-1] == [
        "optimizer = torch.optim.SGD(",
        "    model.parameters(),",
        "    lr=args.lr,  # warms up",
        "    momentum=0.9,",
        "    fused=True,",
        ")",
    ]


OPTION = """
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
a = parser.parse_args()
loader = DataLoader(Photos(), 32, shuffle=True, num_workers=a.workers)
for x in loader:  # here
    print(x)
"""


def test_an_option_is_the_advice(tmp_path: Path) -> None:
    said = advised(tmp_path, "input_starved", DATA + OPTION)
    assert said.text.startswith(
        "Start with --workers 8. At train.py:14 num_workers comes from --workers."
    )
    assert said.text.endswith("Do it.")
    assert not said.code
    two = OPTION.replace("for x", "held_out = DataLoader(Photos(), num_workers=a.workers)\nfor x")
    assert "--workers 8" in advised(tmp_path, "input_starved", DATA + two).text


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (
            "fit(model, batches, every=5)",
            "Set every=50 at train.py:9. At train.py:5 its period comes from every. Do it.",
        ),
        (
            "EVERY = 25\nfit(model, batches, EVERY)",
            "Set EVERY = 250 at train.py:9. At train.py:5 its period comes from EVERY. Do it.",
        ),
        ("fit(model, batches, len(batches))", "Do it."),
    ],
)
def test_a_period_that_a_caller_sets_is_said_where_it_stands(
    tmp_path: Path, call: str, advice: str
) -> None:
    program = """\
import torch
def fit(model, batches, every):
    for step, batch in enumerate(batches):
        train(model, batch)
        if step % every == 0:
            torch.save(model.state_dict(), "last.pt")  # here


"""
    said = advised(tmp_path, "checkpoint_blocks", program + call + "\n")
    assert said.text.startswith(advice)


def test_what_is_set_already_is_not_advised(tmp_path: Path) -> None:
    said = advised(tmp_path, "input_starved", DATA + OPTION, loader_workers=8)
    assert "--workers 8" not in said.text
    assert "persistent_workers=a.workers > 0" in said.code


def test_a_refusal_has_its_place_and_an_example_its_name(tmp_path: Path) -> None:
    program = DATA.replace("torch.load(str(i))", "torch.rand(3)") + OPTION.replace("a.workers", "0")
    said = advised(tmp_path, "input_starved", program)
    assert "Do it. No automatic patch: at train.py:" in said.text
    assert said.code == ADVICE["pytorch"].code


@pytest.mark.parametrize("line", ['TOKEN = login(token="hf_0123456789abcdefghij")', "x = '\u202e'"])
def test_secrets_and_hidden_text_are_not_shown(line: str) -> None:
    patch = fixes.Patch("/job/a.py", "x = 1\n", f"{line}\n", "some", "It is so", ())
    assert _snippet.of(patch) is None
    assert _snippet.of(fixes.Patch("/job/a.py", "x = 1\n", "x = 2\n", "some", "So", ())) is not None


def test_of_a_long_block_the_rest_is_left_out() -> None:
    before = "def f(x):\n    if x:\n" + "        print(x)\n" * 9 + "    return x\n"
    after = before.replace("def f", "@jit\ndef f")
    patch = fixes.Patch("/job/a.py", before, after, "some", "So", ())
    assert (_snippet.of(patch) or "").splitlines()[1:] == ["@jit", "def f(x):", "    ..."]
    gone = fixes.Patch("/job/a.py", "for x in y:\n    a(x)\n    b(x)\n", "for x in y:\n    b(x)\n",
                       "some", "So", ())  # fmt: skip
    assert _snippet.of(gone) == "# a.py:2: So\n# without: a(x)"


@pytest.mark.parametrize("code", [
    "loader = DataLoader(Photos('/data/photos'), 32, shuffle=True, num_workers=8, drop_last=True)",
    "for x, y in tqdm(DataLoader(Photos('/data/photos'), 32, shuffle=True, num_workers=8)):\n    a(x)",
    "total = sum(loss_of(model, x.to(device), y.to(device)) for x, y in zip(inputs, all_the_labels))",
    "found = first(lambda row, column: row + column, *some_rows_of_it, **{'rows': 3, 'columns': 4})",
    "if a and (the_first_of_all_conditions or the_second_of_all_conditions or the_third_of_it): pass",
])  # fmt: skip
def test_a_wide_statement_is_broken_within_its_brackets(code: str) -> None:
    found = fitted(code, _snippet.WIDTH)
    assert found is not None
    assert max(map(len, found.splitlines())) <= _snippet.WIDTH
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(code))


def test_what_cannot_be_broken_is_not_shown() -> None:
    assert fitted(f"x = '{'a' * 80}'", _snippet.WIDTH) is None


@pytest.mark.parametrize(("advice", "is_its"), [("Use workers.", True), ("Do less.", False)])
def test_a_change_that_the_advice_does_not_name_is_not_written(
    advice: str, tmp_path: Path, *, is_its: bool
) -> None:
    program = DATA + "loader = DataLoader(Photos(), 32)\nfor x in loader:  # here\n    print(x)\n"
    advices = {"pytorch": FixJson(text=advice, code="")}
    said = advised(tmp_path, "input_starved", program, advices)
    assert ("num_workers" in said.code) is is_its
    assert is_its or said == advices["pytorch"]
