"""Traces from the profiler server that a JAX job itself opened."""

from __future__ import annotations

import importlib.util
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.link.conftest import FS, key_of
from tests.traces.xplane_bytes import block, fields, number
from tests.tracing.conftest import until
from whyidle.monitor.core.errors import Problem, TargetGone, UsageProblem
from whyidle.monitor.tracing import profiler_client, profiler_server
from whyidle.monitor.tracing.profiler_server import ByServer, checked_port, listening
from whyidle.monitor.tracing.space import Space
from whyidle.monitor.tracing.taken import Taken

needs_grpc = pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None, reason="grpcio is not installed"
)
needs_jax = pytest.mark.skipif(
    None in (importlib.util.find_spec("grpc"), importlib.util.find_spec("jax")),
    reason="jax or grpcio is not installed",
)
# Works until its input ends. Each line of it begins or ends a trace of the job's own.
JOB = """
import os, sys, tempfile, threading
import jax, jax.numpy as np
jax.profiler.start_server(int(sys.argv[1]))
step = jax.jit(lambda x: (x @ x).sum())
x = np.ones((64, 64))
step(x).block_until_ready()
def obey():
    for line in sys.stdin:
        if line == "start\\n": jax.profiler.start_trace(tempfile.mkdtemp(dir=sys.argv[2]))
        else: jax.profiler.stop_trace()
        print("done", flush=True)
    os._exit(0)
threading.Thread(target=obey, daemon=True).start()
print("ready", flush=True)
while True:
    step(x).block_until_ready()
"""


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def jax_job(folder: Path, said: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = a_free_port()
    with (
        said.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", JOB, str(port), folder],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as job,
    ):
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        yield job, port
        job.communicate()
        assert job.returncode == 0


def tell(job: subprocess.Popen[str], what: str) -> None:
    assert job.stdin is not None
    assert job.stdout is not None
    job.stdin.write(f"{what}\n")
    job.stdin.flush()
    assert job.stdout.readline() == "done\n"


def taken(way: ByServer, seconds: float = 0.25) -> Taken | str:
    assert way.ask(seconds) is None
    return until(way.poll, 60)


@needs_jax
def test_a_jobs_server_gives_a_trace_and_the_job_notices_nothing(
    tmp_path: Path, space: Space
) -> None:
    folder, said = tmp_path / "job", tmp_path / "said"
    folder.mkdir()
    with jax_job(folder, said) as (job, port):
        way = ByServer(key_of(job.pid), port, space, "pid-1")
        found = taken(way)
        assert isinstance(found, Taken), found
        # Once more: the server is as it was.
        assert isinstance(taken(way), Taken)
        # And the job's own trace after ours.
        tell(job, "start")
        tell(job, "stop")
        assert len(list(folder.rglob("*.xplane.pb"))) == 1
    assert found.framework == "jax"
    assert 0.2e9 < found.ended_ns - found.began_ns <= 0.25e9
    assert b"/host:CPU" in found.path.read_bytes()
    assert found.path.stat().st_mode & 0o777 == 0o600
    assert said.read_text() == ""


@needs_jax
def test_while_the_job_takes_a_trace_itself_ours_is_refused_in_words(
    tmp_path: Path, space: Space
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    with jax_job(folder, tmp_path / "said") as (job, port):
        tell(job, "start")
        found = taken(ByServer(key_of(job.pid), port, space, "pid-1"))
        tell(job, "stop")
    assert found == "another trace of the job is being taken, by the job itself or another program"
    assert len(list(folder.rglob("*.xplane.pb"))) == 1
    assert not space.files()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def test_a_port_of_another_process_is_never_spoken_to(listener: socket.socket) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        with pytest.raises(UsageProblem, match="listens on no port") as refused:
            checked_port(stranger.pid, port_of(listener), FS)
        stranger.kill()
    assert "start_server" in refused.value.next_step
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_without_a_port_those_of_the_job_are_listed(listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = sorted((port_of(listener), port_of(other)))
        assert set(ports) <= set(listening(os.getpid(), FS))
        with pytest.raises(UsageProblem) as refused:
            checked_port(os.getpid(), None, FS)
    assert all(str(port) in refused.value.what for port in ports)
    assert f"monitor trace {os.getpid()} --server PORT" in refused.value.next_step


def test_only_what_is_reached_on_this_machine_counts() -> None:
    with socket.socket() as bound, socket.create_server(("127.0.0.2", 0)) as elsewhere:
        bound.bind(("127.0.0.1", 0))
        found = listening(os.getpid(), FS)
        assert port_of(bound) not in found
        assert port_of(elsewhere) not in found


def test_a_server_on_all_addresses_is_found() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as found:
        assert checked_port(os.getpid(), port_of(found), FS) == port_of(found)


def test_a_process_that_is_gone_is_a_sentence() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with pytest.raises(TargetGone):
        checked_port(gone.pid, 1, FS)


@needs_grpc
def test_what_does_not_speak_the_protocol_is_reported(space: Space) -> None:
    source = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        peer, _ = server.accept()
        peer.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
        peer.close()
"""
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        port = int(job.stdout.readline())
        found = taken(ByServer(key_of(job.pid), port, space, "pid-1"))
        job.kill()
    assert found == "what listens there does not speak gRPC"
    assert not space.files()


@needs_grpc
def test_a_server_that_never_answers_is_given_up(
    listener: socket.socket, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_server, "PATIENCE_SECONDS", 0.0)
    way = ByServer(key_of(os.getpid()), port_of(listener), space, "pid-1")
    assert "answer in time" in str(taken(way, 0.1))
    assert not space.files()


@needs_grpc
def test_who_stops_asking_leaves_nothing(listener: socket.socket, space: Space) -> None:
    way = ByServer(key_of(os.getpid()), port_of(listener), space, "pid-1")
    assert way.ask(5) is None
    assert "on its way" in str(way.ask(5))
    way.close()
    assert way.poll() is None
    assert not space.files()


@needs_grpc
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os; os.abort()", "ended with code -6"),
        ("print('half a trace')", "said nothing of the trace"),
        ("import sys; sys.exit('no\\x1b[2J')", "no [2J"),
    ],
)
def test_a_client_that_fails_is_reported(
    listener: socket.socket, space: Space, source: str, said: str
) -> None:
    command = (sys.executable, "-c", source)
    way = ByServer(key_of(os.getpid()), port_of(listener), space, "pid-1", command)
    assert said in str(taken(way))
    assert not space.files()


def test_a_job_on_a_gpu_is_not_asked_since_its_own_thread_would_end_the_trace(
    listener: socket.socket, space: Space, tmp_path: Path
) -> None:
    library = tmp_path / "libcuda.so.1"
    library.write_bytes(bytes(4096))
    with (
        library.open() as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ),
        pytest.raises(Problem, match="CUDA_ERROR_LAUNCH_FAILED") as refused,
    ):
        ByServer(key_of(os.getpid()), port_of(listener), space, "pid-1")
    assert refused.value.next_step.endswith(f"monitor trace {os.getpid()}")


def test_without_grpc_it_says_what_to_install(
    listener: socket.socket, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_server, "find_spec", lambda _: None)
    with pytest.raises(UsageProblem) as refused:
        ByServer(key_of(os.getpid()), port_of(listener), space, "pid-1")
    assert "[server]" in refused.value.next_step


def test_the_request_is_as_the_protocol_has_it() -> None:
    sent = dict(fields(profiler_client.request(300)))
    options = dict(fields(sent[4]))
    assert (sent[1], sent[9], options[9]) == (300, 1, 300)
    # No calls of Python: they would slow the job down.
    assert options[4] == 0
    # An old server would write a file: here it cannot.
    assert sent[5] == b"/dev/null"


@pytest.mark.parametrize(
    "answer", [b"", number(7, 1), b"\xff" * 20, block(8, b"whole")[:-2], number(8, 1)]
)
def test_an_answer_without_a_trace_is_none(answer: bytes) -> None:
    assert profiler_client.trace_of(answer) is None


def test_the_trace_is_taken_out_of_the_answer() -> None:
    assert profiler_client.trace_of(number(7, 0) + block(8, b"whole")) == b"whole"
