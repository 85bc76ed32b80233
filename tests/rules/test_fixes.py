"""The code of every fix runs on the current releases: no advice that was never tried."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.conftest import ROOT
from whyidle.monitor import rules
from whyidle.monitor.demo import pairs

# Runs pieces of code one after the other, each in a namespace of its own, and says what came of it.
RUNNER = """
import json, sys, traceback
results = {}
for name, code in json.load(open(0)).items():
    try:
        exec(compile(code, name, "exec"), {"__name__": name})
        results[name] = None
    except BaseException:
        results[name] = traceback.format_exc()
print("\\n" + json.dumps(results))
"""
CASES = [
    (name, framework)
    for name, rule in rules.load().items()
    for framework, fix in rule.fixes.items()
    if fix.code
]
# Flux.jl and CUDA.jl cannot be had with the tests, and pages say so; the rest runs in a Julia.
NOT_RUN = {"flux"}
LIBRARY = {"pytorch": "torch"}
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "JAX_PLATFORMS": "cpu",
    "PATH": "/usr/bin:/bin",
    "OMP_NUM_THREADS": "1",
}


def around(name: str, framework: str) -> tuple[str, str]:
    """Return what a rule's test puts before and after the code of its fix."""
    test = importlib.import_module(f"tests.rules.test_{name}")
    fixes: dict[str, tuple[str, str]] = getattr(test, "FIXES", {})
    assert framework in fixes, f"FIXES of {test.__file__} has nothing for the fix of {framework}"
    return fixes[framework]


@cache
def ran(framework: str) -> dict[str, Any]:
    """Run the code of all fixes of one framework in one process."""
    pieces = {}
    for name, kind in CASES:
        if kind == framework:
            before, after = around(name, framework)
            pieces[name] = "\n".join((before, rules.load()[name].fixes[kind].code, after))
    done = subprocess.run(
        [pairs.runner(LIBRARY.get(framework, framework)) or sys.executable, "-c", RUNNER],
        input=json.dumps(pieces),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_code_for_julia_runs() -> None:
    julia = ROOT / ".venv" / "bin" / "julia"
    if not julia.exists():
        pytest.skip("no Julia here: .ci/julia gets one on Debian amd64")
    for name, kind in CASES:
        if kind != "flux":
            continue
        before, after = around(name, "flux")
        # At the top of a file a loop may not set what is outside of it, in a function it may.
        code = f"begin\n{before}\n{rules.load()[name].fixes['flux'].code}\n{after}\nend"
        done = subprocess.run(
            [julia, "--startup-file=no", "-e", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (name, done.stderr)


@pytest.mark.parametrize(("name", "framework"), CASES)
def test_the_code_of_a_fix_runs(name: str, framework: str) -> None:
    if framework in NOT_RUN:
        assert "was not run" in rules.load()[name].page
        return
    if framework == "tensorflow" and pairs.runner(framework) is None:
        pytest.skip("TensorFlow is not installed: .ci/tensorflow")
    assert ran(framework)[name] is None, ran(framework)[name]
