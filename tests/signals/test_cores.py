"""The account of the cores, from made-up recordings."""

from __future__ import annotations

import pytest

from tests.rules.windows import found, is_silent, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render.findings import screen
from whyidle.monitor.rules.input_starved import COMPETES
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.cores import Runner
from whyidle.monitor.signals.loading import Loader
from whyidle.monitor.signals.recorded import Helper
from whyidle.monitor.signals.window import Window

MEANS = {
    m.HOST_CORES: 4.0, m.HOST_CPU: 0.95, m.JOB_CPU: 3.6, m.PROCESS_CPU: 2.5, m.JOB_MAIN_THREAD: 0.9,
}  # fmt: skip
DECODE, CROP = SourceLine("/u/data.py", 9, "decode", 0.7), SourceLine("/u/data.py", 4, "crop", 0.2)


def of_lines(*lines: SourceLine) -> StackSamples:
    """Return samples of which some lines have their shares."""
    found = StackSamples()
    found.count(Chain(()), 1 - sum(line.share for line in lines))
    for line in lines:
        found.count(Chain((CodeLine(line.file, line.line, line.function),)), line.share)
    return found


HELPERS = (Helper(0.8, of_lines(DECODE, CROP)), Helper(0.3, of_lines(DECODE)))
CPU = {"torch": {"backend": "cpu"}}


def job(
    helpers: tuple[Helper, ...] = HELPERS,
    means: dict[Metric, float] | None = None,
    peers: float = 0.0,
) -> Window:
    means = MEANS | (means or {})
    return window(means=means, helpers=helpers, peers=peers, facts=CPU, inside=True)


def test_all_cores_are_somebodys() -> None:
    account = job().core_account
    assert account is not None
    assert account.runs == pytest.approx({
        Runner.MAIN_THREAD: 0.9, Runner.THREADS: 1.6, Runner.HELPERS: 1.1, Runner.OTHERS: 0.2,
        Runner.FREE: 0.2,
    })  # fmt: skip
    assert account.is_full
    assert [(line.function, line.share) for line in account.lines] == [
        ("decode", pytest.approx(0.77)), ("crop", pytest.approx(0.16)),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [None, 2.0, 3.0])
def test_they_are_never_more_than_the_job_may_use(limit: float | None) -> None:
    account = job(means={} if limit is None else {m.JOB_CPU_LIMIT: limit}).core_account
    assert account is not None
    assert account.cores == (limit or 4.0)
    assert sum(account.runs.values()) == pytest.approx(account.cores)
    assert min(account.runs.values()) >= 0


def test_a_mask_counts_like_a_limit_and_only_who_runs_on_its_cores() -> None:
    # The machine is full, but for the two cores of the job.
    means = {m.JOB_CORES_ALLOWED: 2.0, m.JOB_CORES_BUSY: 0.6, m.JOB_CPU: 1.0, m.PROCESS_CPU: 1.0}
    pinned = job((), means)
    assert pinned.cores is not None
    assert pinned.cores.value == 2.0
    account = pinned.core_account
    assert account is not None
    assert account.runs == pytest.approx({
        Runner.MAIN_THREAD: 0.9, Runner.THREADS: 0.1, Runner.HELPERS: 0, Runner.OTHERS: 0.2,
        Runner.FREE: 0.8,
    })  # fmt: skip
    wide = job(means={m.JOB_CORES_ALLOWED: 4.0, m.JOB_CORES_BUSY: 0.95, m.JOB_CPU_LIMIT: 1.5})
    assert wide.cores is not None
    assert wide.cores.value == 1.5


@pytest.mark.parametrize("missing", [m.HOST_CORES, m.JOB_CPU, m.PROCESS_CPU, m.JOB_MAIN_THREAD])
def test_what_was_not_measured_is_unknown(missing: Metric) -> None:
    means = {metric: value for metric, value in MEANS.items() if metric is not missing}
    assert window(means=means).core_account is None


def test_the_answer_and_the_screen_have_it() -> None:
    answer = as_json(diagnose(job()))
    cores = answer.host.cores
    assert cores is not None
    assert cores.total == 4
    assert sum(cores.runs.values()) == pytest.approx(4)
    assert cores.lines[0].function == "decode"
    without = as_json(diagnose(window())).host
    assert without.cores is None
    assert without.unknown["cores"]
    assert "Data loading takes the cores" in screen(as_json(diagnose(job())))


def test_loading_that_nobody_waits_for_takes_cores() -> None:
    finding = found("input_starved", job())
    assert finding.where[0].function == "decode"
    assert finding.gain is not None
    # At least the work is less by its share.
    assert finding.gain.low == pytest.approx(1.1 / 4)
    assert finding.gain.high > finding.gain.low


def test_who_trains_beside_it_is_no_loader() -> None:
    some = found("input_starved", job(peers=0.6)).gain
    assert some is not None
    assert some.low == pytest.approx(0.5 / 4)
    assert is_silent("input_starved", job(peers=1.1))


def test_what_the_main_thread_does_for_a_batch_takes_no_cores_from_the_step() -> None:
    # It unpickles what its workers made, more often than it waits for them.
    loop = CodeLine("/u/train.py", 30, "fit")
    reads, asked, trains = (
        CodeLine(f"/v/lib/python3.11/site-packages/torch/{file}", 9, function)
        for file, function in (
            ("multiprocessing/reductions.py", "rebuild_tensor"),
            ("utils/data/dataloader.py", "__next__"),
            ("autograd/graph.py", "_engine_run_backward"),
        )
    )
    stacks = StackSamples()
    stacks.samples = 1000
    stacks.count(Chain((loop,), reads, asked), 40, 40, 0)
    stacks.count(Chain((loop,), asked, asked), 10, 10, 10)
    stacks.count(Chain((loop,), trains, trains), 950, 950, 0)
    seen = window(means=MEANS, helpers=HELPERS, facts=CPU, inside=True, stacks=stacks)
    assert seen.loading is not None
    assert seen.loading.who is Loader.MAIN
    finding = found("input_starved", seen)
    assert finding.title == COMPETES
    assert [place.function for place in finding.where] == ["decode", "crop"]


def test_free_cores_lose_nothing_to_loading() -> None:
    idle = {m.JOB_CPU: 2.0, m.PROCESS_CPU: 0.9, m.JOB_MAIN_THREAD: 0.8, m.HOST_CPU: 0.5}
    free = job(means=idle | {m.JOB_LOADER_WAIT: 0.0})
    assert is_silent("input_starved", free)


def test_helpers_that_do_nothing_of_the_users_are_no_loading() -> None:
    assert is_silent("input_starved", job((Helper(1.1),), {m.JOB_LOADER_WAIT: 0.0}))


def test_where_the_job_waits_for_its_loader_that_is_the_finding() -> None:
    waits = job(means={m.JOB_LOADER_WAIT: 0.5})
    assert found("input_starved", waits).title is None


PENV = "/v/site-packages/torch_ac/utils/penv.py"
PLAYERS = {
    "a library's own processes": Chain(
        (CodeLine("/u/train.py", 9, "main"),),
        CodeLine(PENV, 3, "worker"),
        CodeLine(PENV, 3, "worker"),
    ),
    "a known one's": Chain(
        (CodeLine("/u/train.py", 9, "main"),),
        CodeLine(
            "/v/site-packages/stable_baselines3/common/vec_env/subproc_vec_env.py", 3, "_worker"
        ),
    ),
    "an environment's own code": Chain(
        (CodeLine("/u/train.py", 9, "main"),),
        CodeLine("/v/site-packages/minigrid/core/grid.py", 3, "encode"),
    ),
}


@pytest.mark.parametrize("style", PLAYERS)
def test_processes_that_step_environments_load_nothing(style: str) -> None:
    seen = StackSamples()
    seen.samples = 60
    seen.count(PLAYERS[style], 60)
    quiet = {m.JOB_LOADER_WAIT: 0.0}
    assert is_silent("input_starved", job((Helper(1.1, seen),), quiet))
    # Beside loaders only these count.
    assert found("input_starved", job((*HELPERS, Helper(0.1, seen)), quiet)).title == COMPETES
