"""Traces through the agent: on request it writes a file beside its spool, and we copy that.

The job may be hostile: nothing that it says about the file is trusted. The name is ours, the file
is opened like the spool, and we read no more than a trace may have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from whyidle.agents import wire
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.link.link import Link, LinkRefused
from whyidle.monitor.link.records import Traced
from whyidle.monitor.tracing.space import Space, remove
from whyidle.monitor.tracing.taken import Taken

# Stopping and writing a trace after its window takes seconds for large ones.
PATIENCE_SECONDS: Final = 30.0
# How long one tick may copy; the next ones copy the rest.
COPY_SECONDS: Final = 0.05
_PIECE: Final = 1 << 20
_LONGEST_NS: Final = 600 * 1_000_000_000
FRAMEWORKS: Final = ("jax", "torch", "tensorflow")
# The reason in the bye record of an agent whose process ends by itself.
_EXIT: Final = "exit"


class _Failed(Exception):  # noqa: N818  an answer
    """Why there is no trace."""


class ByAgent:
    """One agent. The caller calls ``exchange`` of its link before each ``poll``."""

    name = "the agent"

    def __init__(
        self,
        link: Link,
        space: Space,
        owner: str,
        share: float = 1.0,
        ended: str = "it ended first",
    ) -> None:
        self._link = link
        self._space = space
        self._owner = owner
        # The share of the job's time for traces; 1 if a person asked for this one.
        self._share = share
        # The reason to report if the process ends before the trace is there.
        self._ended = ended
        self._deadline: float | None = None
        self._id: int | None = None
        self._copy: _Copy | None = None

    def ask(self, seconds: float) -> str | None:
        """Ask the agent for a trace."""
        if not self._link.is_open:
            return "the agent has gone"
        if self._deadline is not None or self._link.is_asked_for_trace:
            return "a trace is on its way already"
        self._link.trace_answers.clear()
        self._link.traced.clear()
        self._link.ask_for_trace(seconds, self._share)
        # The agent first takes short windows, with pauses between them.
        self._deadline = time.monotonic() + 3 * seconds + PATIENCE_SECONDS
        return None

    def poll(self) -> Taken | str | None:
        """Take in the agent's records, and copy a piece of the file."""
        if self._deadline is None:
            return None
        try:
            found = self._go_on()
            if found is None and self._copy is None:
                self._check_alive(self._deadline)
        except _Failed as failed:
            self.close()
            return str(failed)
        if found is not None:
            self._end()
        return found

    def close(self) -> None:
        """Drop a trace that is on its way, and have the agent drop it."""
        if self._copy is not None:
            self._copy.cancel()
        self._end()

    # Inside --------------------------------------------------------------------------------------
    def _end(self) -> None:
        if self._id is not None:
            self._link.drop_trace(self._id)
        self._deadline = self._id = self._copy = None

    def _go_on(self) -> Taken | None:
        if self._id is None:
            self._id = self._promised()
        while self._id is not None and self._copy is None and self._link.traced:
            self._copy = self._heard(self._link.traced.popleft())
        return self._copy.go_on() if self._copy is not None else None

    def _promised(self) -> int | None:
        """Return the number of our trace, once the agent has answered."""
        if not self._link.trace_answers:
            return None
        answer = self._link.trace_answers.popleft()
        number = answer.get("id")
        if answer.get("ok") is True and type(number) is int and number >= 0:
            return number
        raise _Failed(_words(answer) or "the agent cannot take traces")

    def _heard(self, record: Traced) -> _Copy | None:
        if record.id != self._id or record.state == "begun":
            return None
        if record.state != "done":
            raise _Failed(_words(record.facts) or "the agent did not say why")
        framework = record.facts.get("framework")
        if framework not in FRAMEWORKS:
            raise _Failed("the agent names no framework that we know")
        try:
            handle = self._link.open_trace(record.id)
        except LinkRefused as refused:
            raise _Failed(refused.what) from None
        if handle is None:
            raise _Failed("the file of the trace has gone before it was fetched")
        try:
            size = self._size(handle)
            into, path = self._space.create(self._owner, framework)
        except (_Failed, StorageProblem) as error:
            os.close(handle)
            raise _Failed(str(error).partition("\n")[0]) from None
        # The open file stays readable after its removal: the job's disk gets its room back sooner.
        self._link.drop_trace(record.id)
        return _Copy(handle, into, path, size, _taken(self._link, record, path, self.name))

    def _size(self, handle: int) -> int:
        size = os.fstat(handle).st_size
        if not size:
            raise _Failed("the file of the trace is empty")
        if size > wire.TRACE_FILE_CAP:
            raise _Failed(f"the file of the trace is longer than {wire.TRACE_FILE_CAP >> 20} MB")
        if not self._space.has_room(size):
            raise _Failed(f"the disk under {self._space.folder} has no room for it")
        return size

    def _check_alive(self, deadline: float) -> None:
        if not self._link.is_open:
            has_ended = self._link.bye == _EXIT
            raise _Failed(self._ended if has_ended else "the agent went before the trace was done")
        if time.monotonic() > deadline:
            raise _Failed("the agent did not say in time what became of it")


class _Copy:
    """A file that is being copied."""

    def __init__(self, source: int, into: int, path: Path, size: int, taken: Taken) -> None:
        self._source = source
        self._into = into
        self._path = path
        self._left = size
        self._taken = taken

    def go_on(self) -> Taken | None:
        """Copy for a moment; return the trace once it is complete."""
        until = time.monotonic() + COPY_SECONDS
        while self._left:
            try:
                piece = os.read(self._source, min(_PIECE, self._left))
                if not piece:
                    raise _Failed("the file of the trace was cut while it was fetched")
                self._left -= len(piece)
                while piece:
                    piece = piece[os.write(self._into, piece) :]
            except OSError as error:
                raise _Failed(f"the trace cannot be copied: {error.strerror}") from None
            if self._left and time.monotonic() > until:
                return None
        self._close()
        return self._taken

    def cancel(self) -> None:
        """Stop, and remove the copy."""
        self._close()
        remove(self._path)

    def _close(self) -> None:
        os.close(self._source)
        os.close(self._into)


def _words(facts: Mapping[str, Any]) -> str | None:
    """Return the job's reason as one line without control characters."""
    why = facts.get("why")
    if not isinstance(why, str):
        return None
    said = "".join(c if c.isprintable() else " " for c in why[: wire.LONGEST_REASON])
    return " ".join(said.split()).rstrip(".") or None


def _taken(link: Link, record: Traced, path: Path, how: str) -> Taken:
    """Make it from the agent's facts; impossible moments become the time of its record."""
    now = time.monotonic_ns()
    facts = record.facts
    ended = _moment(link, facts.get("ended_ns"), now, now)
    began = _moment(link, facts.get("began_ns"), ended, ended)
    ours = time.time_ns() - (now - began)
    realtime, held = _natural(facts.get("realtime_ns")), _natural(facts.get("held_ns"))
    if realtime is None or abs(realtime - ours) > _LONGEST_NS:
        realtime = ours
    return Taken(
        framework=str(facts["framework"]),
        path=path,
        began_ns=began,
        ended_ns=ended,
        realtime_ns=realtime,
        held_ns=held if held is not None and held < _LONGEST_NS else None,
        how=how,
    )


def _moment(link: Link, t: object, latest: int, otherwise: int) -> int:
    if type(t) is not int:
        return otherwise
    moment = link.monotonic_ns(t)
    return moment if latest - _LONGEST_NS <= moment <= latest else otherwise


def _natural(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
