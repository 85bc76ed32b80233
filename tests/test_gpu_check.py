"""gpu_check.py where there is no GPU: its quick look, and how it keeps what was done."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_keep
from benchmarks.gpu import page, profilers, recordings, runner
from tests.conftest import ROOT
from tests.gpu import kept
from tests.gpu.test_on_a_gpu import CHECK, has_gpu
from tests.traces.real import path_of
from whyidle.monitor.demo.pairs import made_in

PAIR = "retracing_jax"
without_a_gpu = pytest.mark.skipif(has_gpu(), reason="there is a GPU here")


def start(out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHECK), "--quick", "--out", str(out), "--only", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three quick looks, side by side."""
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("looked")
    asked = {name: (name,) for name in ("attach_jax", "jax_trace")} | {
        "pairs": ("pairs", "--parts", PAIR)
    }
    running = {name: start(folder / name, *words) for name, words in asked.items()}
    # All end before one fails: what runs on takes the cores of the tests that follow.
    said = {name: process.communicate()[0] for name, process in running.items()}
    for name, process in running.items():
        if process.returncode:
            # Its budgets are of seconds, and the other tests take the cores: once more, alone.
            again = start(folder / name, *asked[name])
            then, _ = again.communicate()
            assert again.returncode == 0, said[name] + then
    return {name: folder / name for name in asked}


def checks(out: Path) -> dict[str, Any]:
    checks = json.loads((out / "report.json").read_text())["checks"]
    return {check["name"]: check for check in checks}


def parts_of(looked: dict[str, Path], name: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = checks(looked[name])[name]["parts"]
    return parts


def test_a_job_that_is_entered_loses_what_it_loses_alone(looked: dict[str, Path]) -> None:
    parts = {part["name"]: part for part in parts_of(looked, "attach_jax")}
    alone, entered = parts["jax: alone"]["figures"], parts["jax: lost the same"]["figures"]
    assert entered["first"] == alone["first"]
    assert entered["wrong"] == 0 < entered["rounds"]
    cycles = parts["jax: in and out"]["figures"]
    assert cycles["job: cycles"] == 3
    assert cycles["job: not entered"] == 0 < cycles["stop, median"]
    assert parts["jax: monitor attach"]["figures"]["attached"] == "agent"


def test_our_times_are_the_profilers_own(looked: dict[str, Path]) -> None:
    (part,) = (part for part in parts_of(looked, "jax_trace") if part["name"] == "time by name")
    assert part["verdict"] == "ok", part["why"]
    assert part["figures"]["ours_ns"] == part["figures"]["theirs_ns"] > 0


# From Python 3.12 on jaxlib warns so of its own type, and aborts where that is an error.
@pytest.mark.filterwarnings("ignore:builtin type event_stats has no __module__:DeprecationWarning")
@pytest.mark.parametrize("name", ["jax_gemm_mi300", "jax_conv_8gpu_mi300"])
def test_our_times_of_a_real_gpu_are_those_of_jaxs_own_reader(name: str, tmp_path: Path) -> None:
    profiler = pytest.importorskip("jax.profiler")
    path = tmp_path / "real.xplane.pb"
    path.write_bytes(gzip.decompress(path_of(name).read_bytes()))
    planes = profiler.ProfileData.from_file(str(path)).planes
    theirs, ours = profilers.of_jax(planes, gpu=True), profilers.ours(path, gpu=True)
    assert theirs.keys() == ours.keys()
    assert all(profilers.alike(ours[name], theirs[name], counted=True) for name in theirs)


@without_a_gpu
def test_what_only_a_gpu_can_answer_is_left_out_with_the_reason(looked: dict[str, Path]) -> None:
    (part,) = (part for part in parts_of(looked, "jax_trace") if part["name"] == "claims")
    assert (part["verdict"], part["why"]) == ("left out", "there is no GPU here to ask")
    assert part["figures"]["asked"] > 5


def test_a_pair_is_found_measured_and_recorded(looked: dict[str, Path]) -> None:
    (part,) = checks(looked["pairs"])["pairs"]["parts"]
    figures = part["figures"]
    assert (part["name"], figures["fault"]) == (PAIR, "retracing")
    assert PAIR.startswith(figures["before"]["top"])
    assert figures["measured"][1] > 1
    folder = looked["pairs"] / "pairs"
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.gz")]
    assert {f"windows/{PAIR}_{side}.json.gz" for side in ("before", "after")} <= {*names}
    assert {file["path"] for file in part["files"]} == {*names}
    # On a busy machine one may be missing, with its reason.
    assert len(figures["unknown_traces"]) + sum("traces/" in name for name in names) == 2


def test_what_is_brought_back_is_kept_and_replayed(looked: dict[str, Path], tmp_path: Path) -> None:
    for out in looked.values():
        model, _ = gpu_keep.keep(out, tmp_path)
    kept.check_files(model)
    kept.check_findings(model)
    for trace in model.glob("traces/*.gz"):
        kept.check_trace(trace)
    index = kept.index(model)
    assert [run["command"].split()[:3] for run in index["runs"]] == [
        ["gpu_check.py", "--quick", "--only"]
    ] * len(looked)
    findings = json.loads((model / gpu_keep.FINDINGS).read_text())
    found = [each.split()[0] for each in findings[f"windows/{PAIR}_before.json.gz"]]
    # Beside other work the cores may be what costs the most.
    assert "retracing" in found[: 1 + ("cpu_starved" in found)]
    shown = page.page(tmp_path)
    assert f"| {PAIR} | {found[0]}, " in shown
    assert "| jax | 3 | 0 | 0 | 0 | " in shown


def test_a_later_run_takes_the_place_of_an_earlier_one(
    looked: dict[str, Path], tmp_path: Path
) -> None:
    for _ in range(2):
        model, written = gpu_keep.keep(looked["pairs"], tmp_path)
    kept.check_files(model)
    index = kept.index(model)
    assert len(index["runs"]) == 1
    assert [part["name"] for run in index["runs"] for _, part in gpu_keep.parts(run)] == [PAIR]
    assert written


def test_a_quick_look_is_never_kept_among_the_real(looked: dict[str, Path]) -> None:
    with pytest.raises(gpu_keep.Refused):
        gpu_keep.keep(looked["pairs"], gpu_keep.RECORDINGS)


@without_a_gpu
def test_without_a_gpu_it_says_what_can_be_done(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CHECK), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "--quick" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_page_is_made_of_what_is_recorded() -> None:
    check = [sys.executable, "-m", "cogapp", "--check", "--verbosity=0", "docs/gpu.md"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\nType: .venv/bin/cog -r docs/gpu.md"


def test_a_page_without_recordings_has_no_figure(tmp_path: Path) -> None:
    assert page.page(tmp_path).startswith("Nothing is recorded yet")


def test_a_trace_that_is_too_large_is_taken_again_for_less_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def taken(_pid: int, seconds: float) -> Path | None:
        asked.append(seconds)
        path = tmp_path / f"{len(asked)}.json"
        path.write_bytes(bytes(round(seconds * 1000)))
        # At first its framework is not there yet.
        return path if len(asked) > 1 else None

    monkeypatch.setattr(recordings, "taken", taken)
    with subprocess.Popen(["sleep", "600"]) as job_that_runs:
        text, name = recordings.until_small(job_that_runs, Path.read_bytes, 100)
        job_that_runs.kill()
    assert len(text) <= 100
    assert name == f"{len(asked)}.json"
    assert asked == sorted(asked, reverse=True)
    with subprocess.Popen(["true"]) as job_that_ended:
        job_that_ended.wait()
        assert recordings.until_small(job_that_ended, Path.read_bytes, 100) is None


# How the checks are run --------------------------------------------------------------------------
def ran(folder: Path, seconds: float, script: str) -> runner.Result:
    check = runner.Result("a check")
    until = time.monotonic() + seconds
    runner.run(check, folder, until, ["sh", "-c", script, str(folder)])
    return check


# Reports one part as done, then works on for ever; "$0" is its folder.
HANGING = """
printf '[{"name": "one", "verdict": "ok", "why": null, "seconds": 1, "figures": {}, \
"files": []}]' > "$0/parts.json"
echo kept > "$0/kept"
exec sleep 600
"""


def test_a_check_that_is_cut_off_keeps_what_it_has_done(tmp_path: Path) -> None:
    check = ran(tmp_path / "hangs", 2.0, HANGING)
    assert check.verdict == "failed"
    assert check.why is not None
    assert check.why.startswith("cut off")
    assert [part.name for part in check.parts] == ["one"]
    assert (tmp_path / "hangs" / "kept").exists()


def test_a_check_that_crashes_costs_itself_alone(tmp_path: Path) -> None:
    assert ran(tmp_path / "crashes", 30.0, "kill -SEGV $$").why == "it ended with code -11"


def test_a_check_without_time_is_left_out(tmp_path: Path) -> None:
    assert ran(tmp_path / "late", 0.0, "exit 9").verdict == "left out"


def test_one_part_that_fails_lets_the_next_ones_go_on(tmp_path: Path) -> None:
    def wrong(*_: Any) -> None:
        raise runner.Failed("it is wrong")

    def absent(*_: Any) -> None:
        raise runner.LeftOut("it is not here")

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    made = runner.Check(tmp_path, tmp_path, time.monotonic() + 60, gpu=False)
    for name, work in {"a": wrong, "b": absent, "c": broken, "d": lambda *_: None}.items():
        made.do(name, work)
    parts = {part.name: (part.verdict, part.why) for part in runner.parts_of(tmp_path)}
    assert parts["a"] == ("failed", "it is wrong")
    assert parts["b"] == ("left out", "it is not here")
    assert parts["c"][0] == "failed"
    assert "ZeroDivisionError" in parts["c"][1]
    assert parts["d"] == ("ok", None)


def test_a_trace_keeps_its_length_and_loses_its_places() -> None:
    trace = f"\x0a\x20{ROOT}/demo_workloads/x.py\x12 {ROOT}/whyidle/monitor/a.py".encode()
    blanked = recordings.blanked(trace)
    assert len(blanked) == len(trace)
    assert str(ROOT).encode() not in blanked
    assert b"/demo_workloads/x.py" in blanked
    assert (
        recordings.without_places(f"{ROOT}/demo_workloads/x.py".encode())
        == b"/job/demo_workloads/x.py"
    )
    made = f"{made_in()}/demo_workloads/x.py".encode()
    assert recordings.without_places(made) == b"/job/demo_workloads/x.py"


def test_a_wheel_that_came_along_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "brought-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("brought_along.py", "THERE = True")
    monkeypatch.setenv("PYTHONPATH", "")
    runner.prepare(tmp_path / "work", tmp_path)
    look = "import brought_along, whyidle.monitor.cli as us; print(us.__file__)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(ROOT / "whyidle/monitor/cli.py")
