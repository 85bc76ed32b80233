"""The checks of gpu_check.py, as a quick look, on the GPU of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from whyidle.monitor.sources.nvml import Nvml

CHECK = ROOT / "benchmarks" / "gpu_check.py"
CHECKS = ("record", "attach", "torch_trace", "jax_trace", "cost", "pairs")


def has_gpu() -> bool:
    nvml = Nvml()
    try:
        nvml.open()
    except Exception:  # noqa: BLE001  no driver, no library, no GPU: all the same here
        return False
    return bool(nvml.get("nvmlDeviceGetCount"))


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_gpu(), reason="there is no NVIDIA GPU here"),
]


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_holds_on_this_gpu(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(CHECK), "--quick", "--only", name, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (check,) = json.loads((tmp_path / "report.json").read_text())["checks"]
    failed = [part for part in check["parts"] if part["verdict"] == "failed"]
    assert not failed, done.stdout
    assert check["verdict"] in {"ok", "left out"}, check["why"]
