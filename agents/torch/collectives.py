"""The part ``collectives``: which one a rank stands in that has begun none for a while.

PyTorch's flight recorder keeps the last 2,000 of each rank. How many were begun takes 3 us to ask.
All of them take 30 ms, with Python's lock: asked once in a stall, of a job that does nothing then.
"""

from __future__ import annotations

import json
import time

from ..framework import Part
from ..modules import loaded
from ..timers import SECOND
from .parallel import DISTRIBUTED, is_one_of_many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RECORDER = "torch._C._distributed_c10d"
# That of NCCL is another one than that of the rest.
OF_NCCL, OF_OTHERS = "_dump_nccl_trace_json", "_dump_fr_trace_json"
# A step may take long; what stands for longer is worth a look.
STANDS_NS = 30 * SECOND
# Of shapes: a group of tensors may be exchanged at once.
MOST_SIZES = 4


class Collectives(Part):
    """Reads the flight recorder."""

    name = "collectives"

    def begin(self) -> None:
        """Begin with nothing known: the recorder is there once a group is."""
        self._begun: int | None = None
        self._since = 0
        self._stands: dict[str, Any] | None = None

    def facts(self) -> dict[str, Any]:
        """Return the last collective where this rank has begun no other for long; else none."""
        recorder = _recorder() if is_one_of_many() else None
        if recorder is None:
            return {}
        begun, now = _begun(recorder), time.monotonic_ns()
        if begun != self._begun:
            self._begun, self._since, self._stands = begun, now, None
        elif begun and self._stands is None and now - self._since >= STANDS_NS:
            self._stands = _last(recorder)
        return {"collective": self._stands}


def _recorder() -> Callable[..., bytes] | None:
    names = loaded(RECORDER) or {}
    backend = (loaded(DISTRIBUTED) or {}).get("get_backend")
    on_nccl = OF_NCCL in names and backend is not None and "nccl" in str(backend())
    return names.get(OF_NCCL if on_nccl else OF_OTHERS)


def _begun(recorder: Callable[..., bytes]) -> int:
    """Return how many collectives were begun, in all groups together."""
    groups = json.loads(recorder(includeCollectives=False)).get("pg_status") or {}
    return sum(max(0, int(each.get("last_enqueued_collective", 0))) for each in groups.values())


def _last(recorder: Callable[..., bytes]) -> dict[str, Any]:
    """Return the first collective that has not ended, else the last; an empty one: none is kept."""
    entries = json.loads(recorder(includeCollectives=True, onlyActive=False)).get("entries") or ()
    nothing: dict[str, Any] = {}
    ordered = sorted(entries, key=lambda each: each.get("record_id", -1))
    # NCCL says of each how far it is; gloo does not.
    is_open = (x for x in ordered if not x.get("retired") and x.get("state") != "completed")
    last = next(is_open, ordered[-1] if ordered else nothing)
    return {
        "number": last.get("collective_seq_id"),
        "name": last.get("profiling_name"),
        "sizes": (last.get("input_sizes") or [])[:MOST_SIZES],
        "types": (last.get("input_dtypes") or [])[:MOST_SIZES],
        "group": (last.get("process_group") or [None])[-1],
        "state": last.get("state"),
    }
