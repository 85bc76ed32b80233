"""What a line is given in each pass of a loop: the same, or made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.code.renewed import made_anew, stays
from whyidle.monitor.runs.stacks import CodeLine


@pytest.mark.parametrize(
    ("source", "line", "is_new"),
    [
        ("table = read()\nfor i in rows:\n    x = put(table)\n", 3, False),
        ("for i in rows:\n    part = table[i]\n    x = put(part)\n", 3, True),
        ("for part in rows:\n    x = put(part)\n", 2, True),
        # Each epoch has one, and each step of it copies the same.
        ("for e in range(9):\n    t = read(e)\n    for i in rows:\n        x = put(t)\n", 4, False),
        ("while True:\n    x = put(part)\n    part = more()\n", 2, True),
        ("x = put(table)\n", 1, False),
        ("for part in rows: x = put(part)\n", 1, True),
        ("for part in rows:\n    x = 3\nelse:\n    x = put(part)\n", 4, False),
        # A library that calls it may give it anything.
        ("def f(part):\n    return put(part)\n", 2, True),
        ("def f(self):\n    return put(self.part)\n", 2, False),
        # Something may fill it in place, or set it elsewhere.
        ("while True:\n    fill(table)\n    x = put(table)\n", 3, True),
        ("while True:\n    env.step(move)\n    x = put(env.seen)\n", 3, True),
        ("def f(self):\n    x = put(self.t)\ndef g(self):\n    self.t = more()\n", 2, True),
        ("def f(self):\n    x = put(self.t)\ndef __init__(self):\n    self.t = more()\n", 2, False),
        ("def f(self, key):\n    chosen = draw()\n    return put(self.t[chosen])\n", 3, True),
        ("for i in rows:\n    if new:\n        t = read()\n    x = put(t)\n", 4, True),
        # What it asks for itself may be new each time.
        ("while True:\n    x = put(next(rows))\n", 2, True),
        ("async def f():\n    while True:\n        x = put(await rows.get())\n", 3, True),
        ("import numpy as np\nwhile True:\n    x = put(np.random.rand(9))\n", 3, True),
        ("import numpy as np\nwhile True:\n    x = put(np.stack(t).astype(k))\n", 3, False),
        (
            "while True:\n    match rows:\n        case [part, *_]:\n            x = put(part)\n",
            4,
            True,
        ),
        ("for part in rows:\n    x = map_all(lambda leaf: put(leaf), part)\n", 2, True),
        ("for part in rows:\n    x = [put(part) for part in table]\n", 2, False),
        ("while True:\n    x = put(x)\n", 2, False),
    ],
)
def test_what_is_new_in_each_pass_is_told_from_what_stays(
    source: str, line: int, *, is_new: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    assert made_anew([CodeLine(str(file), line, "f")]) == is_new


@pytest.mark.parametrize(
    ("given", "call", "is_new"),
    [
        ("batch", "step(model, batch)", True),
        ("batch", "step(model, batch=next(rows))", True),
        ("prepared", "step(model, batch)", True),
        ("model.table", "step(other, batch)", False),
        ("table", "step(model, batch, everything)", False),
        ("table", "step(*some, batch)", True),
        # By another name: what it is given there is not told apart.
        ("table", "compiled(model, batch)", True),
    ],
)
def test_what_a_function_was_given_is_told_by_who_called_it(
    given: str, call: str, *, is_new: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"""\
def step(model, batch, table):
    prepared = shaped(batch)
    return put({given})
for batch in rows:
    loss = {call}
""")
    frames = [CodeLine(str(file), 3, "step"), CodeLine(str(file), 5, "<module>")]
    assert made_anew(frames) == is_new


def test_a_library_that_calls_a_function_gives_it_what_it_likes(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def step(batch):\n    return put(batch)\ntrainer.fit(step)\n")
    assert made_anew([CodeLine(str(file), 2, "step"), CodeLine(str(file), 3, "<module>")])


@pytest.mark.parametrize("frame", ["<lambda>", "<dictcomp>", "<genexpr>"])
def test_a_part_of_a_statement_with_a_frame_of_its_own(frame: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("for batch in rows:\n    x = mapped(lambda leaf: put(leaf), batch)\n")
    frames = [CodeLine(str(file), 2, frame), CodeLine(str(file), 2, "<module>")]
    assert made_anew(frames)


@pytest.mark.parametrize(
    ("source", "line", "same"),
    [
        ("import jax\nfor i in rows:\n    x = jax.put(table)\n    jax.log(i)\n", 3, True),
        ("def f(table):\n    while True:\n        x = put(table)\n        step(x)\n", 3, True),
        # Something may fill it in place.
        ("for i in rows:\n    fill(table)\n    x = put(table)\n", 3, False),
        ("for i in rows:\n    table[i] = 0\n    x = put(table)\n", 3, False),
        ("for i in rows:\n    x = put(table[i])\n", 2, False),
        ("for table in rows:\n    x = put(table)\n", 2, False),
        ("x = put(table)\n", 1, False),
        ("while True:\n    x = put(next(rows))\n", 2, False),
        ("import jax\nfor i in rows:\n    x = jax.put(3)\n", 3, False),
    ],
)
def test_what_surely_is_the_same_in_each_pass(
    source: str, line: int, *, same: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    assert stays(str(file), line) == same
