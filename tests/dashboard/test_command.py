"""The way in: one line with the link, and an end at once; beside a recording it harms nothing."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest

from tests.commands.test_trace_view import listeners, listening
from tests.conftest import Monitor, command
from tests.dashboard.asking import ask
from tests.dashboard.stores import make
from whyidle.dashboard import sample
from whyidle.dashboard.__main__ import checked
from whyidle.monitor.app import dashboard_process
from whyidle.monitor.app.dashboard import _check_reach
from whyidle.monitor.app.live_dashboard import _Telling
from whyidle.monitor.core.errors import Exit, Problem, UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.render import screens
from whyidle.monitor.render.live import LiveView
from whyidle.monitor.store import Reader

WITHIN = 60.0


@pytest.fixture
def store(state: Path) -> Path:
    path = state / DATABASE
    make(path, seconds=60, label="mine").end()
    return path


@contextlib.contextmanager
def started(*arguments: object, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a command for as long as the test needs it."""
    process = subprocess.Popen(
        command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=cwd,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def link_in(stream: IO[str] | None) -> str:
    """Wait for the line with the link."""
    assert stream is not None
    while select.select([stream], [], [], WITHIN)[0] and (line := stream.readline()):
        if found := re.search(r"http://\S+", line):
            return found[0]
    pytest.fail("no link was printed")


def opens(link: str) -> int:
    """Open a link as a browser does; return how that went."""
    cookies = urllib.request.HTTPCookieProcessor()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
    try:
        with opener.open(link, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def port_of(link: str) -> int:
    return urlsplit(link).port or 0


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, Exit.INTERRUPTED),
        (signal.SIGTERM, Exit.OK),
        (signal.SIGHUP, 128 + signal.SIGHUP),
    ],
)
def test_the_link_opens_it_until_somebody_ends_it(store: Path, number: int, code: int) -> None:
    with started("dashboard", "--no-browser") as process:
        link = link_in(process.stdout)
        assert opens(link) == 200
        assert opens(link.partition("?")[0]) == 401
        port = port_of(link)
        ours = listening(port)
        assert set(ours.values()) == {"0100007F"}
        # A page that is open holds nobody up.
        with socket.create_connection(("127.0.0.1", port)):
            process.send_signal(number)
            assert process.wait(20) == code
        said, complained = process.communicate()
        assert (said, complained) == ("", "")
        # Another process may have the port by now.
        assert not ours.keys() & listening(port).keys()


def test_the_token_is_in_no_list_of_processes_and_in_no_log(store: Path) -> None:
    with started("dashboard") as process:
        token = link_in(process.stdout).partition("token=")[2]
        assert len(token) > 40
        line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"whyidle.dashboard" in line
        assert token.encode() not in line
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert token.encode() not in environment
        process.terminate()
        said, complained = process.communicate(timeout=20)
        assert token not in said + complained


def test_a_run_is_named_by_number_label_or_last(store: Path) -> None:
    assert [checked(store, name) for name in ("1", "mine", "last", None)] == ["1", "1", "1", "last"]
    with pytest.raises(UsageProblem, match="no recording 'nobody'"):
        checked(store, "nobody")


def test_a_run_that_the_sample_has_not_is_not_looked_for_elsewhere(store: Path) -> None:
    with pytest.raises(Problem, match="The sample has the runs 1") as raised:
        checked(store, "9", is_sample=True)
    assert "monitor runs" not in raised.value.next_step


@pytest.mark.parametrize(
    ("arguments", "says", "then"),
    [
        (["99"], "no recording '99'", "monitor runs"),
        (["--run"], "has no option '--run'", "See:"),
        (["--port", "0"], "'0' is not a whole number from 1 to", "See:"),
        (["--address", "nowhere"], "not an address", "--address 127.0.0.1"),
        (["--address", "192.0.2.1"], "no such address", "Leave out --address"),
        (["--allow-host", "http://x"], "not a host name", "--allow-host gpu1"),
        (["--base-path", "/a b"], "not a valid path", "--base-path /gpu1"),
        (["--address", "0.0.0.0", "--no-token"], "Without a token", "--no-token twice"),
        (["--allow-actions", "--no-token"], "--allow-actions needs the token", "--no-token"),
    ],
)
def test_what_cannot_be_is_a_sentence_before_anything_starts(
    store: Path, monitor: Monitor, arguments: list[str], says: str, then: str
) -> None:
    done = monitor("dashboard", *arguments)
    assert done.returncode == Exit.USAGE
    assert says in done.stderr
    assert then in done.stderr
    assert "http://1" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_a_sentence(store: Path, monitor: Monitor) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = monitor("dashboard", "--port", taken.getsockname()[1])
    assert done.returncode == Exit.USAGE
    assert "Address already in use" in done.stderr
    assert "Leave out --port" in done.stderr


def test_two_find_two_ports(store: Path) -> None:
    with started("dashboard") as one, started("dashboard") as other:
        links = [link_in(one.stdout), link_in(other.stdout)]
        assert port_of(links[0]) != port_of(links[1])
        assert [opens(link) for link in links] == [200, 200]


def test_on_every_address_it_is_said_what_that_means(store: Path) -> None:
    with started("dashboard", "--address", "0.0.0.0", "--no-token", "--no-token") as process:
        link = link_in(process.stdout)
        port = port_of(link)
        assert "token" not in link
        assert listeners(port) == {"00000000"}
        assert ask(port, "/").status == 200
        assert ask(port, "/", hosts=("evil.example",)).status == 403
        process.terminate()
        assert "http is plain" in process.communicate(timeout=20)[1]


def test_open_to_everybody_on_this_machine_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _check_reach("127.0.0.1", 0)
    assert capsys.readouterr().err == ""
    _check_reach("127.0.0.1", 1)
    assert "Everybody on this machine" in capsys.readouterr().err


def test_a_file_in_the_folder_at_hand_is_not_taken_for_streamlit(
    store: Path, tmp_path: Path
) -> None:
    for name in ("streamlit", "plotly", "uvicorn", "argparse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken for a part of ours')")
    program = [sys.executable, "-P", "-m", "whyidle.monitor", "dashboard"]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert opens(link_in(process.stdout)) == 200
        process.terminate()


@pytest.mark.parametrize(
    ("found", "says"),
    [({"streamlit": "1.40.2"}, "Streamlit 1.67, not 1.40.2"), ({}, "streamlit, which this Python")],
)
def test_without_streamlit_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, str], says: str
) -> None:
    def version(name: str) -> str:
        if name not in found:
            raise dashboard_process.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(dashboard_process, "version", version)
    with pytest.raises(UsageProblem, match=says) as refused:
        dashboard_process.check_installed()
    assert to_install("dashboard") in refused.value.next_step


def test_the_sample_is_a_copy_that_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = tmp_path / "sample" / DATABASE
    make(made, seconds=5).end()
    before = sorted(made.parent.iterdir())
    monkeypatch.setattr(sample, "STORE", made)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with sample.copied() as path:
        with Reader.open(path) as reader:
            assert len(reader.runs()) == 1
        assert path != made
    assert not path.exists()
    assert sorted(made.parent.iterdir()) == before
    monkeypatch.setattr(sample, "STORE", tmp_path / "none")
    with pytest.raises(UsageProblem, match="No sample"), sample.copied():
        pass


def children_of(pid: int) -> list[int]:
    fs = ProcFs()
    stats = (fs.stat(each) for each in fs.pids())
    return [stat.pid for stat in stats if stat is not None and stat.parent == pid]


def test_beside_a_recording_it_opens_and_ends_with_it(
    state: Path, job: subprocess.Popen[str]
) -> None:
    with started("attach", job.pid, "--observe", "--dashboard", "--quiet") as process:
        link = link_in(process.stderr)
        assert opens(link) == 200
        ours = listening(port_of(link))
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=30)
        assert "stopped by the user" in said
        assert link not in complained
        assert not ours.keys() & listening(port_of(link)).keys()
    assert job.poll() is None
    with Reader.open(state / DATABASE) as reader:
        assert [each.pid for each in reader.processes(1)] == [job.pid]


def test_on_a_terminal_the_page_stays_when_the_job_has_ended(state: Path) -> None:
    ours, terminal = pty.openpty()
    doomed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    arguments = command("attach", doomed.pid, "--observe", "--dashboard", "--quiet")
    env = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(
        arguments, env=env, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    ) as process, os.fdopen(ours, errors="replace") as said:  # fmt: skip
        os.close(terminal)
        try:
            link_in(said)
            doomed.communicate(b"\n")
            output = ""
            while "The dashboard stays" not in output:
                output += said.readline()
            link = output.split()[-1]
            assert "The dashboard stays until Ctrl-C: http://" in output
            assert output.index("job ended") < output.index("The dashboard stays")
            assert opens(link) == 200
            ours = listening(port_of(link))
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == Exit.OK
            assert not ours.keys() & listening(port_of(link)).keys()
        finally:
            process.kill()
            doomed.kill()


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_where_nobody_watches_nobody_is_waited_for(
    monitor: Monitor, job: subprocess.Popen[str], options: list[str]
) -> None:
    done = monitor("attach", job.pid, "--observe", "--dashboard", "--for", "8", *options)
    assert done.returncode == Exit.OK
    assert "monitor dashboard 1" in done.stderr
    assert "stays until Ctrl-C" not in done.stderr


def test_a_recording_that_is_killed_takes_it_along(state: Path, job: subprocess.Popen[str]) -> None:
    with started("attach", job.pid, "--observe", "--dashboard", "--quiet") as process:
        link_in(process.stderr)
        (page,) = children_of(process.pid)
        gone = os.pidfd_open(page)
        try:
            process.kill()
            assert select.select([gone], [], [], 20)[0], "it lives on"
        finally:
            os.close(gone)


def test_the_page_is_no_part_of_a_job_that_we_are_below(state: Path) -> None:
    # A shell that is watched, by a command that it has started itself.
    line = f"{shlex.join(command('attach'))} $$ --observe --dashboard --quiet & wait $!"
    with subprocess.Popen(
        ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as shell:
        link_in(shell.stderr)
        (recorder,) = children_of(shell.pid)
        (page,) = children_of(recorder)
        os.kill(recorder, signal.SIGTERM)
        shell.communicate(timeout=30)
    with Reader.open(state / DATABASE) as reader:
        pids = {each.pid for each in reader.processes(1)}
    assert shell.pid in pids
    assert not {recorder, page} & pids


def test_without_it_the_recording_goes_on(monitor: Monitor, job: subprocess.Popen[str]) -> None:
    broken = {"WHYIDLE_DASHBOARD_TOKEN": "abc"}
    done = monitor("attach", job.pid, "--observe", "--dashboard", "--for", "3", env=broken)
    assert done.returncode == Exit.OK
    assert done.stderr.count("The dashboard has ended; the recording goes on.") == 1
    assert "too easily guessed" in done.stderr
    assert "time limit" in done.stdout


class Page:
    """A page that has some news."""

    def __init__(self, *news: str | None) -> None:
        self._news = iter(news)

    def news(self) -> str | None:
        return next(self._news)


def test_a_screen_that_fills_the_terminal_shows_the_link_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = LiveView(everything=False)
    drawn: list[str | None] = []
    view.tick = lambda _snapshot: drawn.append(view.note)  # type: ignore[method-assign]
    screen = _Telling(view, Page(None, "the link", None))
    for _ in range(3):
        screen.tick(None)
    assert drawn == [None, "the link", "the link"]
    plain = _Telling(screens.Quiet(), Page("the link", None))
    for _ in range(2):
        plain.tick(None)
    assert capsys.readouterr().err == "the link\n"


def test_in_the_background_there_is_nobody_to_show_it_to(
    monitor: Monitor, job: subprocess.Popen[str]
) -> None:
    done = monitor("attach", job.pid, "--background", "--dashboard")
    assert done.returncode == Exit.USAGE
    assert "monitor dashboard" in done.stderr
