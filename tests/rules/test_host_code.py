"""The rule host_code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    names,
    severity,
    stacks,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Found, Severity, SourceLine
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import MOST_ROWS, as_json, diagnose
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.recorded import Helper, SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "host_code"
_BEFORE = """
import concurrent.futures
step, seen = 200, []
report = seen.append
background = concurrent.futures.ThreadPoolExecutor(1)
"""
FIXES = dict.fromkeys(("pytorch", "jax"), (_BEFORE, "background.shutdown(); assert seen == [200]"))
# The same fault as three people write it, and a healthy program.
SOURCES = {
    "a loop in a method": (
        """
import torch
class Trainer:
    def finish(self, rewards):
        total = 0.0
        for reward in range(100_000):
            total = total * 0.99 + reward
        return torch.ones(3)
""",
        (7, "finish"),
        8,
    ),
    "a file in a script": (
        """
import json
import torch
for step in range(9):
    loss = torch.ones(3).sum()
    with open("log", "a") as log:
        log.write(json.dumps({"step": step}))
""",
        (7, "<module>"),
        5,
    ),
    "a library in a callback": (
        """
import jax
from PIL import Image
def on_step(step):
    Image.new("RGB", (640, 480)).save("now.png")
    return jax.numpy.ones(3)
""",
        (5, "on_step"),
        6,
    ),
}


def sampled(tmp_path: Path, source: str, host: CodeLine, works: int, share: float) -> Window:
    file = tmp_path / "train.py"
    file.write_text(source)
    own = CodeLine(str(file), host.line, host.function)
    framework = CodeLine(str(file), works, host.function)
    samples = stacks((own, (), 1000 * share), (framework, (), 1000 * (1 - share)))
    return window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True)


# What ends a wait, by the line that waits and the file of Python's own that it stands in, if any.
OUTSIDE = {
    "a connection": ("connection, _ = server.accept()", "socket.py"),
    "a server": ("server.serve_forever()", "selectors.py"),
    "a descriptor": ("ready, _, _ = select.select([pipe], [], [])", None),
    "bytes": ("data = connection.recv(4096)", None),
    "a timer": ("time.sleep(0.5)", None),
    "a person": ("answer = input('? ')", None),
    "a signal": ("signal.pause()", None),
}
OF_THE_JOB = {
    "a queue": ("item = jobs.get()", "threading.py"),
    "a thread": ("simulation.join()", "threading.py"),
    "a process": ("child.wait()", "subprocess.py"),
    "a pool": ("results = pool.map(work, jobs)", "threading.py"),
    "a future": ("results = [future.result() for future in some]", "threading.py"),
    "several processes": ("connection.wait(ends)", "multiprocessing/connection.py"),
}
NOTHING_RUNS = {m.JOB_CPU: 0.01}
OTHERS_RUN = {m.JOB_CPU: 1.2}
OTHERS_WANT_CORES = {m.JOB_CPU: 0.2, m.JOB_WAITING_THREADS: 0.9}


def waiting(tmp_path: Path, line: str, module: str | None, **job: Any) -> Window:
    file = tmp_path / "program.py"
    file.write_text(f"import os, select, signal, time\ndef main():\n    {line}\nmain()\n")
    at = CodeLine(str(file), 3, "main")
    leaf = at if module is None else CodeLine(f"/usr/lib/python3.11/{module}", 9, "wait")
    return window(stacks=stacks((leaf, (at,), 1000), waited=1.0), **job)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("what", [*OUTSIDE, *OF_THE_JOB])
def test_who_only_waits_has_no_fault(what: str, inside: bool, tmp_path: Path) -> None:
    job = waiting(tmp_path, *(OUTSIDE | OF_THE_JOB)[what], inside=inside, means=NOTHING_RUNS)
    assert judge(NAME, job) is None


@pytest.mark.parametrize("what", OUTSIDE)
def test_a_server_may_wait_while_its_threads_answer(what: str, tmp_path: Path) -> None:
    assert judge(NAME, waiting(tmp_path, *OUTSIDE[what], means=OTHERS_RUN)) is None


@pytest.mark.parametrize("means", [OTHERS_RUN, OTHERS_WANT_CORES])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("what", OF_THE_JOB)
def test_who_waits_for_others_of_the_job_that_run_is_named(
    what: str, inside: bool, means: dict[Metric, float], tmp_path: Path
) -> None:
    works = SourceLine("/job/work.py", 7, "work", 1.0)
    helpers = (Helper(1.0, stacks((works, (), 1))),)
    job = waiting(tmp_path, *OF_THE_JOB[what], inside=inside, means=means, helpers=helpers)
    finding = found(NAME, job)
    assert [place.line for place in finding.where] == [3, 7]
    assert severity(NAME, finding) is Severity.HIGH
    assert [each.source for each in finding.evidence] == ["stack samples", "procfs"]


def test_it_counts_only_so_long_as_they_run(tmp_path: Path) -> None:
    line, module = OF_THE_JOB["a queue"]
    gain = found(NAME, waiting(tmp_path, line, module, means={m.JOB_CPU: 0.3})).gain
    assert gain is not None
    assert gain.low < 0.3 < gain.high < 0.4


def test_the_lines_of_the_threads_that_run_meanwhile_stand_behind(tmp_path: Path) -> None:
    run = CodeLine("/job/simulation.py", 6, "run")
    means = {
        m.JOB_CPU: 1.0, m.PROCESS_CPU: 1.0, m.JOB_MAIN_THREAD: 0.0, m.HOST_CORES: 8.0,
        m.HOST_CPU: 0.2,
    }  # fmt: skip
    job = waiting(tmp_path, *OF_THE_JOB["a thread"], means=means, threads=stacks((run, (), 200)))
    finding = found(NAME, job)
    assert names(finding.where) == ["main", "run"]
    assert "its process's other threads, meanwhile" in [each.name for each in finding.evidence]


def test_a_wait_for_the_disk_is_the_programs_own(tmp_path: Path) -> None:
    job = waiting(tmp_path, "os.fsync(3)", None, means=NOTHING_RUNS)
    for counts in job.job.stacks.chains.values():
        counts.blocked = counts.waited
    assert found(NAME, job).where[0].line == 3


@pytest.mark.parametrize(
    ("known", "is_there"),
    [
        ({"facts": {"torch": {"backend": "cpu"}}}, True),
        ({"means": {m.JOB_STEPS: 3.0}}, True),
        ({"gpus": (SeenGpu("0", None, True, {}),)}, True),
        # It has loaded a framework, and nothing of it runs.
        ({"facts": {"torch": {"backend": "cpu"}}, "means": NOTHING_RUNS}, False),
    ],
)
def test_who_trains_waits_for_nothing(
    known: dict[str, Any], is_there: bool, tmp_path: Path
) -> None:
    verdict = judge(NAME, waiting(tmp_path, *OUTSIDE["a timer"], inside=True, **known))
    assert isinstance(verdict, Found) is is_there


def test_a_framework_that_is_seen_at_work_trains_also_from_outside(tmp_path: Path) -> None:
    job = waiting(tmp_path, *OUTSIDE["a timer"], means=NOTHING_RUNS)
    at = CodeLine("/job/train.py", 5, "train")
    torch = CodeLine("/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", 9, "forward")
    job.job.stacks.count(Chain((at,), torch), 500, 500)
    job.job.stacks.samples += 500
    assert found(NAME, job).where[0].line == 3


# Programs that no framework computes in, and that have work of their own.
PLAIN = {
    "a loop": ("return sum(n * n for n in range(1000))", None),
    "a library of Python's": ("rows = [json.loads(line) for line in some]", "json/decoder.py"),
    "a codec": ("image.save(path)", "site-packages/PIL/Image.py"),
}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("style", PLAIN)
def test_a_plain_program_that_computes_is_named(style: str, inside: bool, tmp_path: Path) -> None:
    job = waiting(tmp_path, *PLAIN[style], inside=inside, means={m.JOB_CPU: 0.6})
    for counts in job.job.stacks.chains.values():
        # The rest of the time it waits for what it works at.
        counts.waited = 0.4 * counts.known
    finding = found(NAME, job)
    assert finding.where[0].line == 3
    assert severity(NAME, finding) is Severity.HIGH


@pytest.mark.parametrize("style", SOURCES)
def test_the_users_own_code_is_named_in_any_style(style: str, tmp_path: Path) -> None:
    source, (line, function), works = SOURCES[style]
    job = sampled(tmp_path, source, CodeLine("", line, function), works, 0.3)
    finding = found(NAME, job)
    assert names(finding.where) == [function]
    assert finding.where[0].line == line
    assert finding.where[0].share == pytest.approx(0.3)
    assert finding.gain is not None
    assert finding.gain.low < 0.3 < finding.gain.high
    assert finding.gain.high - finding.gain.low < 0.1
    assert severity(NAME, finding) is Severity.HIGH
    assert finding.title is not None
    # What is written to a file is called logging, whoever does it.
    says = "Logging" if "log.write" in source else f"{function}()"
    # Where all of it is in a function with a loop, that says no more than the program's name.
    says = f"Line {line}" if "for reward" in source else says
    assert finding.title.startswith(f"{says} takes 30% of the main thread's time")


@pytest.mark.parametrize("style", SOURCES)
def test_a_healthy_twin_is_silent(style: str, tmp_path: Path) -> None:
    source, (line, function), works = SOURCES[style]
    assert is_silent(NAME, sampled(tmp_path, source, CodeLine("", line, function), works, 0.02))


def test_a_device_that_works_meanwhile_bounds_the_gain(tmp_path: Path) -> None:
    source, (line, function), works = SOURCES["a loop in a method"]
    job = sampled(tmp_path, source, CodeLine("", line, function), works, 0.3)
    # It is busy for 0.9 of the time: no more than 0.1 can come back.
    busy: Any = answer({Slice.COMPUTE: 0.9, Slice.IDLE_DISPATCH: 0.1}, kind="gpu")
    gpu = window(busy, stacks=job.job.stacks, facts={"torch": {"backend": "cuda"}}, inside=True)
    gain = found(NAME, gpu).gain
    assert gain is not None
    assert gain.low == 0
    assert gain.high == pytest.approx(0.1)


def test_what_is_not_told_apart_widens_the_range(tmp_path: Path) -> None:
    source = """
def step(model, x):
    for n in range(9):
        n * n
    return x * 2
"""
    job = sampled(tmp_path, source, CodeLine("", 4, "step"), 5, 0.3)
    gain = found(NAME, job).gain
    assert gain is not None
    assert gain.low < 0.3
    assert gain.high > 0.9


SITE = "/x/site-packages"
STEPS = {
    "Pyro": (f"{SITE}/pyro/poutine/runtime.py", f"{SITE}/torch/autograd/graph.py"),
    "skorch": (f"{SITE}/skorch/net.py", f"{SITE}/torch/nn/modules/linear.py"),
    "DeepXDE": (f"{SITE}/deepxde/model.py", f"{SITE}/jax/_src/pjit.py"),
}


@pytest.fixture
def loop(tmp_path: Path) -> Callable[[int], CodeLine]:
    """Return lines of a function that is nothing but a loop."""
    file = tmp_path / "train.py"
    file.write_text("def main():\n    while True:\n" + "        work()\n" * 12)
    return lambda number: CodeLine(str(file), number, "main")


@pytest.mark.parametrize("style", STEPS)
def test_the_step_of_a_library_is_no_code_of_the_jobs(
    style: str, loop: Callable[[int], CodeLine]
) -> None:
    library, framework = (CodeLine(file, 9, "f") for file in STEPS[style])
    both = stacks((library, (loop(5),), 300), (framework, (loop(5),), 700))
    here = window(stacks=both, facts={"torch": {"backend": "cpu"}}, inside=True)
    finding = found(NAME, here)
    assert finding.severity is Severity.LOW
    # It has its name, and not the user's function that calls it.
    assert finding.title == f"{style.lower()} takes 30% of the main thread's time"
    # What is called at another line of the loop than the step is the job's.
    both = stacks((library, (loop(6),), 300), (framework, (loop(5),), 700))
    here = window(stacks=both, facts={"torch": {"backend": "cpu"}}, inside=True)
    finding = found(NAME, here)
    assert finding.title == "work() takes 30% of the main thread's time"
    assert finding.fixes is not None
    assert finding.fixes["jax"].text.startswith("Call work() less often")


def test_lines_of_the_loop_are_parts_between_its_steps(loop: Callable[[int], CodeLine]) -> None:
    library = CodeLine(f"{SITE}/nobody/metrics.py", 1, "f")
    work = [(library, (loop(n),), some) for n, some in ((4, 80), (5, 70), (9, 60), (12, 90))]
    steps = [(CodeLine(f"{SITE}/torch/a.py", 1, "f"), (loop(n),), 350) for n in (7, 11)]
    here = window(stacks=stacks(*work, *steps), facts={"torch": {"backend": "cpu"}}, inside=True)
    finding = found(NAME, here)
    assert finding.title == "Lines 4 to 5 take 15% of the main thread's time"
    assert {place.line for place in finding.where} == {4, 5}


def test_what_is_spread_over_the_loop_is_no_less(loop: Callable[[int], CodeLine]) -> None:
    library = CodeLine(f"{SITE}/nobody/metrics.py", 1, "f")
    work = [(library, (loop(n),), 40) for n in (4, 6, 8, 10)]
    steps = [(CodeLine(f"{SITE}/torch/a.py", 1, "f"), (loop(n),), 210) for n in (5, 7, 9, 11)]
    here = window(stacks=stacks(*work, *steps), facts={"torch": {"backend": "cpu"}}, inside=True)
    finding = found(NAME, here)
    assert finding.title == "Lines 4 to 10 take 16% of the main thread's time"
    assert severity(NAME, finding) is Severity.MEDIUM


def test_a_callback_that_takes_nearly_all_is_named(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def callback():\n    plot()\n    draw()\n")
    library = CodeLine(f"{SITE}/nobody/figure.py", 1, "f")
    lines = [CodeLine(str(file), number, "callback") for number in (2, 3)]
    here = window(
        stacks=stacks(*((library, (line,), 500) for line in lines)),
        facts={"torch": {"backend": "cpu"}},
        inside=True,
    )
    assert found(NAME, here).title == "callback() takes 100% of the main thread's time"


def test_it_stands_behind_a_rule_that_knows_the_line(tmp_path: Path) -> None:
    source = """
import gc
for step in range(9):
    gc.collect()
"""
    file = tmp_path / "train.py"
    file.write_text(source)
    line, step = SourceLine(str(file), 4, "<module>", 0.4), CodeLine(str(file), 5, "<module>")
    job = window(
        stacks=stacks(
            (line, (), 400), (CodeLine("/x/site-packages/torch/a.py", 1, "f"), (step,), 600)
        ),
        means={m.JOB_GC_PAUSE: 0.4, m.PROCESS_GC_COLLECTIONS: 20.0},
        facts={"torch": {"backend": "cpu"}},
        lines=(line,),
        leaves=(line,),
        inside=True,
    )
    findings = diagnose(job).findings
    assert findings[0].rule.id == "gc_pauses"
    assert NAME not in [each.rule.id for each in findings]
    assert NAME in findings[0].also_seen


def test_without_samples_it_cannot_judge() -> None:
    assert cannot_judge(NAME, window())


def test_each_phase_has_its_share_and_lines_and_rows_sum_to_one(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "def train(model, batches, held_out):\n"
        "    for step, batch in enumerate(batches):\n"
        "        loss = model(batch)\n"
        "        loss.backward()\n"
        "        if step % 100 == 0:\n"
        "            validate(model, held_out)\n"
        "def validate(model, held_out):\n"
        "    return [score(model, x) for x in held_out]\n"
    )
    stacks, at = StackSamples(), CodeLine(str(file), 4, "train")
    calls = CodeLine(str(file), 6, "train")
    stacks.samples = 1000
    works = CodeLine("/v/site-packages/torch/nn/modules/module.py", 7, "_call_impl")
    stacks.count(Chain((at,), works), 600, 600, 0)
    for n in range(100):
        inside = CodeLine(str(file), 8, f"validate_{n}")
        stacks.count(Chain((inside, calls), works), 4, 4, 0)
    answer = as_json(diagnose(window(facts={"torch": {}}, stacks=stacks, inside=True)))
    assert sum(row.share for row in answer.host.rows) == pytest.approx(1.0)
    assert len(answer.host.rows) == MOST_ROWS + 1
    phases = {phase.name: phase for phase in answer.phases}
    assert sum(phase.share for phase in phases.values()) == pytest.approx(1.0)
    assert [place.line for place in phases["step"].where] == [4]
    assert phases["validation"].share == pytest.approx(0.4)
    assert [place.line for place in phases["validation"].where] == [6]


def test_the_account_is_part_of_the_answer(tmp_path: Path) -> None:
    source, (line, function), works = SOURCES["a loop in a method"]
    job = sampled(tmp_path, source, CodeLine("", line, function), works, 0.3)
    host = as_json(diagnose(job)).host
    assert host.samples == 1000
    assert [(row.doing, row.share) for row in host.rows] == [
        ("framework", 0.7), ("python", 0.3),
    ]  # fmt: skip
    assert host.rows[1].chain[0].line == line
    assert set(host.unknown) == {"cores"}
    (steps,) = as_json(diagnose(job)).phases
    assert (steps.name, steps.share) == ("step", 1.0)
    assert {place.line: place.share for place in steps.where}[line] == 0.3
    assert as_json(diagnose(window())).host.unknown["rows"]
