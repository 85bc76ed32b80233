"""The link to one agent: reads its spool to the end, renews its lease, and asks it to leave."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any

from whyidle.agents import wire
from whyidle.monitor.link.channel import Address, Channel, LinkRefused
from whyidle.monitor.link.control import Control
from whyidle.monitor.link.records import Bye, Clock, Record, Traced
from whyidle.monitor.link.spool import Spool
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs

HELLO_SECONDS = 0.5
# A full spool, read a piece at a time.
MOST_PIECES = 20
KNOB_QUESTIONS = ("watch", "knob", "back", "keep")
# Answers and records about traces that nobody has taken yet.
MOST_UNTAKEN = 64

__all__ = ["Link", "LinkLost", "LinkRefused"]


class LinkLost(Exception):  # noqa: N818  agents go
    """The agent is gone, and everything that it wrote was read."""


class Link:
    """The link to an agent that answered. Used by one thread at a time."""

    def __init__(
        self, key: ProcessKey, fs: ProcFs, channel: Channel, control: Control, spool: Spool
    ) -> None:
        self.key = key
        self.hello: Mapping[str, Any] = {}
        # The reason in the agent's last record.
        self.bye: str | None = None
        # About traces: answers to our requests; and records, also of traces for other clients.
        self.trace_answers: deque[Mapping[str, Any]] = deque(maxlen=MOST_UNTAKEN)
        self.traced: deque[Traced] = deque(maxlen=MOST_UNTAKEN)
        # Answers to what was asked of knobs.
        self.knob_answers: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=MOST_UNTAKEN)
        self._channel = channel
        self._control = control
        self._spool = spool
        # After asking to leave we renew no lease: that would keep the agent.
        self._leaving = False
        self._has_left = False
        # Where the spool ended once the agent was gone.
        self._end: int | None = None
        self._other_clock = fs.link(f"{key.pid}/ns/time") != fs.link("self/ns/time")
        self._shift_ns = 0
        # Read now: a process that dies while it is watched has no /proc entry any more.
        ours = fs.link("self/ns/pid")
        same_pids = ours is not None and fs.link(f"{key.pid}/ns/pid") == ours
        self._proc = str(fs.root) if same_pids else None

    @classmethod
    def open(cls, key: ProcessKey, fs: ProcFs, seconds: float = HELLO_SECONDS) -> Link | None:
        """Return the link to the agent of a process; ``None`` where none answers in time."""
        address = Address.of(key, fs)
        for channel in Channel.candidates(address) if address is not None else ():
            link = None
            try:
                link = cls._through(key, fs, channel, seconds)
            finally:
                if link is None:
                    channel.close()
            if link is not None:
                return link
        return None

    @classmethod
    def _through(cls, key: ProcessKey, fs: ProcFs, channel: Channel, seconds: float) -> Link | None:
        peer = channel.connect(seconds)
        if peer is None:
            return None
        control = Control(peer)
        control.ask("hello")
        facts = control.wait_for("hello", seconds)
        stat = fs.stat(key.pid)
        same = stat is not None and stat.start_ticks == key.start_ticks
        if facts is None or not facts.get("ok") or not same:
            control.close()
            return None
        try:
            handle = channel.open_spool()
        except LinkRefused:
            control.close()
            raise
        if handle is None:
            control.close()
            raise LinkRefused(
                f"The agent in process {key.pid} keeps no spool to read.",
                f"Is its disk full? Watch it from outside: monitor attach {key.pid} --observe",
            )
        link = cls(key, fs, channel, control, Spool(handle))
        link._welcome(facts)
        return link

    @property
    def damaged(self) -> int:
        """Lines of the spool that were no records."""
        return self._spool.damaged

    @property
    def stays(self) -> bool:
        """Tell whether the agent goes on for another monitor after we have left."""
        return self._has_left and self.bye is None and not self._control.closed

    def exchange(self) -> list[Record]:
        """Renew the lease and return what is new. Never waits.

        Raises ``LinkLost`` when the agent has gone and everything was read, or nothing can be.
        """
        try:
            return self._exchange()
        except OSError:
            # A disk that has gone, under the spool.
            raise LinkLost from None

    def _exchange(self) -> list[Record]:
        self._take_answers()
        closed = self._control.closed
        if closed and self._end is None:
            # What is appended from now on is not the agent's.
            self._end = self._spool.finish()
        elif self._end is not None and self._spool.offset >= self._end:
            raise LinkLost
        before = self._spool.offset
        records = self._read()
        if not closed and not self._leaving and not self._control.is_waiting_for("lease"):
            self._control.ask("lease", read=self._spool.offset)
        if (closed or self._has_left) and self._spool.offset == before:
            raise LinkLost
        return records

    def _take_answers(self) -> None:
        for asked, answer in self._control.answers():
            if asked == "lease":
                self._take_epoch(answer)
            elif asked == "trace":
                self.trace_answers.append(answer)
            elif asked in KNOB_QUESTIONS:
                self.knob_answers.append((asked, answer))
            # The agent says goodbye before it answers the last one who leaves.
            self._has_left |= asked == "leave"

    @property
    def is_open(self) -> bool:
        """Tell whether the agent can still be asked something."""
        return not self._control.closed and not self._leaving

    def ask_for_trace(self, seconds: float, share: float) -> None:
        """Ask for a trace; ``trace_answers`` and ``traced`` get the answer and the records."""
        self._control.ask("trace", seconds=seconds, share=share)

    @property
    def is_asked_for_trace(self) -> bool:
        """Tell whether the request for a trace is still unanswered."""
        return self._control.is_waiting_for("trace")

    def open_trace(self, number: int) -> int | None:
        """Return a descriptor of a trace's file; ``None`` where there is none.

        Raises ``LinkRefused`` where something other than a file of the job's user is there.
        """
        pid = self._channel.address.spool.partition(".")[0]
        return self._channel.open_file(f"{pid}.trace-{number}")

    def drop_trace(self, number: int) -> None:
        """Tell the agent that it may remove a trace's file."""
        if self.is_open:
            self._control.ask("drop", id=number)

    def tell(self, said: Mapping[str, object]) -> None:
        """Tell the agent what was found, for the job's own code; an older one refuses."""
        if self.is_open and not self._control.is_waiting_for("tell"):
            self._control.ask("tell", said=said)

    def ask_of_knob(self, do: str, **more: object) -> None:
        """Ask what ``wire`` lists of knobs; ``knob_answers`` gets the answer."""
        if self.is_open:
            self._control.ask(do, **more)

    def ask_to_leave(self) -> None:
        """Ask the agent to leave; the next exchanges give its last records, then ``LinkLost``."""
        self._leaving = True
        if not self._control.closed and not self._control.is_waiting_for("leave"):
            self._control.ask("leave")

    def leave(self, seconds: float = 1.0) -> list[Record]:
        """Ask the agent to leave, wait for its answer, and return its last records."""
        self.ask_to_leave()
        self._control.wait_for("leave", seconds)
        found: list[Record] = []
        before = -1
        for _ in range(MOST_PIECES):
            if self._spool.offset == before:
                break
            before = self._spool.offset
            with contextlib.suppress(OSError):
                found += self._read()
        return found

    def monotonic_ns(self, t: int) -> int:
        """Return a record's moment on our own monotonic clock."""
        return t - self._shift_ns

    def wait(self, seconds: float) -> None:
        """Wait until the agent sends something."""
        self._control.wait(seconds)

    def remove_leftovers(self) -> None:
        """Remove what the agent of an ended process left."""
        self._channel.remove_leftovers()

    def sweep(self) -> None:
        """Remove what killed agents left in the same folder."""
        if self._proc is not None:
            self._channel.sweep(self._proc)

    def close(self) -> None:
        """Close everything."""
        self._control.close()
        self._spool.close()
        self._channel.close()

    def _welcome(self, facts: Mapping[str, Any]) -> None:
        self.hello = facts
        self._take_epoch(facts)

    def _take_epoch(self, answer: Mapping[str, Any]) -> None:
        epoch = answer.get("epoch")
        if type(epoch) is int:
            self._spool.begin_anew(epoch)

    def _read(self) -> list[Record]:
        records = self._spool.read()
        for record in records:
            self._note(record)
        return records

    def _note(self, record: Record) -> None:
        if isinstance(record, Bye):
            self.bye = record.reason
        if isinstance(record, Traced):
            self.traced.append(record)
        if isinstance(record, Clock) and self._other_clock:
            # Only the wall clock is the same in a time namespace of its own.
            ours = wire.clock_pair()
            theirs = record.t - record.realtime_ns
            self._shift_ns = theirs - (ours.monotonic_ns - ours.realtime_ns)
