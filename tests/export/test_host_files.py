"""What puts the exporter on hosts: each file is held against what would read it."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import start_job
from tests.export.exporter import exporter, values
from tests.export.servers import tool
from whyidle.monitor.commands.export import command
from whyidle.monitor.core.defaults import EXPORT_PORT
from whyidle.monitor.export import host_files
from whyidle.monitor.export.host_files import (
    ATTACH,
    CHART,
    DAEMON_SET,
    EPILOG,
    PROLOG,
    SCRIPTS,
    SERVICE,
    TEMPLATE,
    VALUES,
    Exporter,
    files,
)
from whyidle.monitor.export.kubelet import SOCKET

Tape = Callable[..., dict[str, str]]
# What stands for a program: it notes how it was called.
NOTE = '#!/bin/sh\nprintf "%s\\n" "$(basename "$0") $*" >>"$NOTES"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755 if name in SCRIPTS else 0o644)
    (tmp_path / "bin").mkdir()
    return tmp_path


def stand_in(folder: Path, name: str, then: str = "") -> None:
    (folder / "bin" / name).write_text(NOTE + then)
    (folder / "bin" / name).chmod(0o755)


def script(folder: Path, name: str, *arguments: str, **env: str) -> tuple[int, list[str]]:
    """Run one; return how it ended, and what it called."""
    notes = folder / "notes"
    notes.write_text("")
    env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "NOTES": str(notes), **env}
    done = subprocess.run([str(folder / name), *arguments], env=env, check=False, timeout=30)
    return done.returncode, notes.read_text().splitlines()


def test_systemd_takes_the_unit(folder: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd-analyze")
    done = subprocess.run(
        [verify, "verify", "--man=no", str(folder / SERVICE)],
        text=True, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    wrong = [line for line in done.stderr.splitlines() if SERVICE in line]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_shellcheck_finds_nothing(folder: Path, name: str) -> None:
    done = subprocess.run(
        [tool("shellcheck"), "--severity=style", str(folder / name)],
        text=True, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


def documents(text: str) -> list[Any]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all(text))


def test_kubernetes_schemas_take_each_document() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    found = documents(files()[DAEMON_SET])
    assert [each["kind"] for each in found] == ["Namespace", "DaemonSet", "Service"]
    for each in found:
        for version in ("1.29", validate.latest_version()):
            validate.validate(each, version, strict=True)
    broken = json.loads(json.dumps(found[1]))
    broken["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, validate.latest_version(), strict=True)


def test_the_chart_is_the_daemon_set_with_its_values() -> None:
    found = files(Exporter(port=9999))
    (chart,), (given,) = documents(found[CHART]), documents(found[VALUES])
    assert chart["apiVersion"] == "v2"
    assert chart.keys() >= {"name", "version"}
    known = re.compile(r"\{\{ \.(Values|Release)\.(\w+) \}\}")
    assert {name for _, name in known.findall(found[TEMPLATE])} == {*given, "Namespace"}
    there = {**given, "Namespace": "whyidle"}
    filled = known.sub(lambda at: str(there[at[2]]), found[TEMPLATE])
    assert "{{" not in filled
    _, *rest = documents(found[DAEMON_SET])
    assert documents(filled) == rest


def test_helm_takes_the_chart(folder: Path) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("no helm")
    for line in (["lint", "--strict"], ["template", "whyidle"]):
        done = subprocess.run(
            [helm, *line, str(folder / "chart")],
            text=True, capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_daemon_set_has_no_more_rights_than_it_says() -> None:
    _, daemon, service = documents(files()[DAEMON_SET])
    pod = daemon["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    assert "privileged" not in container["securityContext"]
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostIPC"} & pod.keys()
    mounts = {each["mountPath"]: each.get("readOnly") for each in container["volumeMounts"]}
    assert mounts == {str(SOCKET.parent): True, "/var/lib/whyidle": None}
    (port,) = container["ports"]
    assert port["containerPort"] == service["spec"]["ports"][0]["port"] == EXPORT_PORT
    # A GPU that it asked for would be lost to jobs.
    assert not any("nvidia.com" in key for part in container["resources"].values() for key in part)


def test_what_it_runs_is_a_command_of_ours() -> None:
    _, daemon, _ = documents(files()[DAEMON_SET])
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "export"
    known = {name for each in command.params for name in each.opts}
    assert {word.split("=")[0] for word in container["args"][1:]} <= known


def test_a_prolog_starts_what_does_not_run_and_never_fails(folder: Path) -> None:
    stand_in(folder, "logger")
    stand_in(folder, "systemctl", "exit 0\n")
    assert script(folder, PROLOG) == (0, ["systemctl is-active --quiet whyidle-export"])
    stand_in(folder, "systemctl", "exit 1\n")
    code, called = script(folder, PROLOG, SLURM_JOB_ID="7")
    assert code == 0
    assert called[1:] == [
        "systemctl start --no-block whyidle-export",
        "logger -t whyidle job 7: whyidle-export could not be started",
    ]


def test_an_epilog_says_what_a_job_has_left(folder: Path, tape: Tape, state: Path) -> None:
    for each in ("logger", "sleep"):
        stand_in(folder, each)
    env = {**os.environ, "SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0"}
    with start_job(env=env) as job:
        with exporter(tape("one_gpu", TRAINER=job.pid), state) as running:
            running.until(lambda page: values(page, "whyidle_job_info", slurm_job="41"))
            url = f"http://127.0.0.1:{running.port}/metrics"
            code, called = script(folder, EPILOG, SLURM_JOB_ID="41", WHYIDLE_URL=url)
            assert code == 0
            said = f"logger -t whyidle job 41 has ended and left process {job.pid} on a GPU"
            assert called[1:] == [said]
            code, called = script(folder, EPILOG, SLURM_JOB_ID="4", WHYIDLE_URL=url)
            assert (code, called[1:]) == (0, [])
        # Nobody answers there: that is no failure of the job's.
        assert script(folder, EPILOG, SLURM_JOB_ID="41", WHYIDLE_URL=url)[0] == 0
        job.kill()


def test_a_job_in_a_pod_is_attached_to_by_a_container_beside_it(folder: Path) -> None:
    stand_in(folder, "kubectl", '[ "$1" = get ] && printf main\nexit 0\n')
    code, called = script(folder, ATTACH, "train-0")
    assert code == 0
    assert called[0].startswith("kubectl get pod train-0")
    assert called[1] == (
        f"kubectl debug train-0 --target=main --image={host_files.IMAGE} --profile=sysadmin --stdin"
        " --tty --quiet -- monitor attach 1"
    )
    given = {"NAMESPACE": "research", "IMAGE": "mine", "JOB": "train.py"}
    code, called = script(folder, ATTACH, "train-0", "worker", "--for", "60", **given)
    (line,) = called
    assert line == (
        "kubectl debug train-0 --namespace research --target=worker --image=mine"
        " --profile=sysadmin --stdin --tty --quiet -- monitor attach train.py --for 60"
    )
    assert script(folder, ATTACH)[0] == 2


def test_kubectl_knows_what_it_is_asked(folder: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl")
    told = subprocess.run([kubectl, "debug", "--help"], text=True, capture_output=True, check=False)
    stand_in(folder, "kubectl", '[ "$1" = get ] && printf main\nexit 0\n')
    _, called = script(folder, ATTACH, "train-0")
    for option in re.findall(r"(--[a-z]+)", called[1].partition(" -- ")[0]):
        assert f"{option}=" in told.stdout, option
    assert "sysadmin" in told.stdout


def test_scripts_may_be_run_where_they_are_written(monitor: Any, tmp_path: Path) -> None:
    assert monitor("fleet", "init", tmp_path / "fleet").returncode == 0
    for name in files():
        mode = stat.S_IMODE((tmp_path / "fleet" / name).stat().st_mode)
        assert bool(mode & 0o100) == (name in SCRIPTS), name
