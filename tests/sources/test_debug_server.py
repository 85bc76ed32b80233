"""PyTorch's debug server: what its pages say of a hang, and that a bad one ends in a sentence."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.conftest import Monitor
from tests.loopback import answering
from tests.sources.test_flight_recorder import entry
from whyidle.monitor.app import debug_servers, windows
from whyidle.monitor.core.errors import Exit, Problem, UsageProblem
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.diagnosis.ranking import Finding
from whyidle.monitor.runs.stacks import Chain, CodeLine
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.standstill import Stand, Standstill
from whyidle.monitor.signals.window import Window
from whyidle.monitor.sources import debug_server
from whyidle.monitor.sources.debug_server import PAGES, STACKS, Server

NCCL, OTHERS = PAGES
Answer = Callable[[BaseHTTPRequestHandler], None] | bytes
FAILED = "<p>Failed to fetch: status=408</p>\n<pre>TimeoutError: </pre>"


@contextmanager
def serving(pages: Mapping[str, Answer]) -> Iterator[str]:
    """Run a server on loopback that has these pages, and yield its address."""

    class Request(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = pages.get(self.path)
            if callable(answer):
                answer(self)
            elif answer is None:
                self.send_error(404, f"Handler not found: {self.path}")
            else:
                # As torch's: no length, and the line ends.
                self.send_response(200)
                self.send_header("Content-type", "text/html")
                self.end_headers()
                self.wfile.write(answer)

    with answering(Request) as url:
        yield f"{url}/"


def page(*ranks: str | dict[str, Any]) -> bytes:
    """Return a page as torch 2.13 renders it: the JSON of each rank, or why there is none."""
    parts = (
        each if isinstance(each, str) else f"<pre>{json.dumps(each, indent=2)}</pre>"
        for each in ranks
    )
    rows = (f"<h2>Rank {n}: http://h:{n}/handler/x?</h2>\n {x}\n" for n, x in enumerate(parts))
    return f"<nav>Torch Distributed Debug Server</nav>\n{''.join(rows)}</section>".encode()


def recorder(*entries: dict[str, Any], begun: int = 42) -> dict[str, Any]:
    """Return what the recorder of a rank says; without entries it leaves them out."""
    said: dict[str, Any] = {
        "version": "2.10", "comm_lib_version": "2.27", "nccl_comm_state": {},
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
        "pg_status": {"0": {"last_enqueued_collective": str(begun)}},
    }  # fmt: skip
    return {**said, "entries": list(entries)} if entries else said


def began(number: int, seconds: float = 700.0, **more: Any) -> dict[str, Any]:
    """Return a collective as JSON has it: without lines of code."""
    created = time.time_ns() - round(seconds * 1e9)
    said = entry(number, **{"state": "started", "time_created_ns": created, **more})
    return {name: value for name, value in said.items() if name != "frames"}


def found(url: str) -> Finding:
    (finding,) = (x for x in diagnose(windows.of(url)).findings if x.rule.id == "job_stands_still")
    return finding


STACK = """<pre>Current thread 0x00007f02 (most recent call first):
  <no Python frame>

Thread 0x00007f03 (most recent call first):
  File "/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/job/train.py", line {line} in train
</pre>"""


def test_of_nccl_the_rank_without_an_open_one_is_missing() -> None:
    waits = recorder(began(42), began(43, state="scheduled"))
    pages = {
        NCCL: page(waits, recorder(begun=41), waits),
        OTHERS: page(*[recorder(begun=-1)] * 3),
        STACKS: page(*(STACK.format(line=n) for n in (10, 20, 10))),
    }
    with serving(pages) as url:
        finding = found(url)
    assert finding.found.title == ("Stuck: rank 1 has started nothing after collective #41")
    assert finding.severity is Severity.HIGH
    # First that of the rank that is missing.
    assert [(x.file, x.line) for x in finding.found.where] == [
        ("/job/train.py", 20),
        ("/job/train.py", 10),
    ]
    said = {each.name: each for each in finding.found.evidence}
    assert said["rank 0 started last"].value == "nccl:all_reduce #42 of Float 1024x2"
    assert {each.source for each in said.values()} == {"flight recorder"}


def test_a_rank_that_does_not_answer_is_named_and_nobody_is_asked_for_lines() -> None:
    waits = recorder(began(42))
    with serving({NCCL: page(waits, FAILED, waits), OTHERS: page(*[FAILED] * 3)}) as url:
        finding = found(url)
    assert finding.found.title == "Stuck: rank 1 does not answer"
    said = {each.name: each.value for each in finding.found.evidence}
    assert said["ranks that were looked at"] == "2 of 3, without rank 1"
    assert said["rank 1 does not answer"] == "TimeoutError"
    # It knows no line.
    assert not finding.found.where


def test_a_job_that_goes_on_stands_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(
        {NCCL: page(*[recorder(began(42, 3.0))] * 3), OTHERS: page(*["<pre>"] * 3)}
    ) as url:
        assert not diagnose(windows.of(url)).findings
    assert "began its last collective 3 s ago: that is no standstill." in capsys.readouterr().err


def drips(request: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, and never a length."""
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b" ")
        request.wfile.flush()
        time.sleep(0.05)


def breaks_off(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(page(recorder(began(1)))[:300])


def of_all(answer: Answer) -> dict[str, Answer]:
    return dict.fromkeys(PAGES, answer)


RANK_ITSELF = b'["torch_profile","dump_traceback","fr_trace_json","ping"]'
FAILURES: dict[str, tuple[Mapping[str, Answer], str]] = {
    "another server": ({}, "is no page of PyTorch's debug server: 404, text/html."),
    "another page": (of_all(b"<html>hello"), "is no page of PyTorch's debug server: 200"),
    "one rank's own": ({"/handler/": RANK_ITSELF}, "is the server of one rank, and knows no other"),
    "drips": (of_all(drips), "has not answered in time"),
    "breaks off": (of_all(breaks_off), "does not answer: IncompleteRead"),
    "no end": (of_all(b" " * (3 << 20)), "answers with more than 2 MiB"),
    "nobody there": (of_all(page(FAILED, FAILED)), "None of the 2 ranks"),
    "nothing kept": (of_all(page(recorder(), recorder())), "2 ranks of", ),
    "no JSON": (of_all(page("<pre>{{{</pre>", "<pre>\x80\x02]q\x00.</pre>")), "it is damaged"),
    "nested": (of_all(page("<pre>" + '{"entries":' * 100_000 + "</pre>")), "it is damaged"),
    "a rank too many": (of_all(b"<h2>Rank 12345678: x</h2><pre>{}</pre>"), "is no page"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_a_sentence(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_server, "MOST_BYTES", 2 << 20)
    pages, words = FAILURES[what]
    start = time.monotonic()
    with serving(pages) as url, pytest.raises(Problem, match=re.escape(words)) as caught:
        Server("127.0.0.1", Server.named(url).port, seconds=0.4).ask()
    assert time.monotonic() - start < 1.5
    assert caught.value.next_step


def test_the_server_of_a_job_that_stands_now_is_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = CodeLine("/job/train.py", 30, "train")
    still = Standstill((Stand(os.getpid(), 0, Chain((line,), line), 90.0),), 90.0)
    facts = {"torch": {"world_size": 2}}
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setattr(debug_servers, "PORT", server.getsockname()[1])
        for job, is_over in (
            (Recorded(standstill=still, facts=facts, age_s=900.0), True),
            (Recorded(standstill=still, age_s=0.0), False),
            (Recorded(facts=facts), False),
        ):
            debug_servers.offer(Window("run 1", job=job, is_over=is_over))
        assert not capsys.readouterr().err
        debug_servers.offer(Window("run 1", job=Recorded(standstill=still, facts=facts)))
        assert f"diagnose http://127.0.0.1:{debug_servers.PORT}" in capsys.readouterr().err


def test_what_is_no_address_is_refused() -> None:
    for url in (
        "https://h",
        "http://",
        "http://[::1",
        "http://h:99999",
        "http://h:0",
        "http://\x1b",
    ):
        with pytest.raises(UsageProblem, match="is no address"):
            windows.of(url)
    assert Server.named("http://[::1]/fr_trace").url == "http://[::1]:25999"
    with pytest.raises(UsageProblem, match="--seconds is for a running process"):
        windows.of("http://127.0.0.1", 3.0)


def test_a_server_that_is_down(monitor: Monitor) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = monitor("diagnose", f"http://127.0.0.1:{closed.getsockname()[1]}", "--json")
    assert done.returncode == Exit.GONE
    assert "does not answer: Connection refused" in done.stderr
    assert json.loads(done.stdout)["error"] == "gone"
