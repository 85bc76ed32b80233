"""A job of two ranks with PyTorch's debug server on, that stands: as its server tells it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.commands.test_ranks import TORCHRUN, free_port
from whyidle.monitor.app import windows
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.rules import job_stands_still

pytest.importorskip("torch.distributed.debug")
# The server's own pages need it.
pytest.importorskip("tabulate")

JOB = """
import os, sys, time
from pathlib import Path
import torch, torch.distributed as dist
from torch.distributed.debug import start_debug_server, stop_debug_server

port, until = int(sys.argv[1]), Path(sys.argv[2])
dist.init_process_group("gloo")
start_debug_server(port)
for _ in range(30):
    dist.all_reduce(torch.ones(1024, 2))
if dist.get_rank() == 0:
    print("stands", flush=True)
    while not until.exists():
        time.sleep(0.1)
dist.all_reduce(torch.ones(1024, 2))
# With its server still on, a process of 2.13 aborts as it ends, whether or not anybody has asked.
if dist.get_rank() == 0:
    stop_debug_server()
os._exit(0)
"""


def test_its_server_names_the_missing_rank_and_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (job_stands_still, windows):
        monkeypatch.setattr(module, "A_MINUTE_S", 0.0)
    script, until, port = tmp_path / "train.py", tmp_path / "until", free_port()
    script.write_text(JOB)
    command = [*TORCHRUN, str(script), str(port), str(until)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "stands\n":
            assert line, "the job has ended"
        window = windows.of(f"http://localhost:{port}")
    finally:
        until.touch()
        process.communicate(timeout=30)
    assert process.returncode == 0
    (found,) = (x.found for x in diagnose(window).findings if x.rule.id == "job_stands_still")
    assert found.title == ("Stuck: rank 0 has started nothing after gloo:all_reduce #30")
    assert [(Path(x.file).name, x.line) for x in found.where[:1]] == [("train.py", 15)]
    said = {each.name: each.value for each in found.evidence}
    assert said["ranks that were looked at"] == "2 of 2"
    assert said["rank 1 started last"] == "gloo:all_reduce #31 of Float 1024x2"
