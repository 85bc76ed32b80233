"""Whose trace is taken: that of the process that was named, or of one that is below it now."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.attach.targets import AS_TORCH
from tests.conftest import start_job
from tests.link.conftest import FS, key_of
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.processes.procfs import Stat, above_each
from whyidle.monitor.processes.ranks import Rank
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.worker import at_or_below, check_is_no_keeper, chosen, worker_of

NONE: dict[int, frozenset[int]] = {}


def who(
    pid: int, rank: int | None = None, source: str = "torchrun", script: str = "train.py"
) -> Identity:
    return Identity(
        key=ProcessKey(pid, pid), parent=1, name="python", command="", script=script, user="me",
        python="3.11", frameworks={"torch": None}, container=None, state="S",
        rank=None if rank is None else Rank(rank, None, None, source),
    )  # fmt: skip


def below(*pairs: tuple[int, int]) -> dict[int, frozenset[int]]:
    """Return who stands above each; a pair is a process and one above it."""
    return {pid: frozenset(up for low, up in pairs if low == pid) for pid, _ in pairs}


def of(named: int, *fit: Identity, above: dict[int, frozenset[int]] = NONE) -> int:
    return chosen(ProcessKey(named, named), fit, above).pid


def test_the_named_process_is_taken_where_it_has_a_framework_itself() -> None:
    assert of(5, who(7), who(5), who(6), above=below((7, 5), (6, 5))) == 5


def test_of_a_launcher_the_first_rank_is_taken() -> None:
    above = below((9, 5), (8, 5), (7, 5))
    assert of(5, who(5), who(9, 1), who(8, 0), who(7), above=above) == 8


def test_a_launcher_that_has_a_rank_itself_is_no_worker() -> None:
    torchrun = who(5, 0, "slurm")
    assert of(5, torchrun, who(8, 1), who(9, 0), above=below((8, 5), (9, 5))) == 9


def test_a_launcher_that_gives_no_ranks_is_no_worker() -> None:
    launcher = who(5, script="accelerate train.py")
    assert of(5, launcher, who(6), who(7), above=below((6, 5), (7, 5), (7, 6))) == 6
    assert of(5, launcher) == 5


def test_a_rank_that_was_named_is_taken() -> None:
    assert of(9, who(9, 1), who(8, 0)) == 9


def test_the_only_job_below_a_shell_is_taken() -> None:
    assert of(5, who(7)) == 7


@pytest.mark.parametrize("rank", [None, 0])
def test_workers_of_a_loader_are_no_jobs(rank: int | None) -> None:
    loaders = [who(pid, rank) for pid in (6, 8, 9)]
    assert of(5, *loaders, who(7, rank), above=below((6, 7), (8, 7), (9, 7))) == 7


def test_of_several_jobs_below_a_shell_one_must_be_named() -> None:
    with pytest.raises(UsageProblem, match="6, 7") as problem:
        of(5, who(7), who(6))
    assert problem.value.next_step == "Name one: monitor trace 6"


def test_a_job_beside_ranked_ones_is_not_passed_over() -> None:
    with pytest.raises(UsageProblem, match="4, 8"):
        of(3, who(5), who(8, 0), who(9, 1), who(4), above=below((8, 5), (9, 5)))


def test_two_jobs_with_ranks_below_a_shell_are_two_jobs() -> None:
    with pytest.raises(UsageProblem, match="6, 8"):
        of(5, who(6, 0), who(7, 1), who(8, 0), who(9, 1))


def test_without_any_the_named_one_is_taken_and_its_refusal_shown() -> None:
    assert of(5) == 5


# Real processes ----------------------------------------------------------------------------------
TRAINS = (
    AS_TORCH
    + """
import os, sys
if os.fork() == 0:
    sys.stdin.read(); os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""
)
# A session of its own; each line of its input is a command of a shell.
SHELL = """
import os, subprocess, sys
os.setsid()
print("ready", flush=True)
for line in sys.stdin:
    subprocess.Popen(["sh", "-c", line.strip()], stdin=subprocess.DEVNULL)
"""


@contextmanager
def shell() -> Iterator[tuple[subprocess.Popen[str], ProcessKey]]:
    with start_job(SHELL) as process:
        yield process, key_of(process.pid)
        os.killpg(process.pid, signal.SIGKILL)


def starts(process: subprocess.Popen[str], line: str) -> int:
    """Have it run a line, of which a job prints its pid; the job lives until it is killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    # It reads on until the sleep is killed with the group.
    process.stdin.write(f"sleep 600 | {line}\n")
    process.stdin.flush()
    return int(process.stdout.readline())


@pytest.fixture
def train(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("job") / "train.py"
    path.write_text(TRAINS)
    return shlex.join([sys.executable, str(path)])


def test_below_a_shell_the_job_is_found_and_not_its_helper(train: str) -> None:
    with shell() as (process, named):
        job = starts(process, train)
        assert worker_of(Target(named, FS)).pid == job


def test_a_job_whose_parent_ended_is_below_nobody_also_in_the_same_session(train: str) -> None:
    with shell() as (process, named):
        job = starts(process, f"({train} &)")
        stat = FS.stat(job)
        assert stat is not None
        assert stat.session == named.pid
        assert worker_of(Target(named, FS)).key == named


@pytest.mark.skipif(os.geteuid() != 0, reason="to be somebody else needs root")
def test_a_job_of_another_user_below_must_be_named(train: str) -> None:
    # What it imports may lie where only root may look.
    source = f"import mmap, os, sys, tempfile; os.setuid(65534); exec({TRAINS!r})"
    with shell() as (process, named):
        job = starts(process, shlex.join([sys.executable, "-c", source]))
        with pytest.raises(UsageProblem, match="another user") as problem:
            worker_of(Target(named, FS))
        assert worker_of(Target(key_of(job), FS)).pid == job
    assert str(job) in problem.value.next_step


def stat(pid: int, parent: int, start: int, name: str = "python") -> Stat:
    return Stat(pid, name, "S", parent, 0, 0, 0, 1, start, 0)


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ([stat(5, 1, 50), stat(7, 6, 70), stat(6, 5, 60)], True),
        # The pid of a parent that ended belongs to who began later.
        ([stat(5, 1, 50), stat(7, 6, 70), stat(6, 5, 80)], False),
        # And so does that of the named one.
        ([stat(5, 1, 65), stat(7, 6, 70), stat(6, 5, 60)], False),
        ([stat(5, 1, 51), stat(7, 5, 70)], False),
        ([stat(7, 5, 70)], False),
        # What cannot be, seen while processes came and went.
        ([stat(5, 1, 50), stat(7, 6, 50), stat(6, 7, 50)], False),
    ],
)
def test_below_is_what_can_be_followed_up_to_the_named_one(
    stats: list[Stat], expected: bool
) -> None:
    known = {found.pid: found for found in stats}
    assert (7 in at_or_below(ProcessKey(5, 50), known, above_each(known))) is expected


@pytest.mark.parametrize("found", [stat(1, 0, 1, "tini"), stat(700, 1, 5, "systemd")])
def test_a_process_that_takes_in_orphans_is_no_job(found: Stat) -> None:
    with pytest.raises(UsageProblem, match="not a training job") as problem:
        check_is_no_keeper(ProcessKey(found.pid, found.start_ticks), {found.pid: found})
    assert problem.value.next_step.endswith("monitor ps")
