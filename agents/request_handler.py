"""What clients may ask of an agent, and the answers. No message carries code."""

from __future__ import annotations

import time

from .marks import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .endpoint import Endpoint
    from .lease import Leases
    from .probes import Probes
    from .tracing import Traces


_KNOWN = ("hello", "lease", "probe", "trace", "drop", "tell")


def _no(why: str) -> dict[str, Any]:
    return {"ok": False, "why": why}


class RequestHandler:
    """Answers one message at a time."""

    def __init__(
        self,
        leases: Leases,
        probes: Probes,
        traces: Traces,
        endpoint: Endpoint,
        hello: Callable[[], list[list[Any]]],
    ) -> None:
        # The last client has left.
        self.is_over = False
        # Something lies where the job's own code may look for it.
        self.has_told = False
        self._leases = leases
        self._probes = probes
        self._traces = traces
        self._endpoint = endpoint
        # The records that a spool begins with.
        self._hello = hello

    def answer(self, client: int, message: Any) -> dict[str, Any]:
        """Return the answer to a message that may be anything."""
        do = message.get("do") if isinstance(message, dict) else None
        if do == "hello":
            return {**self._hello()[0][2], **self._state(), "spool": self._endpoint.spool_path}
        if do == "lease":
            return self._lease(client, message.get("read"))
        if do == "probe":
            return self._probe(message.get("name"), message.get("on"))
        if do in ("trace", "drop"):
            return self._trace(message) if do == "trace" else self._drop(message.get("id"))
        if do in ("tell", "leave"):
            return self._tell(message.get("said")) if do == "tell" else self._leave(client)
        return _no(f"a message is an object whose do is {', '.join(_KNOWN)} or leave")

    def _state(self) -> dict[str, Any]:
        spool = self._endpoint.spool
        return {"ok": True, "size": spool.size, "epoch": spool.epoch}

    def _lease(self, client: int, read: Any) -> dict[str, Any]:
        if type(read) is not int or read < 0:
            return _no("read is the number of bytes that were read")
        spool = self._endpoint.spool
        self._leases.renew(client, read, spool.epoch, time.monotonic_ns())
        if spool.is_worth_emptying() and self._leases.have_all_read(spool.size, spool.epoch):
            spool.empty(self._hello())
        return self._state()

    def _probe(self, name: Any, on: Any) -> dict[str, Any]:
        if not isinstance(name, str) or not isinstance(on, bool):
            return _no("name is the name of a probe, and on is true or false")
        why = None
        if on:
            why = self._probes.turn_on(name)
        else:
            self._probes.turn_off(name, "asked")
        return {"ok": True} if why is None else _no(why)

    def _trace(self, message: dict[str, Any]) -> dict[str, Any]:
        seconds, share, framework = (message.get(n) for n in ("seconds", "share", "framework"))
        found = self._traces.ask(seconds, share, framework, time.monotonic_ns())
        return _no(found) if isinstance(found, str) else {"ok": True, "id": found}

    def _drop(self, number: Any) -> dict[str, Any]:
        if self._traces.drop(number):
            return {"ok": True}
        return _no("there is no file of a trace with that id")

    def _tell(self, said: Any) -> dict[str, Any]:
        if not isinstance(said, dict):
            return _no("said is an object")
        self.has_told = tell(said) or self.has_told
        return {"ok": True, "heard": self.has_told}

    def _leave(self, client: int) -> dict[str, Any]:
        self._leases.leave(client)
        self.is_over = self._leases.are_over(time.monotonic_ns())
        return {"ok": True}
