import os
import signal
import subprocess

from tests.conftest import start_job
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat
from whyidle.monitor.processes.tree import RESCAN_SECONDS, Tree

FAMILY = """
import subprocess, sys
code = "import time; print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
print(child.pid, flush=True)
input()
"""


def key_of(pid: int) -> ProcessKey:
    stat = ProcFs().stat(pid)
    assert stat is not None
    return ProcessKey(pid, stat.start_ticks)


def family() -> tuple[subprocess.Popen[str], int]:
    parent = start_job(FAMILY)
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def test_children_belong_to_the_job_also_when_their_parent_ends_first() -> None:
    parent, child = family()
    with parent:
        tree = Tree(key_of(parent.pid))
        assert {k.pid for k in tree.refresh(0.0)} == {parent.pid, child}
        parent.kill()
        parent.wait()
        assert {k.pid for k in tree.refresh(0.1)} == {child}
        # Also after a whole rescan: the orphan now has another parent.
        assert {k.pid for k in tree.refresh(RESCAN_SECONDS + 1)} == {child}
        handle = os.pidfd_open(child)
        os.kill(child, 9)
        os.waitid(os.P_PIDFD, handle, os.WEXITED) if _is_ours(child) else _gone(child)
        os.close(handle)
        assert tree.refresh(2 * RESCAN_SECONDS + 2) == {}


def _is_ours(pid: int) -> bool:
    stat = ProcFs().stat(pid)
    return stat is not None and stat.parent == os.getpid()


def _gone(pid: int) -> None:
    while (stat := ProcFs().stat(pid)) is not None and stat.state not in "ZX":
        pass


def test_another_process_with_the_same_pid_is_not_the_job() -> None:
    with start_job() as job:
        key = key_of(job.pid)
        assert Tree(ProcessKey(job.pid, key.start_ticks - 1)).refresh(0.0) == {}
        job.kill()


def test_a_zombie_is_no_live_process() -> None:
    with start_job("print('ready', flush=True)") as job:
        tree = Tree(key_of(job.pid))
        _gone(job.pid)
        assert tree.refresh(0.0) == {}


def test_only_new_pids_are_examined() -> None:
    class Counting(ProcFs):
        examined: list[int] = []  # noqa: RUF012

        def stat(self, pid: int) -> Stat | None:
            self.examined.append(pid)
            return super().stat(pid)

    parent, child = family()
    with parent:
        fs = Counting()
        tree = Tree(key_of(parent.pid), fs)
        tree.refresh(0.0)
        everybody = len(fs.examined)
        fs.examined.clear()
        tree.refresh(RESCAN_SECONDS)
        # The two members, and whatever else began meanwhile.
        assert {parent.pid, child} <= set(fs.examined)
        assert len(fs.examined) < everybody
        os.kill(child, 9)
        parent.kill()


def test_the_watcher_and_what_it_started_are_no_part_of_the_job() -> None:
    ours, parent = key_of(os.getpid()), key_of(os.getppid())
    with start_job() as job:
        assert ours not in Tree(parent).refresh(0.0)
        assert key_of(job.pid) not in Tree(parent).refresh(0.0)
        assert set(Tree(key_of(job.pid)).refresh(0.0)) == {key_of(job.pid)}
        job.kill()


def test_a_stopped_job_says_so() -> None:
    with start_job() as job:
        key = key_of(job.pid)
        job.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, job.pid, os.WSTOPPED)
        assert Tree(key).refresh(0.0)[key].state == "T"
        job.kill()


DOUBLE_FORK = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
reading, writing = os.pipe()
if (child := os.fork()) == 0:
    if sys.argv[1:] == ["session"]:
        os.setsid()
    if os.fork() == 0:
        os.write(writing, b"%d\\n" % os.getpid())
        sys.stdin.read()
        os._exit(0)
    os._exit(0)
os.waitpid(child, 0)
print(os.read(reading, 20).decode(), end="", flush=True)
sys.stdin.read()
"""


def grandchild_of(parent: subprocess.Popen[str]) -> int:
    """Have the job fork twice; its child has ended when the pid of its grandchild is known."""
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    return int(parent.stdout.readline())


def test_a_worker_whose_parent_ended_unseen_is_known_by_the_group_that_the_job_began() -> None:
    with start_job(DOUBLE_FORK, process_group=0) as parent:
        tree = Tree(key_of(parent.pid))
        assert {k.pid for k in tree.refresh(0.0)} == {parent.pid}
        worker = grandchild_of(parent)
        assert {k.pid for k in tree.refresh(RESCAN_SECONDS)} == {parent.pid, worker}
        # It stays when the process that began the group has ended.
        parent.kill()
        parent.wait()
        assert {k.pid for k in tree.refresh(2 * RESCAN_SECONDS)} <= {worker}


UNDER_A_SUPERVISOR = """
import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to this process
shell = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], process_group=0))"
sys.exit(subprocess.call([sys.executable, "-c", shell, sys.executable, "-c", sys.argv[1]]))
"""


class Elsewhere(ProcFs):
    """As it looks to a process that is no ancestor of the supervisor."""

    def link(self, path: str) -> str | None:
        return None if path == "self" else super().link(path)


def test_an_orphan_is_known_also_where_a_supervisor_in_its_session_takes_it_in() -> None:
    with start_job(UNDER_A_SUPERVISOR, DOUBLE_FORK) as supervisor:
        (shell,) = children_of(supervisor.pid)
        (job,) = children_of(shell)
        tree = Tree(key_of(job), Elsewhere())
        assert {k.pid for k in tree.refresh(0.0)} == {job}
        worker = grandchild_of(supervisor)
        assert children_of(supervisor.pid) == {shell, worker}
        assert {k.pid for k in tree.refresh(RESCAN_SECONDS)} == {job, worker}


def test_what_the_neighbour_starts_is_no_part_of_the_job_either() -> None:
    with (
        start_job(process_group=0) as job,
        start_job(FAMILY, process_group=job.pid) as neighbour,
    ):
        assert len(children_of(neighbour.pid)) == 1
        assert {k.pid for k in Tree(key_of(job.pid)).refresh(0.0)} == {job.pid}
        for child in children_of(neighbour.pid):
            os.kill(child, signal.SIGKILL)
        neighbour.kill()
        job.kill()


def children_of(pid: int) -> set[int]:
    fs = ProcFs()
    stats = (fs.stat(other) for other in fs.pids())
    return {s.pid for s in stats if s is not None and s.parent == pid}


def test_who_left_for_a_session_of_its_own_is_a_stranger() -> None:
    with start_job(DOUBLE_FORK, "session", process_group=0) as parent:
        tree = Tree(key_of(parent.pid))
        tree.refresh(0.0)
        grandchild_of(parent)
        assert {k.pid for k in tree.refresh(RESCAN_SECONDS)} == {parent.pid}


def test_who_reads_the_jobs_pipe_is_in_its_group_but_no_part_of_it() -> None:
    with start_job(process_group=0) as job, start_job(process_group=job.pid) as neighbour:
        assert {k.pid for k in Tree(key_of(job.pid)).refresh(0.0)} == {job.pid}
        neighbour.kill()
        job.kill()


def test_an_orphan_in_a_group_that_the_job_did_not_begin_is_a_stranger() -> None:
    with start_job(DOUBLE_FORK) as parent:
        tree = Tree(key_of(parent.pid))
        tree.refresh(0.0)
        grandchild_of(parent)
        assert {k.pid for k in tree.refresh(RESCAN_SECONDS)} == {parent.pid}
