"""baseline and run --gate: the commands, their codes, and the whole flow in a repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.test_compare import record
from tests.conftest import ROOT, Monitor, command, lines
from whyidle.monitor.core.errors import Exit


def test_a_baseline_is_saved_listed_and_removed(monitor: Monitor, state: Path) -> None:
    for label in ("one", "two", "three"):
        record(state, label, 40.0, 0.0)
    done = monitor("baseline", "save", "main", "--newest", "2")
    assert done.returncode == 0, done.stderr
    assert "Saved run 2 (two), run 3 (three) as main:" in done.stdout
    (answer,) = lines(monitor("baseline", "list", "--json").stdout)
    (row,) = answer["baselines"]
    assert (row["name"], row["runs"]) == ("main", ["run 2 (two)", "run 3 (three)"])
    assert row["step_ns"] == pytest.approx(40e6, rel=0.02)
    assert "main" in monitor("baseline", "list").stdout
    assert monitor("baseline", "remove", "main").returncode == 0
    assert "There are no baselines." in monitor("baseline", "list").stdout
    assert len(lines(monitor("runs", "--json").stdout)[0]["runs"]) == 3


def test_a_baseline_may_be_a_file_of_the_project(
    monitor: Monitor, state: Path, tmp_path: Path
) -> None:
    record(state, "good", 40.0, 0.0)
    done = monitor("baseline", "save", "./ci/main.json.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ci" / "main.json.gz").stat().st_size < 100_000
    assert "There are no baselines." in monitor("baseline", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["save", "main", "nosuch"], "nosuch"),
        (["save", "main", "1", "--newest", "1"], "both say which"),
        (["save", "main", "--newest", "5"], "There are 1 recordings, not 5."),
        (["remove", "main"], "There is no baseline 'main'"),
    ],
)
def test_what_cannot_be_saved_or_removed_is_a_sentence(
    monitor: Monitor, state: Path, arguments: list[str], said: str
) -> None:
    record(state, "good", 40.0, 0.0)
    done = monitor("baseline", *arguments)
    assert done.returncode == Exit.USAGE
    assert said in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gate", "nosuch"], "There is no baseline 'nosuch'"),
        (["--gate", "main", "--fail-slower", "1"], "asks for too little"),
        (["--fail-slower", "5"], "Name a baseline"),
        (["--annotate"], "Name a baseline"),
    ],
)
def test_a_gate_that_cannot_judge_starts_no_job(
    monitor: Monitor, state: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    record(state, "good", 40.0, 0.0)
    assert monitor("baseline", "save", "main").returncode == 0
    started = tmp_path / "started"
    done = monitor("run", *options, "--", "touch", started)
    assert done.returncode == Exit.USAGE
    assert said in done.stderr
    assert not started.exists()


def test_a_job_of_which_nothing_is_known_is_not_judged(monitor: Monitor, state: Path) -> None:
    record(state, "good", 40.0, 0.0)
    assert monitor("baseline", "save", "main").returncode == 0
    done = monitor("run", "--observe", "--gate", "main", "--annotate", "--json", "--", "true")
    assert done.returncode == Exit.NOT_JUDGED, done.stderr
    assert "gate main: not judged" in done.stderr
    assert "::warning title=Not judged%3A main::" in done.stderr
    (answer,) = lines(done.stdout)
    assert answer["gate"]["outcome"] == "not_judged"
    assert answer["gate"]["runs"] == [answer["gate"]["run"]]
    assert answer["gate"]["comparison"]["verdict"] == "unknown"


def test_the_jobs_own_failure_comes_first_and_ends_the_repeats(
    monitor: Monitor, state: Path, tmp_path: Path
) -> None:
    record(state, "good", 40.0, 0.0)
    assert monitor("baseline", "save", "main").returncode == 0
    count = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit(5)"
    line = [sys.executable, "-c", count, tmp_path / "runs"]
    done = monitor("run", "--observe", "--gate", "main", "--repeat", "3", "--", *line)
    assert done.returncode == 5
    assert (tmp_path / "runs").read_text() == "x"


def test_a_job_is_repeated(monitor: Monitor, state: Path) -> None:
    assert monitor("run", "--observe", "--repeat", "2", "-q", "--", "true").returncode == 0
    assert len(lines(monitor("runs", "--json").stdout)[0]["runs"]) == 2


def test_one_step_of_ci_leaves_all_that_a_host_shows(
    monitor: Monitor, state: Path, tmp_path: Path
) -> None:
    script = ROOT / "integrations" / "github" / "gate.sh"
    files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}

    def step(code: int, **told: str) -> str:
        for path in files.values():
            path.unlink(missing_ok=True)
        environment = {
            **os.environ, "WHYIDLE_STATE_DIR": str(state), "WHYIDLE_PYTHON": sys.executable,
            "WHYIDLE_RUN": "true; echo of the job", "WHYIDLE_SARIF": "found.sarif",
            **{name: str(path) for name, path in files.items()}, **told,
        }  # fmt: skip
        done = subprocess.run(
            [script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert "of the job" in done.stderr
        return files["GITHUB_OUTPUT"].read_text()

    assert "outcome=saved" in step(0, WHYIDLE_BASELINE="./main.json.gz", WHYIDLE_SAVE="true")
    assert "outcome=not_judged" in step(0, WHYIDLE_BASELINE="./main.json.gz")
    assert files["GITHUB_STEP_SUMMARY"].read_text().startswith("### whyidle: ")
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert run["tool"]["driver"]["name"] == "whyidle"
    strict = {"WHYIDLE_BASELINE": "./main.json.gz", "WHYIDLE_NOT_JUDGED": "fail"}
    assert "run=" in step(Exit.NOT_JUDGED, **strict)
    assert "outcome=\n" in step(0)
    step(3, WHYIDLE_RUN="echo of the job; exit 3")


def test_the_action_tells_its_script_every_input() -> None:
    folder = ROOT / "integrations" / "github"
    action, script = (folder / "action.yml").read_text(), (folder / "gate.sh").read_text()
    inputs = action.partition("inputs:\n")[2].partition("outputs:\n")[0]
    names = re.findall(r"^  ([a-z-]+):$", inputs, re.MULTILINE)
    assert len(names) > 5
    for name in names:
        variable = f"WHYIDLE_{name.upper().replace('-', '_')}"
        assert f"{variable}: ${{{{ inputs.{name} }}}}" in action
        assert variable in script
    # Text of an input in a script would run as code.
    assert "${{" not in script
    assert all("inputs." not in line for line in re.findall(r"run: .*", action))


# The whole flow ----------------------------------------------------------------------------------
TRAIN = """\
import time
import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def batch(rng):
    return torch.randn(64, 256, generator=rng)


def main():
    rng = torch.Generator().manual_seed(0)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        loss = model(batch(rng)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""
SLOW = TRAIN.replace("    return", "    total = 0\n    for i in range(60_000):\n"
                     "        total += i * i\n    return", 1)  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_slow_commit_fails_the_gate_at_its_line(state: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    program = project / "train.py"

    def commit(source: str) -> None:
        program.write_text(source)
        git(project, "add", "-A")
        git(project, "commit", "-qm", "a change")

    def monitored(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments), cwd=project, env={**os.environ, "WHYIDLE_STATE_DIR": str(state)},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def gate() -> subprocess.CompletedProcess[str]:
        options = ["--no-trace", "--gate", "./main.json.gz", "--annotate", "--json"]
        return monitored("run", *options, "--", sys.executable, "train.py")

    commit(TRAIN)
    assert monitored("run", "--no-trace", "--", sys.executable, "train.py").returncode == 0
    assert monitored("baseline", "save", "./main.json.gz").returncode == 0
    commit(SLOW)
    slow = gate()
    assert slow.returncode == Exit.WORSE, slow.stderr
    (answer,) = lines(slow.stdout)
    assert answer["gate"]["outcome"] == "worse"
    # Where other programs take the cores meanwhile it is not certain, and the new finding counts.
    if answer["gate"]["why_unknown"] is None:
        assert answer["gate"]["is_slower"]
        assert answer["gate"]["grown"]["function"] == "batch"
    assert "gate ./main.json.gz: failed" in slow.stderr
    # The loop of the slow commit: lines 10 to 13 of its file.
    added = git(project, "diff", "-U0", "HEAD~1", "HEAD", "--", "train.py")
    first, count = re.findall(r"^@@ .* \+(\d+),(\d+) @@", added, re.MULTILINE)[0]
    changed = range(int(first), int(first) + int(count))
    marked = re.findall(r"^::error file=train\.py,line=(\d+),", slow.stderr, re.MULTILINE)
    assert marked
    assert all(int(line) in changed for line in marked)
    # As code hosts are shown it afterwards.
    shown = monitored("diagnose", answer["gate"]["run"], "--format", "sarif")
    (run,) = json.loads(shown.stdout)["runs"]
    where: list[Any] = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert "train.py" in {each["artifactLocation"]["uri"] for each in where}
    assert len(slow.stderr.partition("gate ./main")[2].splitlines()) <= 24
