"""Many injections into jobs that check themselves; long version: benchmarks/attach_stress.py."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time

import pytest

from tests.attach import victims
from tests.attach.victims import running
from whyidle.monitor.attach.ptrace.refused import Refused
from whyidle.monitor.demo.pairs import runner

pytestmark = [
    pytest.mark.ptrace,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only"),
]
JOBS = {
    "busy": (victims.BUSY, 60),
    "sleeping": (victims.SLEEPING, 40),
    "threads": (victims.THREADS, 40),
    "numpy": (victims.NUMPY, 60),
    "torch": (victims.TORCH, 40),
    "jax": (victims.JAX, 40),
    "tensorflow": (victims.TENSORFLOW, 40),
}
# Their losses are compared with those of a job that was never entered, too.
TRAINING = {"torch", "jax", "tensorflow"}
KILLS = 20


def needs(name: str) -> None:
    if name in TRAINING and runner(name) is None:
        pytest.skip(f"{name} is not installed")


def python_of(name: str) -> str:
    """Return the Python that runs such a job: TensorFlow has an environment of its own."""
    return (runner(name) if name in TRAINING else None) or sys.executable


@pytest.mark.parametrize("name", JOBS)
def test_many_injections_change_no_result(name: str) -> None:
    needs(name)
    source, injections = JOBS[name]
    with running(source, python=python_of(name)) as victim:
        assert all(victim.enter().done for _ in range(injections))
        result = victim.end()
    assert result["wrong"] == 0
    assert result["rounds"] > 0
    if name in TRAINING:
        with running(source, python=python_of(name)) as undisturbed:
            assert undisturbed.end()["first"] == result["first"]


@pytest.mark.parametrize("name", ["busy", "threads"])
def test_a_tracer_killed_at_any_moment_harms_nothing(name: str) -> None:
    source, _ = JOBS[name]
    with running(source) as victim:
        command = [sys.executable, "-c", victims.FOREVER, *map(str, victim.key)]
        for _ in range(KILLS // 2):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tracer:
                assert tracer.stdout is not None
                assert tracer.stdout.readline() == "ready\n"
                time.sleep(random.random() * 0.05)  # the moment is what is tested here
                tracer.kill()
        # Killed just before its call, a tracer leaves it open whether one comes: for good a job may
        # then be met at fewer places, where one like this seldom is.
        with contextlib.suppress(Refused):
            assert victim.enter().done
        assert victim.end()["wrong"] == 0
