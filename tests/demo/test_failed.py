"""A demo that fails, or does not end: its half run is not kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from whyidle.monitor.app import demo
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.demo import pairs, watched
from whyidle.monitor.demo.watched import Failed, Watched

PAIR = pairs.all_pairs()[0]


class Silent:
    """Progress that nobody sees."""

    def begin(self, what: str, expected: float) -> None:
        pass

    def __call__(self, spent: float) -> None:
        pass

    def end(self) -> None:
        pass


def test_a_program_that_failed_names_the_run_that_was_recorded() -> None:
    with pytest.raises(Failed) as raised:
        watched._told(Path("before_jax.py"), 1, '{"run": 7}', "no such disk")
    assert raised.value.run == 7
    assert "no such disk" in raised.value.what


def test_a_program_that_does_not_end_names_the_run_that_was_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    is_up = tmp_path / "up"
    stub = tmp_path / "python"
    stub.write_text(f"#!/bin/sh\necho '{{\"run\": 5}}'\ntouch {is_up}\nexec sleep 600\n")
    stub.chmod(0o755)
    monkeypatch.setattr(watched.sys, "executable", str(stub))

    def too_long(*_: object) -> tuple[str, str]:
        while not is_up.exists():
            time.sleep(0.01)
        raise Problem("A demo did not end.", "Try again.")

    monkeypatch.setattr(watched, "_wait", too_long)
    with pytest.raises(Failed) as raised:
        watched.watch(Path("before_jax.py"), 1, "x")
    assert raised.value.run == 5
    assert str(raised.value) == "A demo did not end.\nTry again."


def test_half_a_run_is_forgotten_and_a_whole_one_kept(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = iter([Watched(1, Path("before.py"), 1.0, 1.0)])
    forgotten: list[Any] = []

    def watch(*_: object, **__: object) -> Watched:
        if (found := next(runs, None)) is not None:
            return found
        raise Failed("after.py ended with code 1", "Run it alone", 2)

    monkeypatch.setattr(demo, "watch", watch)
    monkeypatch.setattr(demo, "_forget", lambda _store, run: forgotten.append(run))
    with pytest.raises(Problem):
        demo._run(PAIR, demo.Asked(1.0, 1), Path("store"), Silent(), "what")  # type: ignore[arg-type]
    assert forgotten == [2]
    assert "Kept: run 1, whole." in capsys.readouterr().err
