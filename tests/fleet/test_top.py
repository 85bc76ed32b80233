"""``monitor fleet top``: what it says when a server knows all, and when it knows half."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Monitor
from tests.fleet import misbehaving as bad
from tests.fleet.answers import JOB, whole
from whyidle.monitor.core.contracts.fleet import FleetJson
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.export import families as f
from whyidle.monitor.fleet import answer, asking
from whyidle.monitor.fleet.prometheus import TOKEN, URL, USER, Prometheus
from whyidle.monitor.fleet.queries import (
    DIMENSIONS,
    Query,
    filled,
    main,
    of_hosts,
    of_jobs,
)  # fmt: skip

DAY = 86_400


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (URL, TOKEN, USER):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[bad.Server]:
    with bad.serving(bad.Server(whole())) as running:
        yield running


def top(monitor: Monitor, server: bad.Server, *options: str) -> dict[str, Any]:
    done = monitor("fleet", "top", "--url", server.url, "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("schema") == 1
    return found


def test_it_tells_what_is_lost_and_to_whom(monitor: Monitor, server: bad.Server) -> None:
    found = top(monitor, server)
    assert found.keys() == {*FleetJson.__struct_fields__}
    assert found["unknown"] == {}
    assert found["source"] == "rules"
    assert (found["lost_gpu_hours"], found["job_gpu_hours"]) == (3.0, 12.0)
    (job,) = found["lost"]["job"]
    assert job["labels"] == JOB
    assert (job["gpu_hours"], job["share"], job["run"]) == (3.0, 0.25, "5")
    assert job["framework"] == "jax"
    assert job["causes"] == {"input": 2.0, "gc": 1.0}
    causes = [(x["labels"]["cause"], x["share"]) for x in found["lost"]["cause"]]
    assert causes == [("input", 0.6667), ("gc", 0.3333)]
    (host,) = found["lost"]["host"]
    assert (host["kwh"], host["money"]) == (0.6, {"EUR": 7.5})
    assert found["held"]["true"] == {
        "gpu_hours": 12.0, "idle_gpu_hours": 3.0, "kwh": 0.6, "money": {"EUR": 7.5},
    }  # fmt: skip
    assert [one["alert"] for one in found["alerts"]] == ["WhyidleGpuLost", "WhyidleGpuXid"]
    assert found["held_idle"] == [{"labels": JOB, "gpus": 2}]


def test_it_is_read_in_the_terminal(monitor: Monitor, server: bad.Server) -> None:
    said = monitor("fleet", "top", "--url", server.url).stdout
    for words in (
        "1 answer; 1 no longer: node9:9400", "lost   3.0 GPU-hours, 25% of the time of jobs",
        "8, of which 2 are held", "held   3.0 of 12.0 GPU-hours idle: 0.6 kWh, 7.50 EUR",
        "3.0          25%  input   ada   vision  node1:9400  5    pid 11",
        "critical  WhyidleGpuLost  gpu=0",
    ):  # fmt: skip
        assert words in said, said
    # Nobody has a namespace: that is no table.
    assert "namespace" not in said


def test_by_asks_for_one_table_and_no_other(monitor: Monitor, server: bad.Server) -> None:
    found = top(monitor, server, "--by", "user")
    assert found["lost"].keys() == {"user"}
    assert not [one for one in server.asked if "by (team)" in one.form["query"]]


FAULTS = {
    "an error": (bad.fails("too many samples"), "answers with an error: too many samples"),
    "half an answer": (bad.breaks_off, "broke off in the middle of an answer"),
    "another page": (bad.says(b"<html>", kind="text/html"), "is no answer of Prometheus"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_is_said_and_the_rest_is_kept(
    monitor: Monitor, server: bad.Server, fault: str
) -> None:
    server.answers = {"by (user) (sum_over_time(whyidle_job_idle": FAULTS[fault][0], **whole()}
    found = top(monitor, server)
    assert found["unknown"].keys() == {"lost.user"}
    assert FAULTS[fault][1] in found["unknown"]["lost.user"]
    assert found["lost"]["user"] == []
    assert found["lost"]["job"]
    assert found["lost_gpu_hours"] == 3.0
    said = monitor("fleet", "top", "--url", server.url).stdout
    assert "by user: " in said
    assert FAULTS[fault][1] in said


def test_a_part_that_is_slow_costs_only_itself(server: bad.Server) -> None:
    server.answers = {**whole(), "ALERTS": bad.drips}
    began = time.monotonic()
    found = answer.ask(Prometheus.here(server.url, seconds=0.5), DAY)
    assert time.monotonic() - began < 5
    assert found.unknown.keys() == {"alerts"}
    assert "has not answered within 0.5 s" in found.unknown["alerts"]
    assert found.lost["job"]


def test_a_server_that_is_slow_with_all_is_given_up(
    server: bad.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "ALL_SECONDS", 0.6)
    server.answers = {"time()": whole()["[15m]"], "[15m]": whole()["[15m]"], "": bad.drips}
    began = time.monotonic()
    found = answer.ask(Prometheus.here(server.url, seconds=0.4), DAY)
    assert time.monotonic() - began < 3
    assert asking.TOO_SLOW in found.unknown.values()


def test_half_of_a_cluster_is_said(monitor: Monitor, server: bad.Server) -> None:
    partial = bad.says(bad.success([({"user": "ada"}, 3.0)], isPartial=True))
    server.answers = {"by (user) (sum_over_time(whyidle_job_idle": partial, **whole()}
    found = top(monitor, server)
    assert found["lost"]["user"]
    assert found["notes"] == [
        "lost.user: the answer is partial: some storage nodes did not answer."
    ]


@pytest.mark.parametrize(("ahead", "words"), [(420, "420 s ahead of"), (-420, "420 s behind")])
def test_another_clock_is_said_and_counts(
    monitor: Monitor, server: bad.Server, ahead: float, words: str
) -> None:
    server.ahead = ahead
    found = top(monitor, server)
    assert any(words in note for note in found["notes"]), found["notes"]
    # A trend ends where the server's time does.
    ends = [float(x.form["end"]) for x in server.asked if "end" in x.form]
    assert ends
    assert all(abs(end - time.time() - ahead) < 800 for end in ends)
    assert abs(found["now_ms"] / 1000 - time.time() - ahead) < 30


def test_without_the_rules_the_counters_are_added_up(monitor: Monitor, server: bad.Server) -> None:
    server.answers = {"[15m]": [], f.BUILD.name: [({}, 1.0)]}
    found = top(monitor, server)
    assert found["source"] == "counters"
    assert any("monitor fleet init" in note for note in found["notes"])
    assert not [x for x in server.asked if ":increase5m[86400s]" in x.form["query"]]


def test_a_server_that_nothing_is_scraped_by(monitor: Monitor, server: bad.Server) -> None:
    server.answers = {}
    found = top(monitor, server)
    assert any("No host answers" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--url", f"http://127.0.0.1:{bad.closed_port()}"), Exit.GONE, "does not answer"),
        # A shell would read the "?" as a pattern of its own.
        (
            ("--url", "http://127.0.0.1:1"),
            Exit.GONE,
            "curl 'http://127.0.0.1:1/api/v1/query?query=up'",
        ),
        ((), Exit.USAGE, "export WHYIDLE_PROM_URL="),
        (("--url", "http://127.0.0.1:1", "--since", "1s"), Exit.USAGE, "--since 24h"),
    ],
)
def test_it_says_why_it_cannot_ask(
    monitor: Monitor, options: tuple[str, ...], code: Exit, words: str
) -> None:
    done = monitor("fleet", "top", *options)
    assert done.returncode == code
    assert words in done.stderr


def test_who_is_not_let_in_is_told(monitor: Monitor, server: bad.Server) -> None:
    server.answers = {"": bad.says(b"", status=401)}
    done = monitor("fleet", "top", "--url", server.url)
    assert done.returncode == Exit.PERMISSION
    assert TOKEN in done.stderr


def test_a_name_of_a_host_draws_nothing_on_the_terminal(
    monitor: Monitor, server: bad.Server
) -> None:
    server.answers = {
        "unless on (instance)": [({"instance": "\x1b[31mnode"}, 1.0)],
        "by (user) (sum_over_time(whyidle_job_idle": bad.fails("\x1b[2J"), **whole(),
    }  # fmt: skip
    assert "\x1b" not in monitor("fleet", "top", "--url", server.url).stdout


def test_queries_ask_for_the_time_and_for_few() -> None:
    for source in ("rules", "counters"):
        asked = [*main(DIMENSIONS, source), *of_jobs('{job_key="1-2"}', source),
                 *of_hosts('{instance="a"}', source)]  # fmt: skip
        assert len({query.part for query in asked}) == len(asked)
        for query in asked:
            assert "$" not in filled(query.text, DAY, 720), query
    assert isinstance(asked[0], Query)
