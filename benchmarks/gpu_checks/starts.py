"""The frameworks come up and see the GPU; a first start is slow, and stands beside a second."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from typing import Any

from gpu_checks.jobs import FRAMEWORKS, check_device, check_installed
from gpu_checks.room import Failed, Part, Room, environment, tail

SECONDS = 60
PATIENCE = 120.0
LOOK = {
    "torch": """
import json, torch
gpu = torch.cuda.is_available()
torch.ones(8, device="cuda" if gpu else "cpu").sum().item()
name = torch.cuda.get_device_name() if gpu else "cpu"
print(json.dumps({"device": "cuda" if gpu else "cpu", "name": name, "cuda": torch.version.cuda}))
""",
    "jax": """
import json, jax
jax.numpy.ones(8).sum().block_until_ready()
print(json.dumps({"device": jax.default_backend(), "name": jax.local_devices()[0].device_kind}))
""",
}


def run(room: Room) -> None:
    """Start each framework twice: what comes after this meets a warm machine."""
    for framework in FRAMEWORKS:
        room.do(framework, partial(_start, room, framework))


def _start(room: Room, framework: str, part: Part) -> None:
    check_installed(framework)
    took = []
    told: dict[str, Any] = {}
    for _ in range(1 if room.quick else 2):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", LOOK[framework]],
            env=environment(XLA_PYTHON_CLIENT_PREALLOCATE="false"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise Failed(f"it does not start: {tail(done.stderr)}")
        took.append(round(time.monotonic() - began, 1))
        told = json.loads(done.stdout.splitlines()[-1])
    part.figures = {**told, "start_s": took}
    check_device(told, gpu=room.gpu)
