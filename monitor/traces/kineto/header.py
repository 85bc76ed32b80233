"""What a Kineto file says beside its events; any of it may be of another type than it should."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from whyidle.monitor.traces.kineto.repair import repair

_INT64: Final = 1 << 63
# In Kineto's words, of a buffer that CUPTI has filled.
_DROPPED: Final = re.compile(r"[Dd]ropped (\d{1,18}) activity records")


class Header(msgspec.Struct):
    """The useful keys of the outermost object."""

    devices: Any = msgspec.field(default=None, name="deviceProperties")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    base: Any = msgspec.field(default=None, name="baseTimeNanoseconds")
    host: Any = msgspec.field(default=None, name="host_name")
    # What the profiler itself logged while it recorded.
    errors: Any = msgspec.field(default=None, name="ERROR")
    said: Any = msgspec.field(default=None, name="WARNING")

    def update(self, later: Header) -> None:
        """Take over what another part of the file says."""
        for field in self.__struct_fields__:
            if getattr(later, field) is not None:
                setattr(self, field, getattr(later, field))


_DECODER: Final = msgspec.json.Decoder(Header)


def read_header(text: bytes) -> Header | None:
    """Decode a JSON object, mended where that helps; None if it is none."""
    for form in (bytes, repair):
        try:
            return _DECODER.decode(form(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def whole(value: Any) -> int | None:
    """Return a whole number of at most 64 bits, also one that is written as text."""
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 20:
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if -_INT64 <= number < _INT64 else None


def base_ns(header: Header, ticks: int) -> int | None:
    """Return the unix time of a moment counted from the file's base time."""
    base = whole(header.base)
    return None if base is None else base + ticks


def rank_of(header: Header) -> int | None:
    """Return the rank of the process within its job."""
    info = header.distributed
    return whole(info.get("rank")) if isinstance(info, dict) else None


def world_of(header: Header) -> tuple[int | None, str | None]:
    """Return how many ranks the job has, and the name of its process group if it has only one."""
    info = header.distributed
    if not isinstance(info, dict):
        return None, None
    groups, size = info.get("pg_config"), whole(info.get("world_size"))
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], dict):
        return size, None
    return size, str(groups[0].get("pg_name", 0))


def host_of(header: Header) -> str | None:
    """Return the name of the machine: newer files have it."""
    return header.host if isinstance(header.host, str) and header.host else None


def dropped(header: Header) -> int:
    """Return how many records the profiler says it dropped."""
    lines = [
        line
        for log in (header.errors, header.said)
        for line in (log if isinstance(log, list) else ())
        if isinstance(line, str)
    ]
    return sum(int(n) for line in lines for n in _DROPPED.findall(line))


def model_of(header: Header, index: str) -> str | None:
    """Return the maker's name for the device of this index."""
    for device in header.devices if isinstance(header.devices, list) else ():
        if isinstance(device, dict) and str(device.get("id")) == index:
            name = device.get("name")
            return name if isinstance(name, str) else None
    return None
