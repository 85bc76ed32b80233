"""``attach --notify``: what the program gets, when, and that it can do a recording no harm."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.conftest import Monitor
from tests.render.snapshots import snapshot
from tests.render.test_hosts import HOSTILE, answer_at
from tests.render.test_inside import run_summary
from whyidle.monitor.app import notify
from whyidle.monitor.app.notify import Notifying, arguments
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.recording.snapshot import Snapshot


class Screen:
    def __init__(self) -> None:
        self.ticks = 0
        self.is_closed = False

    def tick(self, snapshot: Snapshot) -> None:
        self.ticks += 1

    def close(self) -> None:
        self.is_closed = True


def program(folder: Path, body: str) -> str:
    path = folder / "tell me"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"'{path}' 'one $(touch {folder}/evil) word'"


def found(**changes: object) -> Snapshot:
    (finding,) = answer_at("/home/somebody/train.py").findings
    return replace(snapshot(), findings=(structs.replace(finding, **changes),))


def until(path: Path, lines: int = 1) -> list[dict[str, Any]]:
    for _ in range(400):
        if path.exists() and len(text := path.read_text().splitlines()) >= lines:
            return [json.loads(each) for each in text]
        time.sleep(0.02)
    raise AssertionError(f"{path} has not {lines} lines")


def test_a_high_finding_is_told_once_as_json(tmp_path: Path) -> None:
    out = tmp_path / "out"
    screen = Screen()
    telling = Notifying(screen, arguments(program(tmp_path, f'cat >> "{out}"; echo "$1" >&2')))
    telling.tick(found(severity="medium"))
    for _ in range(3):
        telling.tick(found())
    (said,) = until(out)
    telling.close()
    telling.finish()
    assert (screen.ticks, screen.is_closed) == (4, True)
    assert (said["event"], said["run"], said["finding"]["severity"]) == ("finding", 1, "high")
    assert said["text"].startswith("Found: ")
    assert said["text"].endswith("train.py:12 [input_starved].")
    assert len(out.read_text().splitlines()) == 1
    assert not (tmp_path / "evil").exists()


def test_what_only_the_whole_recording_shows_is_told_at_its_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    telling = Notifying(Screen(), arguments(program(tmp_path, f'cat >> "{out}"')))
    first = found()
    telling.tick(first)
    (said,) = first.findings
    later = structs.replace(said, rule="gc_pauses")
    low = structs.replace(said, rule="low", severity="low")
    diagnosis = structs.replace(answer_at("train.py"), findings=[said, later, low])
    telling.close()
    telling.finish(replace(run_summary(), diagnosis=diagnosis))
    assert [each["finding"]["rule"] for each in until(out, 2)] == [said.rule, "gc_pauses"]


def test_what_a_job_is_called_is_only_data(tmp_path: Path) -> None:
    out = tmp_path / "out"
    name = f"{HOSTILE}; touch {tmp_path}/evil `touch {tmp_path}/evil`\n$(touch {tmp_path}/evil)"
    telling = Notifying(Screen(), arguments(program(tmp_path, f'cat >> "{out}"')))
    telling.tick(found(title=name))
    assert until(out)[0]["finding"]["title"] == name
    telling.close()
    telling.finish()
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("body", ["sleep 600", "exec <&-; sleep 600", "sleep 600 & wait"])
def test_a_program_that_hangs_holds_up_nothing(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "END_SECONDS", 0.2)
    screen = Screen()
    telling = Notifying(screen, arguments(program(tmp_path, f"echo $$ > {tmp_path}/pid; {body}")))
    began = time.monotonic()
    for number in range(50):
        telling.tick(found(rule=f"rule_{number}"))
    assert time.monotonic() - began < 1
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.01)
    telling.close()
    telling.finish()
    assert time.monotonic() - began < 5
    assert screen.ticks == 50
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_fails_is_said_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    telling = Notifying(Screen(), arguments(program(tmp_path, "exit 3")))
    telling.tick(found())
    telling.close()
    telling.finish()
    assert "ended with 3" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", "no-such-program --x", "'unfinished"])
def test_a_program_that_is_not_there_is_refused_at_once(command: str) -> None:
    with pytest.raises(UsageProblem, match="--notify"):
        arguments(command)


def test_attach_refuses_it_before_anything_is_touched(monitor: Monitor) -> None:
    done = monitor("attach", 1, "--notify", "no-such-program")
    assert done.returncode == 2
    assert "no program 'no-such-program'" in done.stderr
