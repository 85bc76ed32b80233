"""trace PID --server PORT: the trace of a job's own profiler server, and the job left alone."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.test_trace import check_contract
from tests.conftest import Monitor, command, lines, start_job
from tests.tracing.test_profiler_server import jax_job, needs_grpc, needs_jax, port_of, tell
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.store.stored_traces import Kept

# Who goes into the job, or has no gRPC, in the words of the one that is left out.
WITHOUT = """
import sys
from whyidle.monitor.attach import ladder
def never(*_, **__): raise SystemExit("it goes into the job")
ladder.enter = never
if sys.argv[1] == "grpc": sys.modules["grpc"] = None
del sys.argv[1]
from whyidle.monitor.cli import main
main()
"""
# Listens, and says what it was started with to each caller.
LISTENER = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
print(server.getsockname()[1], flush=True)
while True:
    peer, _ = server.accept()
    if len(sys.argv) > 1:
        peer.sendall(sys.argv[1].encode())
        peer.close()
    else:
        print("called", flush=True)
"""


def without(what: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", WITHOUT, what, "trace", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def kept_files(state: Path) -> list[Path]:
    return sorted((state / "traces").glob("*"))


@needs_jax
def test_a_job_with_a_server_gives_a_trace_of_a_second_at_most_and_is_not_entered(
    state: Path, tmp_path: Path
) -> None:
    folder, said = tmp_path / "job", tmp_path / "said"
    folder.mkdir()
    with jax_job(folder, said) as (job, port):
        done = without("agent", job.pid, "--server", port, "--seconds", "10", "--json")
        assert done.returncode == 0, done.stderr
        (answer,) = lines(done.stdout)
        check_contract(answer)
        assert answer["format"] == "xplane"
        assert answer["events"] > 0
        assert not any("python_tracer_level" in text for text in answer["warnings"])
        assert said.read_text() == ""
        # Nothing of it is left: the job takes one of its own.
        tell(job, "start")
        busy = without("agent", job.pid, "--server", port)
        tell(job, "stop")
    assert busy.returncode == Exit.USAGE
    assert busy.stderr == (
        f"monitor: No trace of process {job.pid} could be taken: another trace of the job is being"
        " taken, by the job itself or another program.\n"
        f"  Without its server: monitor trace {job.pid}\n"
    )
    assert len(list(folder.rglob("*.xplane.pb"))) == 1
    # That is jaxlib's own behaviour, for any client.
    assert said.read_text().count("\n") <= 1
    (file,) = kept_files(state)
    with Kept.open(state / "whyidle.db") as kept:
        (trace,) = kept.traces()
    assert trace.path == file
    assert trace.taken is not None
    assert trace.taken["how"] == "the job's own profiler server"
    assert 900 <= trace.taken["ended_ms"] - trace.taken["began_ms"] <= 1000


@pytest.fixture
def listening(state: Path, request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """A process that listens, and its port."""
    with start_job(LISTENER, *getattr(request, "param", ())) as job:
        assert job.stdout is not None
        yield job.pid, int(job.stdout.readline())
        job.kill()


@needs_grpc
def test_a_port_on_which_the_job_does_not_listen_is_a_sentence(listening: tuple[int, int]) -> None:
    pid, port = listening
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        other = port_of(elsewhere)
        done = without("agent", pid, "--server", other)
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert done.returncode == Exit.USAGE
    assert f"listens on no port {other} of this machine; it listens on {port}." in done.stderr
    assert f"monitor trace {pid} --server {port}" in done.stderr


def test_a_job_that_listens_nowhere_is_told_how_to(
    monitor: Monitor, job: subprocess.Popen[str]
) -> None:
    done = monitor("trace", job.pid, "--server", "9999")
    assert done.returncode == Exit.USAGE
    assert "listens on no port 9999" in done.stderr
    assert "jax.profiler.start_server(9999)" in done.stderr


@needs_grpc
@pytest.mark.parametrize("listening", [("HTTP/1.1 400 Bad Request\r\n\r\n",)], indirect=True)
def test_a_server_of_something_else_is_a_sentence(state: Path, listening: tuple[int, int]) -> None:
    pid, port = listening
    done = without("agent", pid, "--server", port)
    assert done.returncode == Exit.USAGE
    assert "what listens there does not speak gRPC" in done.stderr
    assert kept_files(state) == []


def test_without_grpc_the_line_that_installs_it_is_named(listening: tuple[int, int]) -> None:
    pid, port = listening
    done = without("grpc", pid, "--server", port)
    assert done.returncode == Exit.USAGE
    assert to_install("server") in done.stderr


@needs_grpc
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, 0)]
)
def test_however_it_ends_it_leaves_nothing_behind(
    state: Path, number: signal.Signals, code: int
) -> None:
    with start_job(LISTENER) as job:
        assert job.stdout is not None
        port = job.stdout.readline().strip()
        with subprocess.Popen(
            command("trace", job.pid, "--server", port), stderr=subprocess.PIPE, text=True
        ) as process:
            assert job.stdout.readline() == "called\n"
            (client,) = children(process.pid)
            process.send_signal(number)
            _, said = process.communicate(timeout=30)
        assert process.returncode == code
        assert "defect" not in said
        assert not Path(f"/proc/{client}").exists()
        assert kept_files(state) == []
        assert job.poll() is None
        job.kill()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
