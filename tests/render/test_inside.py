"""What the screens show from inside the job: live view, plain lines, JSON, the summary."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from tests.render.snapshots import LOAD, NO_PROBE, STEP, STOPPED, drawn, inside, outside, snapshot
from whyidle.monitor.attach.answers import AGENT, REMOTE_EXEC, RUN, Refusal
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.processes.roles import Role
from whyidle.monitor.recording.snapshot import Member, Snapshot, stood_still
from whyidle.monitor.render import inside as words
from whyidle.monitor.render import jsonl, plain
from whyidle.monitor.render.screens import PlainLines
from whyidle.monitor.runs.summary import RunSummary, Watched, in_order
from whyidle.monitor.store import Key, Run, Summary

ON_THE_WAY = Member(ProcessKey(4003, 1), None, None)
HAPPENED = JobEvent("agent_refused", ProcessKey(4002, 1), "Process 4002 \x1b[31mis stopped.")


@pytest.mark.parametrize("width", [80, 120])
def test_a_page_of_the_live_view_has_a_line_a_process(width: int) -> None:
    text = drawn(snapshot(inside(rank=3), outside()), width, keys="g")
    assert "61% loading.py:1108" in text
    row = next(line for line in text.splitlines() if line.startswith("4001"))
    paused = ["0.3", "+", "0.1", "ms"] if width > 100 else []
    assert row.split()[: len(paused) + 3] == ["4001", "3", "ptrace", *paused]
    assert "1.3%" in row
    assert "4002" in text
    assert max(map(len, text.splitlines())) <= width


def test_many_processes_are_a_line_until_somebody_asks() -> None:
    shown = snapshot(*(inside(4000 + i) for i in range(9)))
    assert "agent in 9 of 9 processes" in drawn(shown, 100)
    assert "4006" not in drawn(shown, 100)
    assert "4006" in drawn(shown, 100, keys="g")


def test_a_job_that_nobody_is_in_says_so() -> None:
    assert "from outside" in drawn(snapshot(), 100)
    assert STOPPED.what in drawn(snapshot(outside()), 100)


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (inside(), "attached by ptrace; the job paused for 0.3 + 0.1 ms"),
        (inside(method=RUN, stops_ms=()), "attached by monitor run"),
        (inside(method=AGENT, stops_ms=()), "attached by an agent that was there"),
        (inside(method=REMOTE_EXEC, stops_ms=()), "attached by sys.remote_exec"),
        (outside(), f"from outside. {STOPPED.what}"),
        (outside(refusal=None), "from outside"),
        (ON_THE_WAY, "the agent is on its way in"),
    ],
)
def test_how_a_job_is_watched_is_a_sentence(member: Member, said: str) -> None:
    assert words.how(snapshot(member)) == said


def test_plain_lines_name_the_line_of_code_and_steer_no_terminal() -> None:
    out = io.StringIO()
    lines = PlainLines(everything=False, out=out)
    evil = SourceLine("/tmp/\x1b]0;owned\x07/a\nb.py", 1, "f\x1b[2J", 1.0)
    lines.tick(snapshot(inside(), ticks=1, happened=(HAPPENED,)))
    lines.tick(snapshot(inside(where=(evil,)), elapsed=20.0))
    text = out.getvalue()
    assert "Watched: attached by ptrace" in text
    assert "| at loading.py:1108 Tokens.__getitem__ 61%" in text
    assert "\x1b" not in text
    assert "at a\\nb.py:1 f\\x1b[2J 100%" in text
    assert "\x1b" not in drawn(snapshot(inside(where=(evil,)), happened=(HAPPENED,)), 100)


@pytest.mark.parametrize(
    ("method", "why"),
    [("ptrace", jsonl.NO_FRAMEWORK_YET), ("outside", jsonl.NO_FRAMEWORK_OUTSIDE)],
)
def test_a_process_without_an_agent_is_not_said_to_have_one(method: str, why: str) -> None:
    watched = Watched(1, None, method, method != "outside", (), None, None)
    assert jsonl._watched(watched).unknown["framework"] == why


def test_a_tick_of_json_has_each_process_with_its_reasons() -> None:
    tick = json.loads(jsonl.line(jsonl.tick(snapshot(inside(rank=2), outside(), ON_THE_WAY))))
    first, second, third = tick["agents"]
    assert first["pid"] == 4001
    assert first["rank"] == 2
    assert first["method"] == "ptrace"
    assert first["stops_ms"] == [0.3, 0.1]
    assert first["gc_pause_ratio"] == 0.013
    frameworks = {first["unknown"].pop(name) for name in ("framework", "steps_source")}
    assert frameworks == {NO_PROBE, jsonl.NO_FRAMEWORK_YET}
    assert set(first["unknown"].values()) == {NO_PROBE}
    assert "gc_pause_ratio" not in first["unknown"]
    assert first["looks"] == 150
    assert first["where"][0] == {
        "file": LOAD.file, "line": 1108, "function": "Tokens.__getitem__", "share": 0.61,
    }  # fmt: skip
    assert "cpu_cores" not in first
    assert second["refused"] == STOPPED.what
    assert second["next_step"] == STOPPED.next_step
    assert second["gc_pause_ratio"] is None
    assert second["unknown"]["gc_pause_ratio"] == "no agent in the process"
    assert third["method"] is None
    for agent in (second, third):
        for name in ("rank", "where", "looks"):
            assert agent[name] is None
            assert agent["unknown"][name]


def test_what_happened_in_the_job_is_among_the_events() -> None:
    tick = jsonl.tick(snapshot(outside(), happened=(HAPPENED,)))
    assert tick["events"] == [
        {
            "kind": "agent_refused",
            "gpu": None,
            "pid": 4002,
            "text": HAPPENED.text,
            "severity": "info",
            "data": None,
        }
    ]


def entry(**known: object) -> dict[str, object]:
    return {
        "pid": 1, "rank": None, "method": "ptrace", "inside": True, "stops_ms": [0.25, 0.25],
        "refused": None, "next_step": None, "of a newer program": 1, **known,
    }  # fmt: skip


OUT = entry(method="outside", inside=False, stops_ms=[], refused="It is \x1b stopped.",
            next_step="kill -CONT 1")  # fmt: skip


def run_summary(*entries: dict[str, object]) -> RunSummary:
    run = Run(id=1, target_pid=1, info={"processes": list(entries)}, end_reason="time limit")
    figures = {m.JOB_GC_PAUSE: 0.08, m.JOB_AGENT_CPU: 0.002}
    metrics = {
        Key(m.Scope.JOB, 1, x): Summary(3, value, value, value, value)
        for x, value in figures.items()
    }
    return RunSummary(
        run=run,
        seconds=10.0,
        ticks=11,
        gpus=[],
        owned=frozenset(),
        metrics=metrics if entries and entries[0]["inside"] else {},
        unknown={},
        events=[],
        where=(SourceLine("/job/train.py", 42, "step", 0.5),),
    )


def test_the_page_says_how_it_was_watched_and_where_the_time_went() -> None:
    page = plain.summary_page(run_summary(entry(), entry(pid=2)))
    assert "  python   garbage collector 8.0%; main thread at train.py:42 step 50%" in page
    how = (
        "attached by ptrace; the job paused for 0.2 + 0.2 ms, took 0.2% of a core, 2 of 2 processes"
    )
    assert f"  agent    {how}" in page


def test_of_several_processes_the_page_says_whose_line_it_is_and_who_is_outside() -> None:
    worker, third = entry(pid=2, rank=0), {**OUT, "pid": 3, "rank": 1}
    found = run_summary(entry(), worker, third)
    page = plain.summary_page(replace(found, where_of=found.watched[1]))
    assert "main thread of rank 0 (pid 2) at train.py:42 step 50%" in page
    assert "2 of 3 processes" in page
    assert "not in rank 1, pid 3: It is \\x1b stopped. kill -CONT 1" in page


def parts() -> Snapshot:
    front = inside(4001, where=(STEP,), steps_source="loop")
    worker = inside(4003, where=(LOAD,), role=Role.WORKER, title="VLLM::Worker")
    return replace(snapshot(), members=(front, worker))


def test_of_several_parts_the_line_is_that_of_the_one_that_computes() -> None:
    line = words.top_line(parts())
    assert line is not None
    assert line.endswith("(VLLM::Worker, pid 4003)")
    assert words.place(LOAD) in line


def test_the_screens_say_which_part_each_process_is() -> None:
    page = drawn(parts(), 140, keys="g")
    assert "part" in page
    assert "worker" in page
    agents = jsonl.tick(parts())["agents"]
    assert [agent.get("role") for agent in agents] == [None, "worker"]
    assert "part" not in drawn(snapshot(), 140, keys="g").split()


def test_the_part_that_computes_stands_for_the_job() -> None:
    worker = entry(pid=3) | {"inside": False, "role": "worker", "title": "VLLM::Worker"}
    engine = entry(pid=2) | {"role": "engine", "title": "VLLM::EngineCore"}
    engine["counted"] = {"steps": 9, "source": "loop"}
    found = run_summary(entry(), engine, worker)
    assert [each.pid for each in in_order(found.run)] == [3, 2, 1]
    # Its steps are the job's, not the turns of whoever only waits for it.
    assert found.trained.steps is None
    said = jsonl.summary_object(found).agents
    assert [each.role or None for each in said] == [None, "engine", "worker"]


def test_a_worker_with_a_rank_stands_for_the_job() -> None:
    found = run_summary(entry(), entry(pid=3, rank=1), entry(pid=2, rank=0))
    assert found.principal is not None
    assert found.principal.pid == 2


def test_a_tick_says_which_of_several_and_which_is_stopped() -> None:
    one, two = inside(4001, rank=1), inside(4002, rank=0)
    line = plain.tick(snapshot(one, two, main_stopped=True), everything=False)
    assert line.endswith("61% (rank 0, pid 4002)")
    assert " main process STOPPED |" in line


def test_why_nothing_is_entered_is_said_once_with_what_comes_next() -> None:
    why = Refusal("Process 1 has no framework (yet).", "It is entered as soon as it loads one.")
    shown = snapshot(not_entered=why)
    assert words.how(shown) == f"from outside. {why.what} {why.next_step}"
    assert jsonl.tick(shown)["unknown"] == {"agents": f"{why.what} {why.next_step}"}
    info = {"not_entered": {"what": why.what, "next_step": why.next_step}}
    found = replace(run_summary(), run=Run(id=1, target_pid=1, info=info, end_reason="stopped"))
    assert f"  agent    none. {why.what} {why.next_step}" in plain.summary_page(found)
    assert jsonl.summary_object(found).unknown["agents"] == f"{why.what} {why.next_step}"


def test_what_was_on_its_way_is_reported_when_it_is_settled() -> None:
    out = io.StringIO()
    lines = PlainLines(everything=False, out=out)
    for ticks, member in enumerate((ON_THE_WAY, ON_THE_WAY, outside(), outside()), 1):
        lines.tick(snapshot(member, ticks=ticks))
    said = [line for line in out.getvalue().splitlines() if line.startswith("Watched")]
    assert said == [
        "Watched: the agent is on its way in",
        f"Watched: from outside. {STOPPED.what}",
    ]


@pytest.mark.parametrize(
    ("reason", "code", "said"),
    [
        ("job ended", 3, "job ended, exit code 3"),
        ("job ended: exit code 3", 3, "job ended: exit code 3"),
        ("job ended: killed by SIGKILL", -9, "job ended: killed by SIGKILL"),
    ],
)
def test_an_end_is_reported_in_one_form(reason: str, code: int, said: str) -> None:
    run = Run(id=1, target_pid=1, end_reason=reason, exit_code=code, ended_ms=1)
    page = plain.summary_page(replace(run_summary(), run=run, ticks=1))
    assert f"  10 s watched, 1 tick, pid 1; {said}\n" in page.replace("10.0 s", "10 s")


def test_the_page_says_why_nothing_was_inside_and_what_to_type() -> None:
    page = plain.summary_page(run_summary(OUT))
    assert "  agent    none, watched from outside. It is \\x1b stopped." in page
    assert "           kill -CONT 1" in page


def test_the_summary_names_the_method_of_the_target_or_of_the_first_inside() -> None:
    inside_both = jsonl.summary_object(run_summary(entry(pid=2, method="run"), entry()))
    assert (inside_both.attached, inside_both.method) == ("agent", "ptrace")
    worker = jsonl.summary_object(run_summary(OUT, entry(pid=2, method="run")))
    assert (worker.attached, worker.method) == ("agent", "run")
    assert worker.agents[0].next_step == "kill -CONT 1"
    nobody = jsonl.summary_object(run_summary(OUT))
    assert (nobody.attached, nobody.method) == ("outside", "procfs")
    assert nobody.steps is None
    assert nobody.unknown["steps"]
    none = jsonl.summary_object(replace(run_summary(), where=(), more_events=7))
    assert none.attached == "outside"
    assert (none.where, none.more_events) == (None, 7)
    assert none.unknown["where"]
    assert none.agents == []


@pytest.mark.parametrize(
    ("stops", "said"),
    [
        ((0.31, 0.24), "0.3 + 0.2 ms"),
        ((0.004,), "<0.01 ms"),
        ((0.04,), "0.04 ms"),
        ((-0.2, 12.0), "<0.01 + 12.0 ms"),
        ((3.0, 4.5, 0.1, 0.1), "at most 4.5 ms, 4 times"),
    ],
)
def test_a_stop_is_never_less_than_none_and_none_is_hidden_in_a_sum(
    stops: tuple[float, ...], said: str
) -> None:
    assert stood_still(stops) == said
