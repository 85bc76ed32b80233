"""trace view: XProf for real, where it is installed; and files for Perfetto."""

from __future__ import annotations

import gzip
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.commands.tracefiles import kineto, xplane
from tests.conftest import Monitor, command
from tests.store.conftest import Store
from whyidle.monitor.app import xprof
from whyidle.monitor.app.files import writing
from whyidle.monitor.core.errors import Exit, Problem, StorageProblem, UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.traces.opening import identify

needs_xprof = pytest.mark.skipif(
    find_spec("tensorboard") is None or find_spec("xprof") is None,
    reason="the extra xprof is not installed: pip install -c constraints.txt -e '.[xprof]'",
)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder of a user's, with a trace as it is and one compressed."""
    folder = tmp_path / "my traces"
    folder.mkdir()
    (folder / "plain.xplane.pb").write_bytes(xplane())
    (folder / "packed.xplane.pb.gz").write_bytes(gzip.compress(xplane()))
    (folder / "trace.json").write_text(json.dumps(kineto()))
    return folder


def get(link: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(link, timeout=30) as answer:
        body = answer.read()
    return json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)


def listeners(port: int) -> set[str]:
    """The addresses, as the kernel writes them, that listen on a port."""
    return set(listening(port).values())


def listening(port: int) -> dict[str, str]:
    """Each socket that listens on a port, by its number, and its address."""
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
    ]
    return {
        row[9]: row[1].split(":")[0]
        for row in rows
        if row[3] == "0A" and row[1].endswith(f":{port:04X}")
    }


@needs_xprof
@pytest.mark.parametrize(
    ("name", "number", "code"),
    [
        ("plain.xplane.pb", signal.SIGINT, Exit.INTERRUPTED),
        ("packed.xplane.pb.gz", signal.SIGTERM, Exit.OK),
    ],
)
def test_xprof_lists_the_trace_until_it_is_ended(
    traces: Path, tmp_path: Path, name: str, number: int, code: int
) -> None:
    before = sorted(traces.iterdir())
    room = tmp_path / "tmp"
    room.mkdir()
    with subprocess.Popen(
        command("trace", "view", traces / name, "--no-browser"),
        env={**os.environ, "TMPDIR": str(room)}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        base = line.split()[-1].removesuffix("/#profile")
        port = int(base.rpartition(":")[2])
        run = name.partition(".")[0]
        assert get(f"{base}{xprof.RUNS}") == [run]
        assert "overview_page" in get(f"{base}/data/plugin/profile/run_tools?run={run}")
        assert listeners(port) == {"0100007F"}
        process.send_signal(number)
        assert process.wait() == code
    assert list(room.iterdir()) == []
    assert sorted(traces.iterdir()) == before
    assert listeners(port) == set()


@needs_xprof
def test_a_port_that_is_taken_is_a_sentence(monitor: Monitor, traces: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = monitor("trace", "view", traces / "plain.xplane.pb", "--port", port)
    assert done.returncode == Exit.USAGE
    assert f"port {port}" in done.stderr
    assert "Leave out --port" in done.stderr


def test_without_the_extra_it_says_what_to_type(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xprof, "find_spec", lambda _name: None)
    with pytest.raises(UsageProblem, match=re.escape(to_install("xprof"))):
        xprof.xprof(identify(traces / "plain.xplane.pb"), None, print)


def test_a_server_that_does_not_start_is_a_sentence(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xprof, "find_spec", lambda _name: True)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Problem, match="TensorBoard did not start: it said nothing"):
        xprof.xprof(identify(traces / "plain.xplane.pb"), None, print)


def test_half_a_file_is_not_for_xprof(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xprof, "find_spec", lambda _name: True)
    packed = traces / "packed.xplane.pb.gz"
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(UsageProblem, match="XProf needs the whole file"):
        xprof.xprof(identify(packed), None, print)


def test_another_profilers_file_is_for_perfetto(monitor: Monitor, traces: Path) -> None:
    done = monitor("trace", "view", traces / "trace.json")
    assert done.returncode == Exit.USAGE
    assert "XProf opens only XPlane files" in done.stderr
    assert "--perfetto" in done.stderr


@pytest.mark.parametrize("name", ["plain.xplane.pb", "packed.xplane.pb.gz", "trace.json"])
@pytest.mark.parametrize("out", ["out.json", "out.json.gz"])
def test_any_trace_is_written_for_perfetto(
    monitor: Monitor, traces: Path, tmp_path: Path, name: str, out: str
) -> None:
    path = tmp_path / out
    done = monitor("trace", "view", traces / name, "--perfetto", path)
    assert done.returncode == 0, done.stderr
    assert "ui.perfetto.dev" in done.stdout
    body = path.read_bytes()
    answer = json.loads(gzip.decompress(body) if out.endswith(".gz") else body)
    names = {
        e["args"]["name"] for e in answer["traceEvents"] if e["ph"] == "M" and "name" in e["args"]
    }
    assert "why idle" in names
    assert any(track.startswith("GPU 0") for track in names)


def test_a_file_is_never_overwritten_unasked(
    monitor: Monitor, traces: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    out.write_text("mine")
    arguments = ("trace", "view", traces / "trace.json", "--perfetto", out)
    refused = monitor(*arguments)
    assert refused.returncode == Exit.USAGE
    assert "will" not in refused.stdout
    assert "--force" in refused.stderr
    assert out.read_text() == "mine"
    assert monitor(*arguments, "--force").returncode == 0
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize("out", ["none/out.json", "/dev/null"])
def test_a_place_that_cannot_be_written_is_a_sentence(
    monitor: Monitor, traces: Path, tmp_path: Path, out: str
) -> None:
    done = monitor("trace", "view", traces / "trace.json", "--perfetto", tmp_path / out, "--force")
    assert done.returncode in {Exit.STORAGE, Exit.USAGE}
    assert "defect" not in done.stderr
    assert Path("/dev/null").is_char_device()


def test_a_trace_that_cannot_be_read_leaves_nothing_behind(
    monitor: Monitor, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("no trace")
    assert monitor("trace", "view", bad, "--perfetto", tmp_path / "o.json").returncode == Exit.USAGE
    assert [p.name for p in tmp_path.iterdir() if p.name != "state"] == ["bad.json"]


def test_a_wrong_file_creates_nothing(monitor: Monitor, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    before = folder.stat().st_mtime_ns
    missing = monitor("trace", "view", tmp_path / "none.json", "--perfetto", folder / "o.json")
    assert missing.returncode != 0
    assert "cannot be written" not in missing.stderr
    assert "none.json" in missing.stderr
    assert folder.stat().st_mtime_ns == before


def test_the_trace_itself_is_never_overwritten(monitor: Monitor, tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data" / "traces" / "kineto" / "cpu_plain.json.gz"
    trace = tmp_path / "a.json.gz"
    trace.write_bytes(data.read_bytes())
    same = monitor("trace", "view", trace, "--perfetto", trace, "--force")
    assert same.returncode == 2
    assert "is the trace itself" in same.stderr
    assert trace.read_bytes() == data.read_bytes()


def test_an_error_of_the_writer_is_not_the_outputs(tmp_path: Path) -> None:
    def fail() -> None:
        with writing(tmp_path / "out.json", force=False):
            raise OSError(5, "the input's")

    with pytest.raises(OSError, match="the input's"):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_a_full_disk_is_the_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    part = str(tmp_path / "part")
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: (full, part))

    def write() -> None:
        with writing(tmp_path / name, force=False) as text:
            for i in range(100_000):
                text.write(f"{i}")

    with pytest.raises(StorageProblem, match=r"cannot be written: No space left") as caught:
        write()
    assert caught.value.code == Exit.STORAGE
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(full)
    assert list(tmp_path.iterdir()) == []


def test_a_number_means_a_recording_and_it_is_said_that_there_is_none(
    monitor: Monitor, state: Path
) -> None:
    for _ in ("no store yet", "a store without that run"):
        done = monitor("trace", "view", "999")
        assert done.returncode == Exit.USAGE
        assert "There is no recording 999" in done.stderr
        assert "monitor runs" in done.stderr
        Store(state / DATABASE).writer.close()


def test_a_file_of_any_name_is_found_again(monitor: Monitor, state: Path, tmp_path: Path) -> None:
    store = Store(state / DATABASE)
    store.writer.end_run(store.run, "done")
    store.writer.close()
    file = os.path.join(os.fsencode(tmp_path), b"tr\xe4ce\\.json")  # noqa: PTH118  bytes
    with open(file, "wb") as out:  # noqa: PTH123  bytes
        out.write(json.dumps(kineto()).encode())
    kept = monitor("trace", os.fsdecode(file), "--run", store.run)
    assert kept.returncode == 0, kept.stderr
    done = monitor("trace", "view", store.run, "--perfetto", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"]


KILLED = """
import sys, time
from pathlib import Path
from whyidle.monitor.app import xprof
sys.executable = sys.argv[1]
with xprof._server(Path(sys.argv[2]), 1) as child:
    print(child.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that we are gone")
def test_the_server_goes_even_if_we_are_killed(tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.write_text("#!/bin/sh\nexec sleep 60\n")
    server.chmod(0o700)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, server, tmp_path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        # Readable when the process has ended, whatever its parent is by then.
        watched = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    assert select.select([watched], [], [], 10)[0] == [watched]
    os.close(watched)
