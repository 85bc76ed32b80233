"""What a file says of the machine, and why it does not say the rest."""

from __future__ import annotations

from collections import Counter

from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.xplane.planes import Outline, Plane

# Sentences about devices that are alike: a file may hold thousands.
_MOST = 10
_MODELS = ("gpu_device_name", "device_type_string")


def pid(outline: Outline) -> int | None:
    """Return the process, where it is written: newer jax writes it to its host planes."""
    for plane in outline.planes:
        found = plane.fact("process_id") if plane.name.startswith("/host:") else None
        if isinstance(found, int) and found > 0:
            return found
    return None


def model(plane: Plane) -> str | None:
    """Return what a device is, as exactly as its plane says."""
    for name in _MODELS:
        if found := plane.fact(name):
            return str(found)
    vendor, major = plane.fact("device_vendor"), plane.fact("compute_cap_major")
    if not vendor or major is None:
        return str(vendor) if vendor else None
    return f"{vendor}, compute capability {major}.{plane.fact('compute_cap_minor') or 0}"


def joined(trace: Trace, outline: Outline) -> list[str]:
    """Return what is ambiguous in a file put together from those of several hosts."""
    found = []
    if len(set(outline.hosts)) > 1:
        found.append(
            f"The file is of {len(set(outline.hosts))} hosts, and does not say which plane"
            " belongs to which: what launched an operation may be looked for on the wrong one."
        )
    devices = Counter((device.kind, device.index) for device in trace.devices)
    found += [
        f"The file holds {count} devices {kind.upper()} {index}: nothing says which is which."
        for (kind, index), count in devices.items()
        if count > 1
    ]
    return found[:_MOST]


def unknown(trace: Trace, outline: Outline, process: int | None) -> dict[str, str]:
    """Return why fields of the devices are unknown."""
    reasons = {"rank": "an XPlane file has no ranks"}
    if process is None:
        reasons["pid"] = "the file does not name the process: only newer versions of jax write it"
    if len(outline.hosts) != 1:
        reasons["host"] = f"the file names {len(outline.hosts) or 'no'} hosts for its devices"
    if any(device.model is None for device in trace.devices):
        reasons["model"] = "the file does not name the device's model"
    return reasons
