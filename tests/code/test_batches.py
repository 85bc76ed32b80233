"""Batches as the source makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.code.batches import begins_for_one

BEGINS = {
    "in one call": "for step in range(9):\n    x, y = next(iter(loader))\n    train(x, y)\n",
    "by a function": "def batch(loader):\n    return [x.cuda() for x in next(iter(loader))]\n",
    "by its method": "while True:\n    x = loader.__iter__().__next__()\n    train(x)\n",
    "in two statements": "while True:\n    it = iter(loader)\n    x = next(it)\n    train(x)\n",
    "a loop that ends": "def batch():\n    for x in loader:\n        break\n    return x\n",
}
GOES_ON = {
    "a loop": "for x, y in loader:\n    train(x, y)\n",
    "begun once": "it = iter(loader)\nwhile True:\n    x = next(it)\n    train(x)\n",
    "begun at its end": """
while True:
    try:
        x = next(it)
    except StopIteration:
        it = iter(loader)
        x = next(it)
    train(x)
""",
    "begun at each epoch": """
for epoch in range(9):
    it = iter(loader)
    first = next(it)
    for step in range(8):
        train(next(it))
""",
    "a loop that may end": "for x in loader:\n    if train(x) < 0.1:\n        break\n",
}


def lines_that_begin(folder: Path, text: str) -> list[int]:
    file = folder / "train.py"
    file.write_text(text)
    return [n + 1 for n, _ in enumerate(text.splitlines()) if begins_for_one(str(file), n + 1)]


@pytest.mark.parametrize("style", BEGINS)
def test_a_loader_that_begins_for_each_batch(style: str, tmp_path: Path) -> None:
    assert 2 in lines_that_begin(tmp_path, BEGINS[style])


@pytest.mark.parametrize("style", GOES_ON)
def test_a_loader_that_goes_on(style: str, tmp_path: Path) -> None:
    assert lines_that_begin(tmp_path, GOES_ON[style]) == []
