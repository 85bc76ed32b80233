"""``monitor fix``: from a finding to a diff, a copy, changed files, and a proof by running."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.record_pairs import ROOT, WINDOWS, kept
from whyidle.monitor import fixes
from whyidle.monitor.app import fix
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.signals.portable import load

ASKED: dict[str, Any] = {
    "target": "last", "rule": None, "apply_to": None, "write": False, "force": False,
    "verify": None, "check": None, "turns": 2, "seconds": 20.0, "tolerance": 1e-3,
    "allow_numerics": False, "as_json": True,
}  # fmt: skip
NEW = "num_workers=2, persistent_workers=True"
# It may lie in a folder with a space in its name.
PYTHON = shlex.quote(sys.executable)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recorded job whose source lies in a folder of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    script = folder / "train.py"
    demo = ROOT / "demo_workloads" / "input_starved" / "before_torch.py"
    shutil.copy(demo, script)
    text = json.dumps(kept(WINDOWS / "input_starved" / "before_torch.json.gz")["window"])
    window = load(json.loads(text.replace(str(demo), str(script))))
    monkeypatch.setattr(fix, "_window", lambda _: window)
    monkeypatch.chdir(folder)
    return script


def ask(capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    fix.run(**{**ASKED, **more})
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_the_diff_applies_as_it_is_printed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = job.read_text()
    (patch,) = ask(capsys)["patches"]
    assert patch["rule"] == "input_starved"
    assert job.read_text() == before
    git(job.parent, "init")
    subprocess.run(["git", "apply"], input=patch["diff"], text=True, check=True, cwd=job.parent)
    assert NEW in job.read_text()


def test_the_screen_has_the_diff_and_the_gain(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fix.run(**{**ASKED, "as_json": False})
    shown = capsys.readouterr().out
    assert NEW in shown
    assert "about 2.05x faster (1.84x to 2.29x) predicted" in shown
    # In a pipe it has no colours, and is a patch as it stands.
    git(job.parent, "init")
    subprocess.run(["git", "apply"], input=shown, text=True, check=True, cwd=job.parent)
    assert NEW in job.read_text()


def test_a_changed_copy(job: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (job.parent / "data").mkdir()
    (job.parent / "data" / "large.bin").write_bytes(bytes(1 << 21))
    answer = ask(capsys, apply_to=tmp_path / "copy")
    assert answer["written"] == [str(tmp_path / "copy" / "train.py")]
    assert NEW in (tmp_path / "copy" / "train.py").read_text()
    assert (tmp_path / "copy" / "data" / "large.bin").is_symlink()
    assert NEW not in job.read_text()
    with pytest.raises(UsageProblem, match="there already"):
        ask(capsys, apply_to=tmp_path / "copy")


def test_files_are_changed_only_where_git_has_them(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageProblem, match="no git repository"):
        ask(capsys, write=True)
    git(job.parent, "init")
    git(job.parent, "add", ".")
    git(job.parent, "commit", "-m", "one")
    job.write_text(job.read_text() + "\n")
    with pytest.raises(UsageProblem, match="uncommitted"):
        ask(capsys, write=True)
    assert NEW not in job.read_text()
    git(job.parent, "commit", "-am", "two")
    job.chmod(0o755)
    git(job.parent, "commit", "-am", "three")
    assert ask(capsys, write=True)["written"] == [str(job)]
    assert NEW in job.read_text()
    assert job.stat().st_mode & 0o777 == 0o755


def test_by_force(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, write=True, force=True)
    assert NEW in job.read_text()


def test_a_refusal_has_its_reason_and_the_advice(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(job.read_text().replace("time.sleep(READ_SECONDS)", "self.seen = index"))
    (refused,) = ask(capsys)["refused"]
    assert "keeps something from sample to sample" in refused["why"][0]
    assert "worker processes" in refused["advice"]["pytorch"]


def test_a_rule_that_was_not_found(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageProblem, match="not found in this job"):
        ask(capsys, rule="gc_pauses")


def test_both_programs_run_in_turns(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ask(
        capsys, verify=f"{PYTHON} train.py --seconds 2 --steps 100",
        check=f"{PYTHON} -c \"print('loss 0.25')\"",
    )  # fmt: skip
    found = answer["verified"]
    assert found["predicted"] == [1.84, 2.294]
    low, middle, high = found["measured"]
    assert low <= middle <= high
    assert middle > 1.2
    assert found["results"] == "equal"


def test_a_command_that_does_not_run_the_changed_code(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Problem, match="did not run the changed file"):
        ask(capsys, verify=f"{PYTHON} -c 'print(1)'")


@pytest.mark.parametrize("name", fixes.load())
def test_a_file_without_code_is_none_of_any_change(name: str) -> None:
    for text in ("", "# Nothing yet.\n", '"""Only a docstring."""\n'):
        assert fixes.patched(fixes.load()[name], "/job/a.py", text, fixes.Wanted("x")) is None
