"""A recorder killed at full speed: every tick that was acknowledged is stored."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.conftest import START_MS
from whyidle.monitor.core.metrics import GPU_POWER, Scope
from whyidle.monitor.store import Key, Reader, Writer
from whyidle.monitor.store.identity import start_ticks
from whyidle.monitor.store.recovery import DIED

# Writes at full speed and prints each tick after it was acknowledged. A subject that cannot be
# added while others hold the lock is asked for again, as a recorder does with its next tick.
RECORDER = f"""
import sys
from pathlib import Path
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.store import NewRun, Writer

def add_gpu(index):
    while True:
        try:
            return writer.add_gpu(run, idx=index)
        except StorageProblem:
            pass

writer = Writer.open(Path(sys.argv[1]))
run = writer.begin_run(NewRun(started_ms={START_MS}))
gpus = [add_gpu(str(i)) for i in range(8)]
for i in range(int(sys.argv[2])):
    values = {{metric: float(i) for metric in metrics_of(Scope.GPU)}}
    tick = Tick({START_MS} + i * 1000, {{Scope.GPU: {{gpu: Reading(values) for gpu in gpus}}}})
    if writer.append(run, tick):
        print(i, flush=True)
    writer.maintain({START_MS} / 1000 + i)
writer.end_run(run, "done")
writer.close()
"""


def start(path: Path, ticks: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RECORDER, str(path), str(ticks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("seed", range(20))
def test_no_acknowledged_tick_is_lost(path: Path, seed: int) -> None:
    recorder = start(path, 1_000_000)
    assert recorder.stdout is not None
    with recorder:
        # The moment differs from run to run, roll-ups and checkpoints included.
        for _ in range(random.Random(seed).randint(1, 400)):
            assert recorder.stdout.readline()
        recorder.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in recorder.stdout.read().split() if line.isdecimal()]
    last = max(acknowledged, default=0)

    Writer.open(path).close()
    with Reader.open(path) as reader:
        assert reader.check() is None
        run = reader.find("last")
        assert run.end_reason == DIED
        summary = reader.summary(run.id)
    with closing(sqlite3.connect(path)) as connection, connection:
        column = GPU_POWER.column
        rows = connection.execute(f"SELECT subject, ts_ms, {column} FROM gpu_sample").fetchall()
    connection.close()
    kept = (run.ended_ms or 0) - START_MS
    # One more than printed may be there: killed between the commit and the print.
    count = kept // 1000 + 1
    assert count >= last + 1
    assert sorted(rows) == [
        (gpu, START_MS + i * 1000, float(i)) for gpu in range(1, 9) for i in range(count)
    ]
    for gpu in range(1, 9):
        found = summary[Key(Scope.GPU, gpu, GPU_POWER)]
        assert (found.n, found.most) == (count, float(count - 1))


def test_recorders_at_full_speed_share_a_file(path: Path) -> None:
    recorders = [start(path, 500) for _ in range(3)]
    for recorder in recorders:
        recorder.communicate()
        # Some ticks had to wait for locks of other processes; none may be missing in the end.
        assert recorder.returncode == 0
    with Reader.open(path) as reader:
        assert reader.check() is None
        for run in reader.runs():
            assert run.end_reason == "done"
            assert {found.n for found in reader.summary(run.id).values()} == {500}


def test_a_recorder_that_nobody_waited_for_is_dead(path: Path) -> None:
    recorder = start(path, 1_000_000)
    assert recorder.stdout is not None
    with recorder:
        assert recorder.stdout.readline()
        recorder.send_signal(signal.SIGKILL)
        # From here on it is a zombie, as a child of a program that does not wait for it.
        os.waitid(os.P_PID, recorder.pid, os.WEXITED | os.WNOWAIT)
        Writer.open(path).close()
        with Reader.open(path) as reader:
            assert reader.find("last").end_reason == DIED


@pytest.mark.parametrize(("state", "ticks"), [("S", 777), ("T", 777), ("Z", None), ("X", None)])
def test_a_process_that_has_ended_has_no_start(
    tmp_path: Path, state: str, ticks: int | None
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"7 (a) Z (b) {state} {' '.join(['1'] * 18)} 777 0 0\n")
    assert start_ticks(7, tmp_path) == ticks
