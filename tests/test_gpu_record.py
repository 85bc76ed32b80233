"""The recorder against the fake library, and the recordings that it made of real GPUs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import fake_nvml
from tests.conftest import ROOT, TAPES
from tests.gpu.test_on_a_gpu import has_gpu
from tests.sources.test_gpus import gpu, play
from whyidle.monitor.core.metrics import Scope, metrics_of

RECORDER = ROOT / "benchmarks" / "gpu_record.py"
GPU_DATA = ROOT / "tests" / "data" / "gpu"
RECORDINGS = sorted(GPU_DATA.glob("*/nvml.tape"))
PHASES = ["idle", "matmul", "h2d", "two_processes"]
# Both tapes are played slowly, so that a whole test sees one stretch of them.
SLOW = 0.1
LARGEST_BYTES = 300_000


class Recorded(NamedTuple):
    source: Path
    folder: Path
    said: str

    @property
    def tape(self) -> Path:
        return self.folder / "nvml.tape"

    @property
    def document(self) -> Any:
        return json.loads((self.folder / "nvml.json").read_text())


def start(library: Path, source: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
    (folder / "pids").mkdir(parents=True)
    pids = {name: folder / "pids" / name for name in ("TRAINER", "NEIGHBOUR")}
    return subprocess.Popen(
        [sys.executable, RECORDER, "--out", folder / "out", "--pids", folder / "pids", *options],
        env={**os.environ, **fake_nvml.environment(library, source, **pids)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def slowed(tape: Path, folder: Path, speed: float) -> Path:
    """Copy a tape to be played at another speed."""
    copied = folder / f"slow-{tape.parent.name}-{tape.name}"
    first, _, rest = tape.read_text().partition("\n")
    copied.write_text(f"{first}\nset speed {speed}\n{rest}")
    return copied


@pytest.fixture(scope="module")
def recorded(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """What the recorder makes of four tapes, recorded side by side."""
    folder = tmp_path_factory.mktemp("recorded")
    sources = {name: TAPES / f"{name}.tape" for name in ("ampere", "no_permission", "sentinels")}
    # Twice as fast: then its stretches of two and four seconds pass while the loads run.
    sources["one_gpu"] = folder / "one_gpu.tape"
    neighbour = "proc 0 $NEIGHBOUR 0-inf memory=1000000000 sm=2 mem=1\n"
    sources["one_gpu"].write_text(
        f"{(TAPES / 'one_gpu.tape').read_text()}\nset speed 2\n{neighbour}"
    )
    running = {
        name: start(
            library,
            source,
            folder / name,
            "--allow-idle",
            "--hz=5",
            f"--seconds-per-phase={3 if name == 'one_gpu' else 0.5}",
        )
        for name, source in sources.items()
    }
    done = {name: process.communicate(timeout=90) for name, process in running.items()}
    found = {}
    for name, (said, errors) in done.items():
        assert running[name].returncode == 0, errors
        (made,) = (folder / name / "out").glob("*/nvml.tape")
        found[name] = Recorded(sources[name], made.parent, said)
    return found


def stall(made: Recorded) -> tuple[float, float]:
    """Return when the recording shows a stall while loads ran, and a moment of training near it."""
    phases = {p["name"]: p for p in made.document["phases"]}
    first, last = phases["idle"]["end"] + 0.3, phases["h2d"]["end"]
    lines = [x for x in made.tape.read_text().splitlines() if x.startswith("track 0 utilization.g")]
    points = [point.split(":") for line in lines for point in line.split()[3:]]
    start = next(float(t) for t, v in points if v == "8" and first < float(t) < last - 0.7)
    return start, start + (1.9 if start + 2.4 < last else -0.9)


@pytest.mark.parametrize("stalled", [True, False])
def test_a_recording_plays_as_its_source_did(
    recorded: dict[str, Recorded], library: Path, tmp_path: Path, *, stalled: bool
) -> None:
    made = recorded["one_gpu"]
    pids = {"trainer": 4711, "neighbour": 4712}
    start, training = stall(made)
    moment = start + 0.3 if stalled else training
    # The source stalls at its fourth second, and was recorded at twice its speed.
    moments = {made.source: (4 + 2 * (moment - start), 2 * SLOW), made.tape: (moment, SLOW)}
    ticks_of = []
    for tape, (moment, speed) in moments.items():
        epoch = time.monotonic() - moment / speed
        slow = slowed(tape, tmp_path, speed)
        text = slow.read_text().replace("\nset speed 2\n", "\n")
        slow.write_text(text)
        env = fake_nvml.environment(library, slow, epoch=epoch, **pids)
        ticks_of.append(gpu(play(env, reads=4, between=0.25)))
    source, again = ticks_of
    assert (source["values"]["utilisation_ratio"] < 0.1) == stalled
    assert again["values"].keys() == source["values"].keys()
    assert again["unknown"] == source["unknown"]
    for column, value in source["values"].items():
        assert again["values"][column] == pytest.approx(value, rel=0.1, abs=0.005), column
    # The neighbour came late to the recording, and is in the source from its beginning.
    both = source["processes"]
    assert again["processes"] in ({"4711": both["4711"]}, both)


def test_each_load_is_on_the_tape_while_it_ran(recorded: dict[str, Recorded]) -> None:
    made = recorded["one_gpu"]
    lines = [x.split() for x in made.tape.read_text().splitlines() if x.startswith("proc 0")]
    seen = {
        name: [float(t) for words in lines if words[2] == name for t in words[3].split("-")]
        for name in ("$TRAINER", "$NEIGHBOUR")
    }
    phases = {p["name"]: p for p in made.document["phases"]}
    # Half a second early at most: a point stands at the beginning of its tick. Late by what a busy
    # machine takes to show a new process, but within the phase that the process was there for.
    for name, arrival, phase in [
        ("$TRAINER", "matmul_start", "matmul"),
        ("$NEIGHBOUR", "two_processes_start", "two_processes"),
    ]:
        assert phases[arrival]["start"] - 0.5 <= min(seen[name]) < phases[phase]["end"]
    assert {tuple(words[4:]) for words in lines if words[2] == "$NEIGHBOUR"} == {
        ("memory=1000000000", "sm=2", "mem=1")
    }


@pytest.mark.parametrize("name", ["ampere", "no_permission", "sentinels"])
def test_what_a_source_cannot_report_its_recording_cannot_either(
    recorded: dict[str, Recorded], library: Path, name: str
) -> None:
    made = recorded[name]
    source, again = (
        gpu(play(fake_nvml.environment(library, tape, trainer=4711, neighbour=4712)))
        for tape in (made.source, made.tape)
    )
    assert again["unknown"] == source["unknown"]
    steady = set(source["values"]) - {"energy_joules"}
    assert {c: again["values"][c] for c in steady} == {c: source["values"][c] for c in steady}
    assert again["processes_unknown"] == source["processes_unknown"]


def test_the_document_shows_phases_and_what_each_call_cost(recorded: dict[str, Recorded]) -> None:
    document = recorded["one_gpu"].document
    assert (document["model"], document["driver"]) == ("NVIDIA H200", "580.82.07")
    assert [p["name"] for p in document["phases"] if p["name"] in PHASES] == PHASES
    ends = [p["end"] for p in document["phases"]]
    assert ends == sorted(ends)
    fields = document["functions"]["nvmlDeviceGetFieldValues"]
    assert fields["asked_by"] == ["probe"]
    # One in each tick, but for those in which the machine did other work.
    assert 4 <= len(fields["us"]["matmul"]) <= 18
    assert 0 < min(fields["us"]["matmul"]) <= fields["median_us"]
    missing = recorded["no_permission"].document["functions"]["nvmlGpmSampleGet"]
    assert missing["errors"] == {"4": sum(map(len, missing["us"].values()))}


def test_the_slow_call_is_measured_and_not_on_the_tape(recorded: dict[str, Recorded]) -> None:
    document = recorded["one_gpu"].document
    assert "nvmlDeviceGetPcieThroughput" not in document["functions"]
    costs = [f for f in document["claims"] if "PcieThroughput" in f["claim"]]
    assert [f["holds"] for f in costs] == [True, True]


def test_a_recording_without_load_says_so_everywhere(recorded: dict[str, Recorded]) -> None:
    made = recorded["one_gpu"]
    if made.document["loaded"]:
        pytest.skip("a framework here sees a GPU")
    assert "NO LOAD" in made.said
    assert "without any load" in made.tape.read_text()
    loads = [p["load"] for p in made.document["phases"] if p["name"] in PHASES]
    assert loads == [None] * len(PHASES)
    assert made.folder.name == "nvidia-h200"
    assert made.document["loaded"] is False


def test_a_recording_names_nobody(recorded: dict[str, Recorded]) -> None:
    made = recorded["ampere"]
    written = made.tape.read_text() + json.dumps(made.document)
    for name in ("GPU-00000000-0000-4000-8000-0000000000a1", "1560000000000", str(made.folder)):
        assert name not in written
    assert set(re.findall(r"^proc 0 (\S+)", written, re.MULTILINE)) == {"$TRAINER"}


def test_without_a_load_it_refuses(library: Path, tmp_path: Path) -> None:
    recorder = start(library, TAPES / "one_gpu.tape", tmp_path)
    _, said = recorder.communicate(timeout=90)
    if recorder.returncode == 0:
        pytest.skip("a framework here sees a GPU")
    assert recorder.returncode == 2
    assert "torch does not see" in said
    assert "--allow-idle" in said


def test_the_fake_is_never_recorded_among_the_real(library: Path) -> None:
    env = os.environ | fake_nvml.environment(library, TAPES / "one_gpu.tape", trainer=4711)
    done = subprocess.run([sys.executable, RECORDER, "--allow-idle"], env=env, check=False)
    assert done.returncode == 2


@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
def test_without_a_driver_it_says_so_in_one_sentence() -> None:
    command = [sys.executable, RECORDER, "--out", "/nonexistent"]
    env = {**os.environ, "LD_LIBRARY_PATH": "/nonexistent"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    what, next_step = done.stderr.splitlines()
    assert "so nothing is known" in what
    assert next_step


def test_an_interrupted_recorder_ends_its_load_and_writes_nothing(
    library: Path, tmp_path: Path
) -> None:
    options = ("--allow-idle", "--hz=5", "--seconds-per-phase=1")
    with start(library, TAPES / "one_gpu.tape", tmp_path, *options) as recorder:
        pid = wait_for_pid(tmp_path / "pids" / "TRAINER")
        recorder.send_signal(signal.SIGINT)
        _, said = recorder.communicate(timeout=30)
    assert recorder.returncode == 130
    assert "nothing was written" in said
    assert not Path(f"/proc/{pid}").exists()
    assert not (tmp_path / "out").exists()


def wait_for_pid(path: Path) -> int:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, "the load did not start"
        time.sleep(0.01)
    return int(path.read_text())


@pytest.mark.skipif(not RECORDINGS, reason="no recording of a real GPU yet: tests/data/gpu/README")
@pytest.mark.parametrize("tape", RECORDINGS, ids=lambda p: p.parent.name)
def test_a_real_recording_plays_through_the_probe(library: Path, tape: Path) -> None:
    document = json.loads((tape.parent / "nvml.json").read_text())
    assert document["loaded"], "only recordings with a load belong here"
    assert tape.stat().st_size < LARGEST_BYTES
    phases = {p["name"]: p for p in document["phases"]}
    ticks_of = {}
    for name in PHASES:
        epoch = time.monotonic() - (phases[name]["start"] + phases[name]["end"]) / 2
        env = fake_nvml.environment(library, tape, epoch=epoch, trainer=4711, neighbour=4712)
        ticks = play(env, reads=3, between=0.5)
        ticks_of[name] = gpu(ticks)
        for metric in metrics_of(Scope.GPU):
            known, unknown = (gpu(ticks, tick=0)[kind] for kind in ("values", "unknown"))
            assert (metric.column in known) != (metric.column in unknown), metric.column
    used = {name: t["values"]["utilisation_ratio"] for name, t in ticks_of.items()}
    assert used["idle"] < 0.5 < used["matmul"]
