"""Dumps of PyTorch's flight recorder as a job that stands still."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import Chain, CodeLine
from whyidle.monitor.signals.limits import MOST_FRAMES
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.standstill import Collective, Stand, Standstill
from whyidle.monitor.signals.window import Window
from whyidle.monitor.sources.flight_recorder import Dump

RECORDER: Final = "flight recorder"
# Of a dump without stacks.
_NOWHERE: Final = "/torch/distributed/distributed_c10d.py"


def of_dumps(
    dumps: Sequence[Dump], name: str, silent: Mapping[int, str] = MappingProxyType({})
) -> Window:
    """Return the window over the ranks as they stood when they wrote their dumps.

    Of those that were asked for one and gave none it is known why.
    """
    stands = tuple(stand for dump in dumps if (stand := _stand(dump)) is not None)
    known = (each.seconds for each in stands if math.isfinite(each.seconds))
    seconds = min(known, default=0.0)
    went_on = any((each.collective.number or 0) > 1 for each in stands if each.collective)
    still = Standstill(stands, seconds, stepped=went_on, source=RECORDER, silent=silent)
    world = max((d.world_size or 0 for d in dumps), default=0)
    facts = {"torch": {"world_size": max(world, len(dumps) + len(silent))}}
    job = Recorded(standstill=still if stands else None, looks=1, facts=facts)
    return Window(name, "file", (), job)


def _stand(dump: Dump) -> Stand | None:
    entry = last_of(dump.entries)
    if entry is None and dump.begun is not None:
        # Of a rank of which only how many it has begun is known: it waits in none.
        last = Collective(dump.begun[0], group=dump.begun[1])
        return Stand(0, dump.rank, _chain(dump, {}), math.inf, 1.0, 0.0, last)
    if entry is None:
        return None
    created = entry.get("time_created_ns")
    since = (dump.written_ns - created) / 1e9 if isinstance(created, int) else 0.0
    return Stand(0, dump.rank, _chain(dump, entry), max(0.0, since), 1.0, 0.0, collective_of(entry))


def last_of(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first collective that has not ended, else the last one."""
    ordered = sorted(entries, key=lambda each: _number(each.get("record_id")) or 0)
    open_ = [x for x in ordered if not x.get("retired") and x.get("state") != "completed"]
    return next(iter(open_), ordered[-1] if ordered else None)


def collective_of(entry: Mapping[str, Any]) -> Collective:
    """Return what an entry says, as far as it can be meant."""
    group = entry.get("process_group")
    sizes, types = entry.get("input_sizes"), entry.get("input_dtypes")
    return Collective(
        _number(entry.get("collective_seq_id")),
        _word(entry.get("profiling_name")),
        tuple(
            tuple(n for n in size if isinstance(n, int))
            for size in (sizes if isinstance(sizes, list) else ())[:4]
            if isinstance(size, list)
        ),
        tuple(t for t in types[:4] if isinstance(t, str)) if isinstance(types, list) else (),
        _word(group[-1]) if isinstance(group, list | tuple) and group else None,
        _word(entry.get("state")),
    )


def _chain(dump: Dump, entry: Mapping[str, Any]) -> Chain:
    frames = entry.get("frames")
    lines = [CodeLine(*frame) for frame in dump.stack[:MOST_FRAMES]] or [
        CodeLine(str(each.get("filename")), _number(each.get("line")) or 0, str(each.get("name")))
        for each in (frames if isinstance(frames, list) else ())[:MOST_FRAMES]
        if isinstance(each, dict)
    ]
    leaf = CodeLine(_NOWHERE, 0, _word(entry.get("profiling_name")) or "?")
    users = tuple(line for line in lines if line.line and is_users(line.file))
    return Chain(users, lines[0] if lines else leaf)


def _number(value: object) -> int | None:
    return value if type(value) is int else None


def _word(value: object) -> str | None:
    return value[:200] if isinstance(value, str) else None
