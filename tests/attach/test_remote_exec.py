from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attach.targets import (
    ASLEEP,
    BUSY,
    Job,
    goes_on,
    mapped,
    python314,
    running,
    target_of,
    tracer_of,
    wait_until_asleep,
)
from tests.attach.test_refusals import NOBODY, as_root
from whyidle.agents import wire
from whyidle.monitor.attach import remote_exec
from whyidle.monitor.attach.answers import NotEntered
from whyidle.monitor.attach.debug_offsets import Unfit, runtime_of
from whyidle.monitor.attach.staged_script import StagedScript
from whyidle.monitor.processes.target import Target

# It may run in the middle of a print of the job's own.
SAY = """\
import os, _thread
on_main = _thread.get_ident() == __import__("threading").main_thread().ident
os.write(1, f"inside {__name__}, on the main thread: {on_main}\\n".encode())
"""
HEARD = "inside __main__, on the main thread: False\n"


def folder_of(target: Target) -> Path:
    name = wire.folder_name(target.uid or 0)
    return Path(f"/proc/{target.pid}/root{wire.FOLDERS[0]}/{name}")


def laid(target: Target) -> bool:
    return script_is_there(target, str(target.own_pid))


def script_is_there(target: Target, name: str) -> bool:
    return any((folder_of(target) / f"{name}{end}").exists() for end in (".py", ".text"))


def refusal_of(target: Target, source: str, timeout: float = 0.1) -> str:
    with pytest.raises(NotEntered) as refused:
        remote_exec.enter(target, source, timeout)
    return refused.value.refusal.what


def errors(job: Job) -> str:
    """End the job, and return what it complained of."""
    job.kill()
    return job.communicate()[1]


@contextlib.contextmanager
def running314(source: str, *options: str) -> Iterator[tuple[Job, Target]]:
    with running(source, [*python314(), *options]) as job:
        if source == ASLEEP:
            wait_until_asleep(job)
        yield job, target_of(job.pid)


def test_a_busy_job_runs_the_script_without_a_stop_and_keeps_nothing() -> None:
    with running314(BUSY) as (job, target):
        assert target.python == (3, 14)
        before = mapped(job.pid)
        assert remote_exec.refusal(target) is None
        for _ in range(5):
            assert remote_exec.enter(target, SAY) == ()
            assert job.stdout is not None
            while (line := job.stdout.readline()) != HEARD:
                assert line.strip().isdecimal()
            goes_on(job)
        assert not laid(target)
        assert tracer_of(job.pid) == "0"
        assert mapped(job.pid) == before
        assert errors(job) == ""


def test_a_job_that_checks_no_flag_by_itself_is_prompted() -> None:
    # No objects that the collector counts, no second thread.
    quiet = "import os\nprint('ready', flush=True)\nn = 0\nwhile True: n ^= 1\n"
    with running314(quiet) as (job, target):
        assert remote_exec.enter(target, SAY) == ()
        assert job.stdout is not None
        assert job.stdout.readline() == HEARD
        assert errors(job) == ""


def test_a_job_that_sleeps_outside_of_python_is_not_waited_for_and_never_runs_it() -> None:
    with running314(ASLEEP) as (job, target):
        assert remote_exec.refusal(target) is None
        assert "did not come by within 0.1 s" in refusal_of(target, SAY)
        assert not laid(target)
        # Nothing of the request is left: it can be made anew, also by others.
        assert remote_exec.refusal(target) is None
        out, err = job.communicate("\n")
        assert (out, err) == ("end\n", "")


def test_a_request_that_outlives_the_monitor_runs_and_takes_its_file_away() -> None:
    with running314(f"{ASLEEP}sys.stdin.readline()") as (job, target):
        wait_until_asleep(job)
        text = StagedScript.stage(target, "1.text", lambda _: SAY)
        assert text is not None
        staged = StagedScript.stage(
            target, "1.py", lambda path: remote_exec.script(text.path, path)
        )
        assert staged is not None
        with runtime_of(target, write=True) as runtime:
            runtime.request(staged.path)
        staged.close()
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write("\n")
        job.stdin.flush()
        assert {job.stdout.readline(), job.stdout.readline()} == {HEARD, "end\n"}
        assert job.communicate("\n") == ("", "")
        assert not script_is_there(target, "1")


def test_a_job_that_has_read_the_request_may_take_its_time() -> None:
    # However short we wait, no job is left looking for a script that is gone.
    with running314(BUSY) as (job, target):
        for timeout in (0.0, 0.001, 0.002, 0.005) * 25:
            with contextlib.suppress(NotEntered):
                remote_exec.enter(target, "0", timeout)
        goes_on(job)
        assert errors(job) == ""


def test_a_script_that_fails_does_not_end_the_job() -> None:
    with running314(BUSY) as (job, target):
        remote_exec.enter(target, "raise SystemExit(3)")
        goes_on(job)
        remote_exec.enter(target, SAY)


def test_a_request_of_somebody_else_is_left_alone() -> None:
    with running314(ASLEEP) as (job, target):
        with runtime_of(target, write=True) as runtime:
            runtime.request("/tmp/theirs.py")
        refusal = remote_exec.refusal(target)
        assert refusal is not None
        assert "Another program" in refusal.what
        assert "Another program" in refusal_of(target, SAY)
        with runtime_of(target, write=True) as runtime:
            assert not runtime.take_back("/tmp/ours.py")
            assert runtime.pending()
            assert runtime.take_back("/tmp/theirs.py")
        assert job.communicate("\n") == ("end\n", "")


def test_a_job_that_forbids_it() -> None:
    with running314(BUSY, "-X", "disable-remote-debug") as (job, target):
        refusal = remote_exec.refusal(target)
        assert refusal is not None
        assert "remote debugging disabled" in refusal.what
        assert refusal_of(target, SAY) == refusal.what
        goes_on(job)


def test_a_pid_that_another_process_has_by_now() -> None:
    with running314(BUSY) as (job, _):
        stranger = target_of(job.pid, start_ticks=1)
        with pytest.raises(Unfit, match="has ended"), runtime_of(stranger, write=True):
            pass


def test_older_pythons_have_no_such_method() -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("this one has")
    refusal = remote_exec.refusal(target_of(os.getpid()))
    assert refusal is not None
    assert "this method came with 3.14" in refusal.what


def test_what_does_not_look_like_the_table_is_not_written_to() -> None:
    with pytest.raises(Unfit), runtime_of(target_of(os.getpid()), write=False):
        pass


@contextlib.contextmanager
def of_nobody(folder: str = "/") -> Iterator[Target]:
    become = f"import os; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    with running(become + BUSY) as job:
        yield target_of(job.pid)


@as_root
def test_a_script_belongs_to_the_jobs_user_alone() -> None:
    with of_nobody() as target:
        staged = StagedScript.stage(target, "7.py", lambda path: f"# {path}")
        assert staged is not None
        assert staged.path == f"/tmp/{wire.folder_name(NOBODY)}/7.py"
        path = Path(staged.path)
        for found, mode in ((path.stat(), 0o600), (path.parent.stat(), 0o700)):
            assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY)
            assert stat.S_IMODE(found.st_mode) == mode
        assert path.read_text() == f"# {path}"
        assert staged.is_there()
        staged.remove()
        staged.close()
        assert not path.exists()
        path.parent.rmdir()


@as_root
@pytest.mark.parametrize("trick", ["foreign", "open", "link", "file"])
def test_a_folder_that_somebody_else_put_there_is_not_used(trick: str) -> None:
    with of_nobody() as target:
        first = folder_of(target)
        real = Path(f"/tmp/{wire.folder_name(NOBODY)}")
        assert not real.exists()
        try:
            if trick == "link":
                real.symlink_to("/var/tmp")
            elif trick == "file":
                real.touch()
            else:
                real.mkdir(0o700)
                if trick == "open":
                    os.chown(real, NOBODY, NOBODY)
                    real.chmod(0o777)
            staged = StagedScript.stage(target, "7.py", lambda _: "text")
            assert staged is None or not staged.path.startswith(str(first))
            if staged is not None:
                assert not staged.path.startswith("/tmp/")
                staged.remove()
                staged.close()
                Path(staged.path).parent.rmdir()
        finally:
            if real.is_dir() and not real.is_symlink():
                real.rmdir()
            else:
                real.unlink()


@as_root
def test_a_file_that_waits_under_the_name_is_replaced_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    with of_nobody() as target:
        first = StagedScript.stage(target, "7.py", lambda _: "first")
        assert first is not None
        path = Path(first.path)
        path.unlink()
        path.symlink_to(precious)
        second = StagedScript.stage(target, "7.py", lambda _: "second")
        assert second is not None
        assert (path.read_text(), path.is_symlink()) == ("second", False)
        assert precious.read_text() == "kept"
        second.remove()
        assert not first.is_there()
        first.close()
        second.close()
        path.parent.rmdir()
