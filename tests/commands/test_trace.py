"""trace: the account on the screen and as JSON, and what is said of files that are no traces."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.tracefiles import kineto, xplane
from tests.conftest import Monitor, command, lines
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.slices import Slice

BUDGET = {"total_ns": int, "steps": int, "slices": dict, "details": dict}
FIGURES = (
    "span_ns", "busy_ns", "idle_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "copy_ns",
    "exposed_copy_ns", "kernels", "comm_kernels", "copies",
)  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "train[red].json"
    path.write_text(json.dumps(kineto()))
    return path


def of(monitor: Monitor, path: Path, *options: str) -> dict[str, Any]:
    done = monitor("trace", path, "--json", *options)
    # What is cut off says so by a code of its own.
    assert done.returncode in {0, Exit.PARTIAL}, done.stderr
    assert done.stderr == ""
    (answer,) = lines(done.stdout)
    return answer


def check_budget(budget: dict[str, Any]) -> None:
    for key, kind in BUDGET.items():
        assert isinstance(budget[key], kind), key
    assert list(budget["slices"]) == list(Slice)
    assert sum(budget["slices"].values()) == budget["total_ns"]
    for name, parts in budget["details"].items():
        assert sum(parts.values()) == budget["slices"][name]


def check_contract(answer: dict[str, Any]) -> None:
    """Hold an answer against the contract of the design."""
    assert answer["format"] in {"kineto", "xplane", "nsys"}
    assert all(isinstance(text, str) for text in answer["warnings"])
    assert answer["steps"]["source"] in {"markers", "repetition", "none"}
    assert isinstance(answer["steps"]["count"], int)
    check_budget(answer["budget"])
    for device in answer["devices"]:
        assert device["kind"] in {"gpu", "cpu", "tpu"}
        assert isinstance(device["index"], str)
        assert all(isinstance(device[name], int) for name in FIGURES)
        assert device["busy_ns"] + device["idle_ns"] == device["span_ns"]
        assert {k for k in ("host", "pid", "rank") if device[k] is None} <= set(device["unknown"])
        check_budget(device["budget"])
    for name, ns in answer["budget"]["slices"].items():
        assert ns == sum(d["budget"]["slices"][name] for d in answer["devices"])
    for kernel in answer["top_kernels"]:
        assert isinstance(kernel["name"], str)
        assert isinstance(kernel["count"], int)
        assert isinstance(kernel["total_ns"], int)


def test_the_contract_of_a_kineto_trace(monitor: Monitor, trace: Path) -> None:
    answer = of(monitor, trace)
    check_contract(answer)
    assert answer["format"] == "kineto"
    assert answer["steps"]["count"] == 4
    assert answer["steps"]["source"] == "markers"
    (device,) = answer["devices"]
    assert device["index"] == "0"
    assert device["rank"] == 1
    assert device["compute_ns"] == 4 * 200_500
    assert device["copy_ns"] == 4 * 40_000
    assert device["span_ns"] == 3_285_000
    assert answer["budget"]["slices"]["compute"] == 4 * 200_500
    assert answer["budget"]["slices"]["idle_input"] > 3 * 500_000
    assert answer["top_kernels"][0]["name"] == "volta_sgemm_128x64_nt"


def test_the_contract_of_an_xplane_trace(monitor: Monitor, tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb.gz"
    path.write_bytes(gzip.compress(xplane()))
    answer = of(monitor, path)
    check_contract(answer)
    assert answer["format"] == "xplane"
    assert answer["devices"][0]["span_ns"] == 25_000
    assert answer["devices"][0]["compute_ns"] == 10_000


def test_the_screen_says_what_the_json_says(monitor: Monitor, trace: Path) -> None:
    done = monitor("trace", trace)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("train[red].json: PyTorch (Kineto), GPU 0, rank 1")
    assert "idle: input" in done.stdout
    said = " ".join(done.stdout.split())
    assert "as monitor diagnose judges it, the GPU computes " in said
    assert "Most of the rest: input" in said
    assert "volta_sgemm_128x64_nt" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    none = monitor("trace", trace, "--top", "0").stdout
    assert "volta_sgemm_128x64_nt" not in none


def test_colours_are_the_terminals_choice(monitor: Monitor, trace: Path) -> None:
    coloured = monitor("trace", trace, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert "\x1b[" in coloured.stdout
    bare = monitor("trace", trace, env={"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"})
    assert "38;" not in bare.stdout


def test_a_terminal_that_knows_few_letters(monitor: Monitor, trace: Path) -> None:
    done = monitor("trace", trace, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "?" not in done.stdout
    assert "# compute" in done.stdout


def write(path: Path, name: str, body: bytes | None) -> Path:
    found = path / name
    if body is None:
        found.mkdir()
    else:
        found.write_bytes(body)
    return found


WHOLE = json.dumps(kineto()).encode()


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("folder", None, "folder"),
        ("empty.json", b"", "is empty"),
        ("notes.txt", b"these are my notes", "is no trace that we read"),
        ("other.json", b'{"a": [1, 2]}', "is no trace that we read"),
        ("none.json.gz", gzip.compress(b"", mtime=0), "gzip"),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "a picture"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(
    monitor: Monitor, tmp_path: Path, name: str, body: bytes | None, said: str
) -> None:
    done = monitor("trace", write(tmp_path, name, body))
    assert done.returncode == Exit.USAGE
    assert done.stdout == ""
    assert said in done.stderr
    assert "defect" not in done.stderr
    assert len(done.stderr.splitlines()) == 2  # and what to do


def test_a_file_that_is_not_there(monitor: Monitor, tmp_path: Path) -> None:
    done = monitor("trace", tmp_path / "missing.json")
    assert done.returncode == Exit.USAGE
    assert "missing.json" in done.stderr
    assert monitor("trace").returncode == Exit.USAGE


def test_a_pipe_does_not_hang(monitor: Monitor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert monitor("trace", tmp_path / "fifo").returncode == Exit.USAGE


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("cut.json", WHOLE[: len(WHOLE) * 2 // 3]),
        ("cut.json.gz", gzip.compress(WHOLE)[:-30]),
    ],
)
def test_of_a_file_that_is_cut_off_the_rest_is_shown(
    monitor: Monitor, tmp_path: Path, name: str, body: bytes
) -> None:
    path = write(tmp_path, name, body)
    answer = of(monitor, path)
    check_contract(answer)
    assert answer["warnings"]
    assert answer["devices"][0]["kernels"] >= 1
    shown = monitor("trace", path)
    assert (shown.returncode, shown.stdout[:2]) == (Exit.PARTIAL, "! ")


def test_a_number_that_names_a_file_is_a_file(monitor: Monitor, tmp_path: Path) -> None:
    (tmp_path / "4242").write_bytes(WHOLE)
    assert monitor("trace", "4242", cwd=tmp_path).returncode == 0


def test_a_file_named_view_is_reached_by_its_path(monitor: Monitor, tmp_path: Path) -> None:
    (tmp_path / "view").write_bytes(WHOLE)
    assert "PyTorch" in monitor("trace", "./view", cwd=tmp_path).stdout
    assert "needs FILE" in monitor("trace", "view", cwd=tmp_path).stderr


def test_both_forms_are_in_the_help(monitor: Monitor) -> None:
    output = monitor("trace", "--help").stdout
    assert "monitor trace [OPTIONS] FILE...|DIR|PID\n" in output
    assert "monitor trace view FILE" in output
    assert "monitor trace view [OPTIONS] FILE|RUN\n" in monitor("trace", "view", "-h").stdout


def test_a_name_may_be_any_bytes(monitor: Monitor, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\x1b[31m.json")
    path.write_bytes(WHOLE)
    check_contract(of(monitor, path))
    done = monitor("trace", path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\x1b" not in monitor("trace", f"{path}x").stderr


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("$M trace $T | head -c 0; exit ${PIPESTATUS[0]}", 0, ""),
        ("$M trace $T --json | head -c 0; exit ${PIPESTATUS[0]}", 0, ""),
        ("$M trace $T >/dev/full", Exit.STORAGE, "output cannot be written"),
        ("$M trace $T >&-", 0, ""),
    ],
)
def test_output_that_nobody_reads(
    state: Path, trace: Path, text: str, code: int, said: str
) -> None:
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(state), "T": str(trace)}
    text = text.replace("$M", shlex.join(command()))
    done = subprocess.run(
        ["bash", "-c", text], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_is_no_traceback(trace: Path) -> None:
    source = (
        "import os, signal, sys\n"
        "from whyidle.monitor.traces import analysis\n"
        "from whyidle.monitor.cli import main\n"
        "analysis.analyse = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['monitor', 'trace', sys.argv[1]]\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, trace], capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.INTERRUPTED
    assert done.stderr.strip() == ""


def test_a_trace_is_kept_with_a_run_and_looked_at_again(
    monitor: Monitor, job: subprocess.Popen[str], trace: Path, tmp_path: Path
) -> None:
    nothing = monitor("trace", trace, "--run", "last")
    assert nothing.returncode == Exit.STORAGE
    monitor("attach", job.pid, "--for", "0.2", "--label", "mine")
    unknown = monitor("trace", tmp_path / "missing", "--run", "other")
    assert unknown.returncode == Exit.USAGE
    assert "There is no recording 'other'" in unknown.stderr
    none = monitor("trace", "view", "mine")
    assert none.returncode == Exit.USAGE
    assert "No trace is kept with run 1" in none.stderr

    done = monitor("trace", trace.name, "--run", "mine", "--json", cwd=trace.parent)
    assert done.returncode == 0, done.stderr
    check_contract(lines(done.stdout)[0])
    assert "kept with run 1" in done.stderr
    again = monitor("trace", "view", "mine", "--perfetto", tmp_path / "out.json")
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    answer = lines(monitor("runs", "mine", "--json").stdout)[0]
    (kept,) = answer["traces"]
    assert (kept["file"], kept["format"]) == (trace.name, "kineto")
    shown = monitor("runs", "mine").stdout
    assert f"kept trace: {trace.name}; see it with: monitor trace view 1" in shown
    trace.unlink()
    assert f"kept trace: {trace.name} (its file is gone)\n" in monitor("runs", "mine").stdout
