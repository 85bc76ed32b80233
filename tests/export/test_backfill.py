"""What nobody scraped: kept, sent once a server takes it, and there once only."""

from __future__ import annotations

import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Monitor
from tests.export.exporter import exporter, values
from tests.export.receiver import CUT, READ_AND_CUT, receiver
from tests.export.servers import MetricsServer, prometheus, victoria_metrics
from whyidle.monitor.core.errors import Problem, StorageProblem
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.protobuf import fields
from whyidle.monitor.export import unscraped
from whyidle.monitor.export.collector import Collector
from whyidle.monitor.export.exposition import Family
from whyidle.monitor.export.exposition import page as written
from whyidle.monitor.export.fleet_files import CONFIG, TARGETS, files
from whyidle.monitor.export.remote_write import Refused, Sender, encoded
from whyidle.monitor.export.server import Server
from whyidle.monitor.export.unscraped import (
    BETWEEN,
    EVERY_SECONDS,
    FILE,
    REFUSED_PAUSE,
    Backfill,
    Kept,
    Scrapes,
    Unscraped,
    packed,
    together,
)
from whyidle.monitor.export.web_config import WebConfig

cramjam = pytest.importorskip("cramjam")
Tape = Callable[..., dict[str, str]]
NOW = time.time_ns() // 1_000_000
Sent = dict[tuple[str, str, int], float]


def page(value: float, **labels: str) -> bytes:
    family = Family("whyidle_gpu_power_watts", "gauge", "Power.")
    family.add(value, {"gpu": "0", "empty": "", **labels})
    return packed([family])


def sent(bodies: list[bytes]) -> list[Sent]:
    """Read each request: by name, instance and time its value."""
    return [_read(bytes(cramjam.snappy.decompress_raw(body))) for body in bodies]


def _read(raw: bytes) -> Sent:
    found: Sent = {}
    for series in _parts(raw, 1):
        pairs = [[part.decode() for number in (1, 2) for part in _parts(label, number)]
                 for label in _parts(series, 1)]  # fmt: skip
        assert pairs == sorted(pairs)
        labels = dict(pairs)
        for sample in _parts(series, 2):
            (_, _, at, _), (_, _, ms, _) = fields(sample, 0, len(sample))
            (value,) = struct.unpack_from("<d", sample, at)
            found[labels["__name__"], labels["instance"], ms] = value
    return found


def _parts(raw: bytes, number: int) -> Iterator[bytes]:
    for each, wire, value, stop in fields(raw, 0, len(raw)):
        if (each, wire) == (number, 2):
            yield raw[value:stop]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Unscraped]:
    with closing(Unscraped(tmp_path / "state" / FILE)) as opened:
        yield opened


def backfill(store: Unscraped, url: str, state: Path, value: float = 1.0) -> Backfill:
    family = Family("whyidle_gpu_power_watts", "gauge", "Power.")
    family.add(value, {"gpu": "0"})
    sender = Sender(url)
    collector = Collector(state / DATABASE, print)
    return Backfill(collector, lambda: [family], sender, store,
                    lambda name: {"job": "whyidle", "instance": name or "node7:9400"})  # fmt: skip


def test_a_server_is_missed_by_how_often_it_came() -> None:
    clock = Clock()
    scrapes = Scrapes(clock)
    clock.now += 44
    assert not scrapes.is_missed
    clock.now += 2
    assert scrapes.is_missed
    scrapes.note("node1:9400")
    assert not scrapes.is_missed
    clock.now += 60
    scrapes.note("node1:9400")
    clock.now += 149
    assert not scrapes.is_missed
    clock.now += 2
    assert scrapes.is_missed
    scrapes.note("")
    assert scrapes.instance == "node1:9400"


def test_who_only_looks_changes_no_name() -> None:
    scrapes = Scrapes()
    for n in range(40):
        scrapes.note("node1:9400")
        if n % 3 == 0:
            scrapes.note("other:9400")
        assert scrapes.instance == "node1:9400"
    # The server has given it a new name.
    for _ in range(20):
        scrapes.note("10.0.0.1:9400")
    assert scrapes.instance == "10.0.0.1:9400"


def test_only_what_nobody_scraped_is_kept(store: Unscraped, state: Path) -> None:
    filling = backfill(store, "http://127.0.0.1:9", state)
    clock = Clock()
    filling.scrapes = Scrapes(clock)
    for _ in range(4):
        filling.keep()
        time.sleep(0.002)
        filling.scrapes.note("node1:9400")
        clock.now += 15
    assert store.oldest() == []
    last = filling.scrapes.last_ms
    for _ in range(5):
        time.sleep(0.002)
        filling.keep()
        clock.now += 15
    # Also those of before it was missed, and none of before it came.
    kept = [each.ms for each in store.oldest()]
    assert len(kept) == 5
    assert min(kept) > last


def test_all_arrives_once_though_connections_drop(store: Unscraped, state: Path) -> None:
    """Whatever becomes of a request: what has arrived is everything, the same at the same time."""
    pages = [Kept(NOW - 15_000 * (100 - n), page(float(n))) for n in range(100)]
    store.add(pages)
    with receiver(CUT, READ_AND_CUT, 503, 200, CUT, 429, READ_AND_CUT, 500) as got:
        filling = backfill(store, got.url, state)
        pauses = []
        while store.oldest():
            pauses.append(filling.next_pause())
            assert len(pauses) < 40
        assert got.paths[0] == "/api/v1/write"
        assert got.headers[0]["content-encoding"] == "snappy"
        assert got.headers[0]["x-prometheus-remote-write-version"] == "0.1.0"
        requests = sent(got.bodies)
    arrived: Sent = {}
    for each in requests:
        for key, value in each.items():
            assert arrived.setdefault(key, value) == value
    assert arrived == {
        ("whyidle_gpu_power_watts", "node7:9400", each.ms): float(n) for n, each in enumerate(pages)
    }
    # After each failure it waits for longer.
    assert pauses[:3] == [10.0, 20.0, 40.0]
    assert pauses[3] == 0.2
    assert filling._collector.problems == {}


def test_what_a_server_never_wants_stays_and_is_said(
    store: Unscraped, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.add([Kept(NOW, page(1.0))])
    with receiver(404) as got:
        filling = backfill(store, got.url, state)
        assert filling.next_pause() == REFUSED_PAUSE
        assert "--web.enable-remote-write-receiver" in capsys.readouterr().out
        assert len(store.oldest()) == 1
        assert filling.next_pause() == BETWEEN
        assert filling.next_pause() == EVERY_SECONDS
    assert store.oldest() == []
    assert "backfill: works again." in capsys.readouterr().out


@pytest.mark.parametrize("answer", [301, 302, 303, 307, 308])
def test_a_password_goes_nowhere_else_and_a_redirect_has_written_nothing(
    store: Unscraped, state: Path, capsys: pytest.CaptureFixture[str], answer: int
) -> None:
    store.add([Kept(NOW, page(1.0))])
    with receiver() as other, receiver(answer, location=other.url) as got:
        filling = backfill(store, got.url.replace("//", "//me:secret@"), state)
        assert filling.next_pause() == REFUSED_PAUSE
        assert len(got.bodies) == 1
        assert other.bodies == []
    assert len(store.oldest()) == 1
    said = capsys.readouterr().out
    assert f"sends us on to '{other.url}'" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"\0\xff hello\r\n\r\n", "does not answer in HTTP"), (b"HTTP/1.1 200 OK\r\n\r\n", "")],
)
def test_what_answers_nonsense_or_without_end_is_named_and_not_listened_to(
    answer: bytes, said: str
) -> None:
    def endless() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(answer)
            while not said:
                connection.sendall(bytes(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as server:
        talks = threading.Thread(target=endless)
        talks.start()
        url = f"http://me:secret@127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Problem, match=said) if said else nullcontext():
            Sender(url).send({})
        talks.join(10)
        assert not talks.is_alive()


@pytest.mark.parametrize(
    ("answer", "said"), [(404, "--web.enable-remote-write-receiver"), (400, "not now")]
)
def test_a_wrong_url_is_said_before_it_is_needed(
    store: Unscraped, state: Path, capsys: pytest.CaptureFixture[str], answer: int, said: str
) -> None:
    with receiver(answer) as got:
        filling = backfill(store, got.url, state)
        assert filling.next_pause() == REFUSED_PAUSE
        assert said in capsys.readouterr().out
        # An hour later it is mended, and then there is nothing to ask for.
        assert [filling.next_pause() for _ in range(3)] == [EVERY_SECONDS] * 3
        assert sent(got.bodies) == [{}, {}]


def test_what_is_too_old_for_a_server_holds_up_nothing_newer(
    store: Unscraped, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.add([Kept(NOW - n, page(float(n))) for n in range(40)])
    with receiver(400) as got:
        filling = backfill(store, got.url, state)
        pauses = [filling.next_pause() for _ in range(4)]
        assert pauses == [BETWEEN, BETWEEN, BETWEEN, REFUSED_PAUSE]
        assert [each.ms for each in store.oldest()] == [*range(NOW - 39, NOW - 23)]
        assert "out_of_order_time_window" in capsys.readouterr().out
        # An hour later it may have been mended.
        assert filling.next_pause() == BETWEEN
        assert store.oldest() == []


def test_what_no_server_would_take_any_more_goes(store: Unscraped, state: Path) -> None:
    store.add([Kept(NOW - unscraped.KEEP_MS - 60_000, page(1.0)), Kept(NOW, page(2.0))])
    with receiver() as got:
        assert backfill(store, got.url, state).send()
    assert list(sent(got.bodies)[0].values()) == [2.0]


def test_pages_and_the_name_outlive_the_exporter(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with closing(Unscraped(path)) as first:
        first.add([Kept(5, page(1.0))])
        assert first.instance("node1:9400") == "node1:9400"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with closing(Unscraped(path)) as second:
        assert second.oldest() == [Kept(5, page(1.0))]
        assert second.instance("") == "node1:9400"


def test_the_file_is_bounded(store: Unscraped, monkeypatch: pytest.MonkeyPatch) -> None:
    now = NOW
    monkeypatch.setattr(unscraped, "MOST_BYTES", 250)
    store.add([Kept(now + n, b"x" * 100) for n in (1, 2, 3)])
    assert [each.ms for each in store.oldest()] == [now + 2, now + 3]


def test_large_pages_go_one_by_one(store: Unscraped) -> None:
    large = unscraped.BYTES_AT_ONCE + 1
    store.add([Kept(n, b"x" * (large if n < 3 else 100)) for n in range(1, 40)])
    assert [each.ms for each in store.oldest()] == [1]
    store.drop(store.oldest())
    assert [each.ms for each in store.oldest()] == [2]
    store.drop(store.oldest())
    assert [each.ms for each in store.oldest()] == [*range(3, 3 + unscraped.PAGES_AT_ONCE)]


def test_a_damaged_page_holds_up_no_other() -> None:
    pages = [Kept(1, b"no zlib"), Kept(2, page(2.0))]
    ((series, points),) = together(pages, {"instance": "a"}).items()
    assert points == [(2, 2.0)]
    assert dict(series) == {
        "__name__": "whyidle_gpu_power_watts", "gpu": "0", "instance": "a"
    }  # fmt: skip


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageProblem, match="cannot be kept"):
        Unscraped(tmp_path / "file" / FILE)


def test_a_password_goes_into_the_header_and_into_no_message() -> None:
    with receiver(401) as got:
        sender = Sender(got.url.replace("://", "://ada:s%40fe@") + "/write?key=s%40fe")
        with pytest.raises(Refused) as refused:
            sender.send({(("__name__", "a"),): [(1, 1.0)]})
    assert got.headers[0]["authorization"] == "Basic YWRhOnNAZmU="
    assert got.paths == ["/write?key=s%40fe"]
    assert "s%40fe" not in str(refused.value)
    assert "s@fe" not in str(refused.value)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://a", "http://", "nothing"])
def test_what_is_no_url_is_said(monitor: Monitor, url: str) -> None:
    done = monitor("export", "--backfill", url)
    assert done.returncode == 2
    assert "--backfill http://prometheus:9090" in done.stderr
    # With a password it is better off in the environment.
    done = monitor("export", env={"WHYIDLE_BACKFILL_URL": url})
    assert done.returncode == 2
    assert monitor("export", "--once", env={"WHYIDLE_BACKFILL_URL": url}).returncode == 0


def test_a_label_without_a_value_is_refused(monitor: Monitor) -> None:
    done = monitor("export", "--backfill", "http://a", "--label", "cluster")
    assert done.returncode == 2
    assert "--label cluster=a" in done.stderr


def test_numbers_of_any_size_are_written_whole() -> None:
    raw = encoded({(("__name__", "a" * 200),): [(2**42 + 1, 1e300), (0, -1.5)]})
    (series,) = _parts(raw, 1)
    first, second = _parts(series, 2)
    assert [x[2] for x in fields(first, 0, len(first))][1] == 2**42 + 1
    assert struct.unpack_from("<d", second, 1) == (-1.5,)


# With the real servers -------------------------------------------------------------------------
def running(kind: str, tmp_path: Path, interval: str = "1s") -> Any:
    """Start one with what `monitor fleet init` writes."""
    for name, text in files(["127.0.0.1:1"]).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("interval: 15s", f"interval: {interval}"))
    if kind == "prometheus":
        return prometheus(
            tmp_path / CONFIG, tmp_path / "data", "--web.enable-remote-write-receiver"
        )
    return victoria_metrics(
        tmp_path / "data", f"-promscrape.config={tmp_path / CONFIG}",
        "-promscrape.config.strictParse=false", "-dedup.minScrapeInterval=1ms",
        "-promscrape.fileSDCheckInterval=1s",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["prometheus", "victoria-metrics"])
def test_hours_that_were_missed_are_there_once(
    kind: str, tmp_path: Path, store: Unscraped, state: Path
) -> None:
    """Old samples arrive behind newer ones, and twice, as after a crash: each is there once."""
    now = time.time_ns() // 1_000_000
    pages = [Kept(now - 3 * 3600_000 + 60_000 * n, page(float(n))) for n in range(170)]
    with running(kind, tmp_path) as server:
        filling = backfill(store, server.url, state)
        # It takes nothing at all, too.
        assert not filling.send()
        newest = Kept(now, page(1000.0))
        filling._sender.send(together([newest], filling._labels("")))
        for _ in range(2):
            store.add(pages)
            while filling.send():
                pass
        assert _counted(server, now, 171) == ["171"]
        (found,) = server.ask("max_over_time(whyidle_gpu_power_watts[30m])", time=now / 1000 - 7200)
        assert found["value"][1] == "60"
        labels = {"job": "whyidle", "instance": "node7:9400", "gpu": "0"}
        assert found["metric"].items() >= labels.items()


def _counted(server: MetricsServer, now: int, number: int) -> list[str]:
    end = time.monotonic() + 20
    found: list[str] = []
    while time.monotonic() < end:
        asked = server.ask("count_over_time(whyidle_gpu_power_watts[4h])", time=now / 1000 + 1)
        found = [each["value"][1] for each in asked]
        if found == [str(number)]:
            break
        time.sleep(0.3)
    return found


@pytest.mark.parametrize("kind", ["prometheus", "victoria-metrics"])
def test_a_scrape_is_told_from_a_look_and_says_our_name(kind: str, tmp_path: Path) -> None:
    came: list[str] = []
    server = Server("127.0.0.1", 0, lambda: b"up_to_date 1\n", WebConfig(), came.append)
    server.start()
    try:
        with running(kind, tmp_path):
            at = f"127.0.0.1:{server.server_port}"
            (tmp_path / TARGETS).write_text(f'[{{"targets": ["{at}"]}}]')
            end = time.monotonic() + 60
            while not came and time.monotonic() < end:
                time.sleep(0.2)
        assert came[0] == at
    finally:
        server.close()


@pytest.mark.parametrize("kind", ["prometheus", "victoria-metrics"])
def test_a_gap_is_filled_when_the_server_comes_back(
    kind: str, tmp_path: Path, store: Unscraped, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scraped, then its server is away, then it is back: one series, without a hole or a step."""
    for name, value in (("EVERY_SECONDS", 0.5), ("SHORTEST_GRACE", 3.0), ("FIRST_PAUSE", 0.2)):
        monkeypatch.setattr(unscraped, name, value)
    began = time.time()

    def grown() -> list[Family]:
        family = Family("whyidle_gpu_seconds_total", "counter", "Time.")
        family.add(time.time() - began, {"gpu": "0"})
        return [family]

    filling = backfill(store, "http://127.0.0.1:9", state)
    filling._families = grown
    scraped = Server("127.0.0.1", 0, lambda: written(grown()), WebConfig(), filling.scrapes.note)
    scraped.start()
    filling.start()
    try:
        with running(kind, tmp_path) as server:
            at = f"127.0.0.1:{scraped.server_port}"
            (tmp_path / TARGETS).write_text(f'[{{"targets": ["{at}"]}}]')
            server.until("count_over_time(whyidle_gpu_seconds_total[1m]) >= 4", 1, 60)
            left = time.time()
        # Of before it first came, which took it some seconds, there are pages, too.
        while len(store.oldest(int(left * 1000))) < 8:
            time.sleep(0.2)
        with running(kind, tmp_path) as server:
            (tmp_path / TARGETS).write_text(f'[{{"targets": ["{at}"]}}]')
            back = time.time()
            filling._sender = Sender(server.url)
            seconds = f"timestamp(whyidle_gpu_seconds_total) > {back + 3}"
            server.until(seconds, 1, 60)
            while store.oldest():
                time.sleep(0.2)
            time.sleep(1.5)
            (found,) = server.ask("whyidle_gpu_seconds_total[5m]")
    finally:
        filling.close()
        scraped.close()
    assert found["metric"]["instance"] == at
    _is_whole([(float(at) - began, float(value)) for at, value in found["values"]])
    # The first of them may still have been scraped, and the last as well.
    assert sum(left < float(at) < back for at, _ in found["values"]) >= 4


def _is_whole(points: list[tuple[float, float]]) -> None:
    """Each moment is there once, has its own value, and comes soon after the one before."""
    times, counted = zip(*points, strict=True)
    assert list(times) == sorted(set(times))
    assert list(counted) == sorted(counted)
    assert max(b - a for a, b in pairwise(times)) < 4.0
    assert list(times) == pytest.approx(list(counted), abs=0.3)


def test_an_exporter_that_nobody_scrapes_sends_by_itself(
    tape: Tape, state: Path, tmp_path: Path
) -> None:
    """From the driver to the real server: what a scrape would have given, by the same names."""
    with running("prometheus", tmp_path) as server:
        env = tape("one_gpu", TRAINER=os.getpid())
        options = ("--backfill", server.url, "--label", "cluster=a", "--host", "node7")
        with exporter(env, state, *options) as alone:
            (found,) = server.until('DCGM_FI_DEV_GPU_TEMP{cluster="a"}', 1, 110)
            assert found["metric"]["instance"] == f"node7:{alone.port}"
            assert found["metric"]["Hostname"] == "node7"
            # As the tape plays.
            assert found["value"][1] in {"54", "57", "58"}
            assert server.ask("whyidle_gpu_seconds_total")
            assert values(alone.scrape(), "whyidle_exporter_problem", part="backfill") == [0]


def test_a_problem_that_passes_is_no_refusal() -> None:
    with receiver(503) as got, pytest.raises(Problem) as caught:
        Sender(got.url).send({(("__name__", "a"),): [(1, 1.0)]})
    assert not isinstance(caught.value, Refused)
