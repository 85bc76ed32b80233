"""The link to an agent that keeps to the contract."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.link.conftest import FS, Puppet, key_of, until
from whyidle.agents import wire
from whyidle.monitor.link.channel import Address
from whyidle.monitor.link.link import Link, LinkLost
from whyidle.monitor.link.records import Bye, Clock, Gauges, Hello, Record
from whyidle.monitor.processes.process import ProcessKey


def exchange_to_the_end(link: Link) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            found += link.exchange()
        except LinkLost:
            return found
    pytest.fail(f"the link goes on: {found}")


def test_an_agent_says_who_it_is_and_what_it_saw(puppet: Puppet, link: Link) -> None:
    assert link.hello["method"] == "ptrace"
    puppet.write("gauges", {wire.RSS_PEAK_BYTES: 5, wire.GC_NS: None})
    found = until(link, lambda seen: len(seen) == 3)
    assert [type(r) for r in found] == [Hello, Clock, Gauges]
    assert isinstance(found[2], Gauges)
    assert found[2].values == {"rss_peak_bytes": 5.0, "gc_ns": None}


def test_where_no_agent_is_there_is_no_link(puppet: Puppet) -> None:
    puppet.do("bye")
    address = Address.of(puppet.key, FS)
    assert address is not None
    assert not address.is_there()
    assert Link.open(puppet.key, FS) is None


def test_a_pid_that_was_given_away_is_not_linked(puppet: Puppet) -> None:
    address = Address.of(puppet.key, FS)
    assert address is not None
    assert address.is_there()
    assert Link.open(ProcessKey(puppet.pid, puppet.key.start_ticks + 1), FS) is None


def test_who_has_gone_is_not_linked() -> None:
    key = key_of(1)
    assert Link.open(ProcessKey(2**22 + 1, key.start_ticks), FS) is None


def test_a_spool_that_was_emptied_is_read_from_its_start(puppet: Puppet, link: Link) -> None:
    for _ in range(20):
        puppet.write("gauges", {"rss_peak_bytes": 6})
    until(link, lambda seen: len(seen) == 22)
    puppet.do("empty")
    puppet.write("gauges", {"rss_peak_bytes": 7})
    found = until(link, lambda seen: any(isinstance(r, Gauges) for r in seen))
    assert [type(r) for r in found] == [Hello, Clock, Gauges]


def test_half_a_line_waits_for_the_other_half(puppet: Puppet, link: Link) -> None:
    until(link, lambda seen: len(seen) == 2)
    with puppet.spool.open("a") as spool:
        spool.write('["gauges",1,')
    for _ in range(5):
        assert link.exchange() == []
    with puppet.spool.open("a") as spool:
        spool.write('{"rss_bytes":9}]\n')
    assert until(link, bool) == [Gauges(1, {"rss_bytes": 9.0})]
    assert link.damaged == 0


def test_the_last_records_of_a_killed_job_are_read_and_its_files_removed(
    puppet: Puppet, link: Link
) -> None:
    until(link, lambda seen: len(seen) == 2)
    puppet.write("gauges", {"rss_bytes": 11})
    puppet.process.kill()
    puppet.process.wait()
    found = exchange_to_the_end(link)
    assert [type(r) for r in found] == [Gauges]
    assert link.bye is None
    link.remove_leftovers()
    assert not puppet.spool.exists()
    assert not puppet.socket.exists()


def test_what_another_process_put_there_since_is_not_removed(puppet: Puppet, link: Link) -> None:
    puppet.process.kill()
    puppet.process.wait()
    puppet.spool.unlink()
    puppet.spool.write_text("another's")
    link.remove_leftovers()
    assert puppet.spool.read_text() == "another's"


def test_an_agent_that_goes_says_why(puppet: Puppet, link: Link) -> None:
    puppet.do("bye")
    assert isinstance(exchange_to_the_end(link)[-1], Bye)
    assert link.bye == "lease"
    # The process lives, and has nothing to be removed.
    assert puppet.process.poll() is None


def test_who_is_asked_to_leave_leaves(puppet: Puppet, link: Link) -> None:
    assert isinstance(link.leave(5.0)[-1], Bye)
    assert link.bye == "detached"
    assert not puppet.socket.exists()


def test_who_asks_to_leave_asks_for_no_lease_any_more(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = link._control.ask

    def listen(do: str, **more: Any) -> None:
        asked.append(do)
        ask(do, **more)

    monkeypatch.setattr(link._control, "ask", listen)
    link.ask_to_leave()
    exchange_to_the_end(link)
    assert asked == ["leave"]
    assert link.bye == "detached"


def test_an_agent_that_others_keep_stays(puppet: Puppet, link: Link) -> None:
    puppet.do("kept")
    link.ask_to_leave()
    exchange_to_the_end(link)
    assert link.stays
    assert link.bye is None
    assert puppet.socket.exists()


def test_an_agent_that_does_not_answer_is_not_waited_for(puppet: Puppet, link: Link) -> None:
    until(link, lambda seen: len(seen) == 2)
    puppet.do("hang")
    for _ in range(100):
        link.exchange()
    puppet.write("gauges", {"rss_bytes": 13})
    assert len(until(link, bool)) == 1
    assert link.leave(0.05) == []


def test_moments_are_ours_where_the_clock_is(puppet: Puppet, link: Link) -> None:
    until(link, lambda seen: len(seen) == 2)
    assert link.monotonic_ns(12345) == 12345
