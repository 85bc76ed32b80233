"""The bar and its legend: every width adds up, whatever the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.render.trace_answers import ACCOUNT, MS, budget
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.render.budget import bar, cells, clock, legend, place_words, share
from whyidle.monitor.render.numbers import DASH

SLICES = st.dictionaries(st.sampled_from(Slice), st.integers(1, 10**13), min_size=1)


@given(SLICES, st.integers(20, 300))
def test_the_cells_add_up_and_show_all_that_can_be_seen(
    slices: dict[Slice, int], width: int
) -> None:
    account = budget(**{s.value: ns for s, ns in slices.items()})
    found = cells(account, width)
    assert sum(found.values()) == width
    assert all(room > 0 for room in found.values())
    assert list(found) == [s for s in Slice if s in found]
    total = sum(slices.values())
    for part, ns in slices.items():
        if ns >= 0.005 * total:
            assert abs(found[part] - ns * width / total) <= 13
        else:
            assert part not in found


@pytest.mark.parametrize("width", [1, 20, 37, 80, 211])
def test_the_bar_is_as_wide_as_asked_and_never_too_narrow_to_read(width: int) -> None:
    line = bar(ACCOUNT, width)
    assert line.cell_len == max(width, 20)
    shown = bar(ACCOUNT, width, labels=False).plain
    wanted = [LOOKS[s].glyph for s in cells(ACCOUNT, max(width, 20))]
    assert [glyph for glyph in dict.fromkeys(shown) if glyph != "░"] == wanted


def test_an_idle_part_has_its_letter_once_and_then_a_shade() -> None:
    account = budget(idle_input=800, idle_unknown=100, compute=100)
    assert bar(account, 40, labels=False).plain == f"████i{'░' * 31}····"
    assert bar(account, 40).plain == f"████i{'░' * 9} input 80% {'░' * 11}····"


def test_a_label_stands_where_there_is_room() -> None:
    assert " compute 36% " in bar(ACCOUNT, 80).plain
    assert " host dispatch 34% " in bar(ACCOUNT, 80).plain
    assert " communication 21% " not in bar(ACCOUNT, 60).plain


def test_each_slice_has_its_colour_where_there_are_colours() -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=80)
    with console.capture() as captured:
        console.print(bar(ACCOUNT, 80))
    assert "38;2;8;94;191" in captured.get()  # compute, as letters
    assert "48;2;209;113;240" in captured.get()  # dispatch, behind letters


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1.00 µs"),
        (999_950, "1.00 ms"),
        (9_994, "9.99 µs"),
        (9_996, "10.0 µs"),
        (176_345_123, "176 ms"),
        (1_234_567_890, "1.23 s"),
        (5_000_000_000_000, "5,000 s"),
    ],
)
def test_a_time_has_three_figures(ns: int, said: str) -> None:
    assert clock(ns) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 5, "0%"),
        (5, 5, "100%"),
        (1, 10**6, "<0.1%"),
        (1, 30, "3.3%"),
        (1, 3, "33%"),
        (1, 0, DASH),
    ],
)
def test_a_share_that_is_there_is_never_nothing(part: int, whole: int, said: str) -> None:
    assert share(part, whole) == said


def text_of(width: int, **slices: int) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        for part in legend(budget(**slices), None, width):
            console.print(part)
    return captured.get()


def test_the_legend_is_in_order_of_time_and_sums_up_what_is_too_small() -> None:
    shown = text_of(80, compute=500 * MS, idle_sync=900 * MS, idle_gc=MS)
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[1].startswith("s idle: sync")
    assert lines[2].startswith("█ compute")
    assert lines[3] == "Below 0.5% each: gc 1.00 ms"
    assert "a step" not in lines[0]


def test_figures_are_whole_or_not_there() -> None:
    narrow = text_of(30, compute=500 * MS, idle_other_process=900 * MS)
    assert "64%" in narrow
    assert "…" not in narrow


def test_a_place_is_named_by_the_end_of_its_path_and_cannot_steer_the_terminal() -> None:
    place = {"file": "/a/b/c\x1b[31m.py", "line": 3, "function": "f", "share": None}
    assert place_words(place) == "b/c\\x1b[31m.py:3 f"


@pytest.mark.parametrize(
    "call",
    [
        "torch/_tensor.py(566): backward",
        "$tensor.py:566 backward",
        "<built-in method backward of Tensor object at 0x7f>",
    ],
)
def test_a_function_without_its_line_comes_first_and_says_what_it_calls(call: str) -> None:
    calls = [{"name": call, "ns": 5}]
    place = {"file": "a/b/c.py", "line": 3, "function": "f", "share": 0.5}
    place |= {"exact_line": False, "calls": calls, "ns": 9}
    assert place_words(place) == "f() of b/c.py:3, in backward"
