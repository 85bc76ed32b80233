"""The client of PromQL: whatever a server does, an answer or a sentence, by the deadline."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.fleet import misbehaving as bad
from whyidle.monitor.core.errors import Exit, Problem
from whyidle.monitor.fleet import prometheus
from whyidle.monitor.fleet.prometheus import PASSWORD, TOKEN, URL, USER, Prometheus, selector


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (URL, TOKEN, USER, PASSWORD):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[bad.Server]:
    with bad.serving(bad.Server()) as running:
        yield running


def test_rows_have_labels_and_values(server: bad.Server) -> None:
    server.answers["up"] = [({"instance": "a"}, 1.0), ({"instance": "b"}, 0.0)]
    answer = Prometheus.here(server.url).now("up")
    assert [(row.labels["instance"], row.value) for row in answer.rows] == [("a", 1), ("b", 0)]
    assert not answer.notes
    assert server.asked[0].path == "/api/v1/query"


def test_a_range_has_a_row_of_points(server: bad.Server) -> None:
    rows = [{"metric": {}, "values": [[60, "1"], [120, "NaN"], [180, "3"]]}]
    body = {"status": "success", "data": {"resultType": "matrix", "result": rows}}
    server.answers["up"] = bad.says(json.dumps(body).encode())
    (row,) = Prometheus.here(f"{server.url}/select/0/prometheus/").over("up", 60, 180, 60).rows
    assert row.points == ((60.0, 1.0), (180.0, 3.0))
    asked = server.asked[0]
    assert asked.path == "/select/0/prometheus/api/v1/query_range"
    assert (asked.form["start"], asked.form["end"], asked.form["step"]) == (
        "60.000",
        "180.000",
        "60",
    )


ROWS = [({"instance": "node1"}, 1.0)]
FAILURES: dict[str, tuple[Callable[..., None], str, Exit]] = {
    "an error": (bad.fails("query processing would load too many samples"), "too many samples",
                 Exit.GONE),
    "half an answer": (bad.breaks_off, "broke off in the middle", Exit.GONE),
    "half a document": (bad.says(bad.success(ROWS)[:-9]), "no answer of Prometheus", Exit.GONE),
    "another page": (bad.says(b"<html>", kind="text/html"),
                     "no answer of Prometheus: 200, text/html", Exit.GONE),
    "nested without end": (bad.says(b"[" * 100_000), "no answer of Prometheus", Exit.GONE),
    "not found": (bad.says(b"no such page", status=404), "no answer of Prometheus: 404", Exit.GONE),
    "unauthorised": (bad.says(b"", status=401), "does not let us in (401)", Exit.PERMISSION),
    "elsewhere": (bad.says(b"", status=302, Location="https://sso/login"), "https://sso/login",
                  Exit.USAGE),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_a_sentence(server: bad.Server, what: str) -> None:
    server.answers["up"], words, code = FAILURES[what]
    with pytest.raises(Problem, match=re.escape(words)) as caught:
        Prometheus.here(server.url).now("up")
    assert caught.value.code == code
    assert caught.value.next_step


def test_a_server_that_is_down() -> None:
    with pytest.raises(Problem, match="does not answer: Connection refused") as caught:
        Prometheus.here(f"http://127.0.0.1:{bad.closed_port()}").now("up")
    assert caught.value.code == Exit.GONE


@pytest.mark.parametrize("slow", [bad.drips, lambda *_: time.sleep(1.5)])
def test_a_slow_one_is_given_up_at_the_deadline(
    server: bad.Server, slow: Callable[..., None]
) -> None:
    server.answers["up"] = slow
    began = time.monotonic()
    with pytest.raises(Problem, match=re.escape("has not answered within 0.4 s")):
        Prometheus.here(server.url, seconds=0.4).now("up")
    assert time.monotonic() - began < 1.2
    # The server is told, and ends, too.
    assert server.asked[0].form["timeout"] == "0.4s"


def test_an_answer_without_end_is_given_up(
    server: bad.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "LONGEST_BYTES", 1 << 20)
    server.answers["up"] = bad.says(b" " * (2 << 20))
    with pytest.raises(Problem, match="more than 1 MiB"):
        Prometheus.here(server.url).now("up")


def test_what_is_odd_about_rows_stands_beside_them(server: bad.Server) -> None:
    found = json.loads(bad.success([*ROWS, ({}, float("nan"))], warnings=["a store is away"]))
    found["data"]["result"] += [{"metric": {}}, "x", {"metric": {}, "value": [1, "one"]}]
    server.answers["up"] = bad.says(json.dumps({**found, "isPartial": True}).encode())
    answer = Prometheus.here(server.url).now("up")
    assert [row.labels for row in answer.rows] == [{"instance": "node1"}]
    assert answer.notes == (
        "a store is away", "the answer is partial: some storage nodes did not answer",
        "3 of 5 series could not be read",
    )  # fmt: skip


@pytest.mark.parametrize("url", ["ftp://a", "http://", "node1:9090", "http://a:x", "http://a/?q=1",
                                 "http://[::1"])  # fmt: skip
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(Problem, match="no address of a server"):
        Prometheus.here(url)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(Problem) as caught:
        Prometheus.here("http://ada:secret@node1:9090")
    assert "secret" not in str(caught.value)
    assert USER in caught.value.next_step


def test_without_a_server_it_says_what_to_set() -> None:
    with pytest.raises(Problem, match="No Prometheus server is named") as caught:
        Prometheus.here()
    assert f"export {URL}=" in caught.value.next_step


def test_it_is_let_in_by_the_environment(
    server: bad.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, server.url)
    monkeypatch.setenv(USER, "ada")
    monkeypatch.setenv(PASSWORD, "secret")
    client = Prometheus.here()
    client.now("up")
    assert server.asked[-1].headers["Authorization"] == (
        f"Basic {base64.b64encode(b'ada:secret').decode()}"
    )
    monkeypatch.setenv(TOKEN, "abc")
    Prometheus.here().now("up")
    assert server.asked[-1].headers["Authorization"] == "Bearer abc"
    assert "secret" not in repr(client)
    monkeypatch.setenv(TOKEN, "a\r\nHost: b")
    with pytest.raises(Problem, match=TOKEN):
        Prometheus.here()


def test_a_selector_matches_values_and_nothing_else() -> None:
    assert selector(instance=["a.b:9400", 'x"y|z']) == r'{instance=~"a\\.b:9400|x\"y\\|z"}'
