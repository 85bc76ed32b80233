"""What clients may ask of an agent, and the answers. No message carries code."""

from __future__ import annotations

import time
from typing import NamedTuple

from .marks import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .endpoint import Endpoint
    from .knobs import Knobs
    from .lease import Leases
    from .probes import Probes
    from .tracing import Traces


def _no(why: str) -> dict[str, Any]:
    return {"ok": False, "why": why}


class Parts(NamedTuple):
    """What requests are about."""

    leases: Leases
    probes: Probes
    traces: Traces
    knobs: Knobs


class RequestHandler:
    """Answers one message at a time."""

    def __init__(
        self,
        parts: Parts,
        endpoint: Endpoint,
        hello: Callable[[], list[list[Any]]],
        write: Callable[[], None],
    ) -> None:
        # The last client has left.
        self.is_over = False
        # Who left what the job's own code may look at.
        self._teller: int | None = None
        self._leases, self._probes, self._traces, self._knobs = parts
        self._endpoint = endpoint
        # The records that a spool begins with.
        self._hello = hello
        # Writes what has come to this moment.
        self._write = write
        # Who wants records of the pace.
        self._watchers: set[int] = set()
        self._acts: dict[str, Callable[[int, dict[str, Any]], dict[str, Any]]] = {
            "hello": self._greet,
            "lease": self._lease,
            "probe": self._probe,
            "trace": self._trace,
            "drop": self._drop,
            "watch": self._watch,
            "knob": self._knob,
            "back": self._back,
            "keep": self._keep,
            "tell": self._tell,
            "leave": self._leave,
        }

    def answer(self, client: int, message: Any) -> dict[str, Any]:
        """Return the answer to a message that may be anything."""
        do = message.get("do") if isinstance(message, dict) else None
        act = self._acts.get(do) if isinstance(do, str) else None
        if act is None:
            return _no(f"a message is an object whose do is one of {', '.join(self._acts)}")
        return act(client, message)

    def _greet(self, _client: int, _message: dict[str, Any]) -> dict[str, Any]:
        return {**self._hello()[0][2], **self._state(), "spool": self._endpoint.spool_path}

    def _state(self) -> dict[str, Any]:
        spool = self._endpoint.spool
        return {"ok": True, "size": spool.size, "epoch": spool.epoch}

    def _lease(self, client: int, message: dict[str, Any]) -> dict[str, Any]:
        read = message.get("read")
        if type(read) is not int or read < 0:
            return _no("read is the number of bytes that were read")
        spool = self._endpoint.spool
        now = time.monotonic_ns()
        self._leases.renew(client, read, spool.epoch, now)
        self._knobs.renew(client, now)
        if spool.is_worth_emptying() and self._leases.have_all_read(spool.size, spool.epoch):
            spool.empty(self._hello())
        return self._state()

    def _probe(self, _client: int, message: dict[str, Any]) -> dict[str, Any]:
        name, on = message.get("name"), message.get("on")
        if not isinstance(name, str) or not isinstance(on, bool):
            return _no("name is the name of a probe, and on is true or false")
        why = None
        if on:
            why = self._probes.turn_on(name)
        else:
            self._probes.turn_off(name, "asked")
        return {"ok": True} if why is None else _no(why)

    def _trace(self, _client: int, message: dict[str, Any]) -> dict[str, Any]:
        if self._knobs.is_on():
            return _no("a knob is being tried, and a trace would disturb its measure")
        seconds, share, framework = (message.get(n) for n in ("seconds", "share", "framework"))
        found = self._traces.ask(seconds, share, framework, time.monotonic_ns())
        return _no(found) if isinstance(found, str) else {"ok": True, "id": found}

    def _drop(self, _client: int, message: dict[str, Any]) -> dict[str, Any]:
        if self._traces.drop(message.get("id")):
            return {"ok": True}
        return _no("there is no file of a trace with that id")

    def _tell(self, client: int, message: dict[str, Any]) -> dict[str, Any]:
        said = message.get("said")
        if not isinstance(said, dict):
            return _no("said is an object")
        if tell(said):
            self._teller = client
        return {"ok": True, "heard": self._teller is not None}

    def untell(self) -> None:
        """Take away what lies where the job's own code may look."""
        if self._teller is not None:
            self._teller = None
            tell(None)

    def forget(self, client: int) -> None:
        """Undo what a client wanted that is gone."""
        self._watchers.discard(client)
        self._probes.steps.is_watched = bool(self._watchers)
        self._knobs.leave(client)
        if client == self._teller:
            self.untell()

    def _watch(self, client: int, message: dict[str, Any]) -> dict[str, Any]:
        # Those up to now are still in order, if it was watched before.
        self._write()
        if message.get("on") is True:
            self._watchers.add(client)
        else:
            self._watchers.discard(client)
        self._probes.steps.is_watched = bool(self._watchers)
        return {"ok": True}

    def _knob(self, client: int, message: dict[str, Any]) -> dict[str, Any]:
        if self._traces.is_on():
            return _no("a trace is on, and would disturb the measure")
        # The steps of before stand before the record of the change.
        self._write()
        name, value = message.get("name"), message.get("value")
        return self._turned(self._knobs.turn(client, name, value, time.monotonic_ns()))

    def _back(self, client: int, _message: dict[str, Any]) -> dict[str, Any]:
        self._write()
        # Another one's stays: who was refused says it, too.
        if self._knobs.is_of(client):
            self._knobs.take_back("asked")
        self._write()
        return {"ok": True, "on": self._knobs.is_of(client)}

    def _keep(self, client: int, _message: dict[str, Any]) -> dict[str, Any]:
        return self._turned(self._knobs.keep(client))

    def _turned(self, why: str | None) -> dict[str, Any]:
        self._write()
        return {"ok": True, "on": self._knobs.is_on()} if why is None else _no(why)

    def _leave(self, client: int, _message: dict[str, Any]) -> dict[str, Any]:
        self._leases.leave(client)
        self.forget(client)
        self.is_over = self._leases.are_over(time.monotonic_ns())
        return {"ok": True}
