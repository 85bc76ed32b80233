"""The screen of ``monitor trace``, 80 columns wide."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tests.render.trace_answers import ACCOUNT, BUSY, MS, answer, budget, device
from tests.traces.real import TRUTHS, path_of
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.render.budget import share
from whyidle.monitor.render.devices import total_of
from whyidle.monitor.render.numbers import amount
from whyidle.monitor.render.trace import screen, verdict
from whyidle.monitor.signals.opening import of_answer
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

PAGE = """\
v100.json.gz: PyTorch (Kineto), GPU 0, rank 1, 216,092 events
5 steps of 176 ms (ProfilerStep); 1.00 s from first operation to last

████████ compute 36% ████████▓▓▓▓▓▓ 21% ▓▓▓▓▓▓i░░d░░░ host dispatch 34% ░░░░q░··

                       share     time   a step  mostly
█ compute                36%   358 ms  71.6 ms  all of it
d idle: host dispatch    34%   341 ms  68.2 ms  23% framework operators
▓ communication          21%   206 ms  41.2 ms  all of it
i idle: input           4.1%  41.0 ms  8.20 ms  all of it
· idle: unknown         2.5%  25.0 ms  5.00 ms  all of it
q idle: queue           2.2%  22.0 ms  4.40 ms  all of it
Below 0.5% each: copies 4.00 ms, gc 3.00 ms

The GPU computes 36% of the time. Most of the rest: host dispatch, 34% (Python
and the framework prepare the next launch), then communication, 21%.

                       share  your code
d idle: host dispatch    61%  project/train.py:42 forward

   time  calls     each  kernel
44.1 ms  5,005  8.82 µs  vectorized_elementwise_kernel<CUDAFunctor_add<float>>
9.00 ms     10   900 µs  volta_sgemm_128x64_nt

   time  calls    bytes     speed  copies
2.00 ms     20  8.0 MiB  4.2 GB/s  host to device, pageable

  time  calls    each  collective
206 ms  2,020  102 µs  AllReduce

! The file ends in the middle of an event: what came before it is analysed here."""


def show(trace: dict[str, Any], width: int = 80, encoding: str = "utf-8", **look: Any) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(file=out, width=width, highlight=False, **{"color_system": None, **look})
    return screen(trace, name="v100.json.gz", top=5, console=console)


def test_the_page() -> None:
    assert show(BUSY) == PAGE


def test_colour_changes_no_letter() -> None:
    console = Console(width=80, force_terminal=True, color_system="truecolor", highlight=False)
    coloured = screen(BUSY, name="v100.json.gz", top=5, console=console)
    from rich.text import Text  # noqa: PLC0415

    plain = Text.from_ansi(coloured).plain
    assert [line.rstrip() for line in plain.splitlines()] == PAGE.splitlines()


@pytest.mark.parametrize("width", [1, 20, 40, 60, 79, 100, 250])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    shown = show(BUSY, width)
    assert max(len(line) for line in shown.splitlines()) <= max(width, 20)


def test_a_terminal_with_few_letters_gets_other_glyphs() -> None:
    shown = show(BUSY, encoding="ascii")
    assert shown.isascii()
    assert "######## compute 36% ########====" in shown


def test_nothing_of_the_file_steers_the_terminal_or_the_markup() -> None:
    evil = "\x1b]0;x\x07[bold]"
    trace = {
        **BUSY,
        "warnings": [evil],
        "top_kernels": [{"name": evil, "count": 1, "total_ns": 1}],
        "devices": [{**BUSY["devices"][0], "index": evil}],
        "collectives": [{"name": evil, "count": 0, "total_ns": 1}],
        "steps": {**BUSY["steps"], "how": evil},
    }
    shown = show(trace, 200)
    assert "\x1b" not in shown
    assert shown.count("[bold]") == 5


def test_warnings_that_differ_by_numbers_only_are_one_line() -> None:
    trace = {**BUSY, "warnings": ["5% is lost.", "Other.", "7% is lost.", "9% is lost."]}
    assert show(trace).endswith("\n! 5% is lost. (2 more like this)\n! Other.")


def test_steps_that_are_not_known_are_said_so() -> None:
    assert "no steps found (nothing repeats)" in show(answer(device(ACCOUNT)))


def test_no_device_is_a_sentence() -> None:
    shown = show({**answer(device(budget())), "devices": []})
    assert "no device" in shown
    assert "there is no time to account" in shown


@pytest.mark.parametrize(
    ("slices", "said"),
    [
        ({"compute": 92, "idle_dispatch": 8}, "nothing worth fixing"),
        ({"compute": 87, "idle_dispatch": 4, "idle_sync": 4, "idle_gc": 5}, "The largest part"),
        ({"compute": 87, "idle_dispatch": 4, "idle_sync": 4, "idle_gc": 4}, "nothing worth fixing"),
        ({"compute": 1, "idle_unknown": 99}, "unknown, 99% (all of it)"),
        ({"idle_input": 99}, "The GPU computes 0% of the time. Most of the rest: input, 100%"),
    ],
)
def test_the_verdict(slices: dict[str, int], said: str) -> None:
    assert said in verdict(answer(device(budget(**slices))))


def eight(count: int) -> dict[str, Any]:
    return answer(
        *(
            device(budget(compute=(90 - i) * MS, idle_input=(10 + i) * MS), str(i), rank=i)
            for i in range(count)
        )
    )


def test_several_devices_have_a_short_bar_each() -> None:
    shown = show(eight(8))
    assert "8 GPUs, ranks 0 to 7" in shown
    lines = [line for line in shown.splitlines() if line.startswith("GPU ")]
    assert len(lines) == 8
    assert len({len(line) for line in lines}) == 1
    assert "They differ: from 83% compute on GPU 7, rank 7 to 90% on GPU 0, rank 0." in shown


def test_many_devices_are_summed_up_and_alike_ones_are_not_said_to_differ() -> None:
    shown = show(eight(12))
    assert sum(line.startswith("GPU ") for line in shown.splitlines()) == 7
    assert "\n5 more " in shown
    assert "They differ" not in show(eight(3))


def test_devices_of_several_hosts_are_kept_apart() -> None:
    account = budget(compute=MS)
    shown = show(answer(device(account, host="a"), device(account, host="b")))
    assert "GPU 0, a" in shown
    assert "GPU 0, b" in shown


def taken(ns: int, step_ns: int | None = None, outside_ns: int = 0) -> dict[str, Any]:
    window = {"ns": ns, "asked_ns": 1000 * MS, "step_ns": step_ns, "outside_ns": outside_ns}
    return {**BUSY, "window": window, "step_budget": None, "steps": answer()["steps"]}


def test_of_less_than_a_step_nothing_is_said_of_where_the_time_goes() -> None:
    text = show(taken(60 * MS, step_ns=177 * MS))
    assert "of the time" not in text
    assert "a step  " not in text
    assert "compute 36%" in text
    assert "The GPU computes 36%" in show(taken(60 * MS))


def test_a_few_operations_in_a_long_window_are_not_said_to_be_healthy() -> None:
    account = budget(compute=3 * MS)
    trace = {**taken(250 * MS, outside_ns=247 * MS), **answer(device(account))}
    said = verdict({**trace, "window": taken(250 * MS, outside_ns=247 * MS)["window"]})
    assert said is not None
    assert said.startswith("For 99% of the window no operation ran on the GPU")
    assert "nothing worth fixing" in str(verdict(answer(device(account))))


def test_a_rate_is_read_as_words() -> None:
    assert amount(3.083, "per_second") == "3.08 a second"
    assert amount(2.0, "bytes_per_second") == "2 B/s"


def test_amounts_of_a_step_come_from_the_jobs_own_where_the_trace_shows_none() -> None:
    text = show(taken(1000 * MS, step_ns=200 * MS))
    assert "no steps found (nothing repeats), one of the job takes 200 ms" in text
    line = next(line for line in text.splitlines() if line.startswith("█ compute"))
    assert line.split()[2:] == ["36%", "358", "ms", "71.6", "ms", "all", "of", "it"]


@pytest.mark.parametrize("name", TRUTHS)
def test_trace_and_diagnose_say_the_same_share_of_one_file(name: str) -> None:
    answer = contract(analyse(path_of(name)))
    said, budget = verdict(answer), of_answer(answer, name).budget
    if said is None or budget is None or "no work" in said:
        return
    computes = share(budget["slices"][Slice.COMPUTE], total_of(budget))
    assert f"{computes} of the time" in said
    # It says so where that is another share than the one in its table.
    whole = share(answer["budget"]["slices"][Slice.COMPUTE], total_of(answer["budget"]))
    assert computes == whole or "as monitor diagnose judges it" in said
