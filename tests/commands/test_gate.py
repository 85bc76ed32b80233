"""baseline and run --gate: the commands, their codes, and the whole flow in a repository."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.test_compare import record
from tests.conftest import ROOT, Monitor, command, lines
from tests.export.servers import tool
from whyidle.monitor.core.errors import Exit

SCRIPT = ROOT / "integrations" / "github" / "gate.sh"
ACTION = SCRIPT.with_name("action.yml")


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
        (["--gate", "no such"], "monitor baseline save 'no such'\n"),
        (["--gate", "./ci/no.json.gz", "--repeat", "3"], "save ./ci/no.json.gz --newest 3\n"),
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
    # What there was, and what was not judged: no words of figures that are not there.
    assert "A: run 1 (good) of the baseline, 1,200 steps. B: run 2, no steps" in done.stderr
    assert "rules lacked what they judge by" in done.stderr
    assert "figures" not in done.stderr
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
    assert "gate main: not judged: the job itself failed (exit code 5)" in done.stderr
    assert (tmp_path / "runs").read_text() == "x"
    dies = ("sh", "-c", "kill $$")
    done = monitor("run", "--observe", "-q", "--gate", "main", "--annotate", "--", *dies)
    assert done.returncode == 128 + signal.SIGTERM
    assert "(killed by SIGTERM), and its exit code is ours: 143" in done.stderr
    assert "::error title=The job failed::" in done.stderr
    # Of a crash there is something to say, but it is hardly what to hold others against.
    assert "Run 3 is of a job that failed" in monitor("baseline", "save", "bad").stderr


def test_a_job_is_repeated(monitor: Monitor, state: Path) -> None:
    assert monitor("run", "--observe", "--repeat", "2", "-q", "--", "true").returncode == 0
    assert len(lines(monitor("runs", "--json").stdout)[0]["runs"]) == 2


class Ci:
    """The script of a step of CI, in a folder with a file of findings that an earlier run left."""

    def __init__(self, state: Path, folder: Path) -> None:
        self.state, self.folder = state, folder
        self.sarif = folder / "found" / "whyidle.sarif"
        self.output, self.summary = folder / "output", folder / "summary"

    def step(self, code: int, said: str = "of the job", **told: str) -> str:
        """Run it; return what it tells the steps behind it."""
        self.sarif.parent.mkdir(exist_ok=True)
        for path in (self.sarif, self.output, self.summary):
            path.write_text("")
        environment = {
            **os.environ, "WHYIDLE_STATE_DIR": str(self.state), "WHYIDLE_PYTHON": sys.executable,
            "WHYIDLE_RUN": "true; echo of the job", "WHYIDLE_SARIF": "found/whyidle.sarif",
            "GITHUB_OUTPUT": str(self.output), "GITHUB_STEP_SUMMARY": str(self.summary), **told,
        }  # fmt: skip
        done = subprocess.run(
            [SCRIPT], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        return self.output.read_text()

    def results(self) -> list[Any]:
        (run,) = json.loads(self.sarif.read_text())["runs"]
        assert run["tool"]["driver"]["name"] == "whyidle"
        return list(run["results"])


@pytest.fixture
def ci(state: Path, tmp_path: Path) -> Ci:
    return Ci(state, tmp_path)


def test_before_the_first_baseline_a_step_of_ci_says_how_it_is_made(ci: Ci) -> None:
    held = {"WHYIDLE_BASELINE": "./ci/main.json.gz", "WHYIDLE_REPEAT": "3"}
    typed = "monitor baseline save ./ci/main.json.gz --newest 3\nIn CI this step makes it, once"
    assert ci.step(Exit.USAGE, typed, **held) == ""
    # What uploads it goes by whether it is there.
    assert not ci.sarif.exists()


def test_a_job_that_fails_in_ci_leaves_what_was_found_until_then(ci: Ci) -> None:
    assert "outcome=job_failed" in ci.step(3, WHYIDLE_RUN="echo of the job; exit 3")
    assert ci.results() == []
    assert "failed, with exit code 3: nothing was judged" in ci.summary.read_text()


def test_one_step_of_ci_leaves_all_that_a_host_shows(ci: Ci) -> None:
    held = {"WHYIDLE_BASELINE": "./main.json.gz"}
    assert "outcome=saved" in ci.step(0, **held, WHYIDLE_SAVE="true")
    assert "outcome=not_judged" in ci.step(0, **held)
    assert ci.summary.read_text().startswith("### whyidle: ")
    assert ci.results() == []
    assert "run=" in ci.step(Exit.NOT_JUDGED, **held, WHYIDLE_NOT_JUDGED="fail")
    assert "outcome=\n" in ci.step(0)
    assert "outcome=job_failed" in ci.step(3, "failed (exit code 3)", **held, WHYIDLE_RUN="exit 3")


def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(
        [tool("shellcheck"), "--severity=style", SCRIPT],
        text=True, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


def test_the_workflow_of_the_documents_is_one_that_runs() -> None:
    """It names inputs that there are, and uploads only what was written."""
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "docs" / "ci.md").read_text()
    workflow = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    steps = workflow["jobs"]["whyidle"]["steps"]
    inputs = yaml.safe_load(ACTION.read_text())["inputs"]
    (ours,) = (each for each in steps if each.get("uses", "").endswith("integrations/github"))
    assert ours["with"].keys() <= inputs.keys()
    # It is found in the copy that an earlier step has brought.
    (copy,) = (each["with"] for each in steps if "repository" in each.get("with", {}))
    assert ours["uses"] == f"./{copy['path']}/integrations/github"
    assert any(f"pip install ./{copy['path']} " in each.get("run", "") for each in steps)
    (upload,) = (each for each in steps if "upload-sarif" in each.get("uses", ""))
    written = inputs["sarif"]["default"]
    assert upload["with"]["sarif_file"] == written
    assert upload["if"] == f"${{{{ always() && hashFiles('{written}') != '' }}}}"
    (kept,) = (each["with"] for each in steps if "cache" in each.get("uses", ""))
    assert ours["with"]["baseline"] == f"./{kept['path']}"


def test_the_action_tells_its_script_every_input() -> None:
    action, script = ACTION.read_text(), SCRIPT.read_text()
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
