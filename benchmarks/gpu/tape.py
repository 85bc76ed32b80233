"""Turns the calls of NVML that a recorder saw into a tape that the fake library of the tests plays.

tests/fake_nvml/README.md describes the format. What the GPU answered is kept; who it is (serial
number, UUID, other people's pids) is not. What repeats the value before it is left out.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from whyidle.monitor.sources.fields import FIELDS
from whyidle.monitor.sources.nvml import text

Value = int | float | str  # an error is "!3"
Points = list[tuple[float, Value]]

TYPES = ("double", "uint", "ulong", "ullong", "llong", "int", "ushort")
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
CLOCKS = ("graphics", "sm", "mem", "video")
# Sleeping in the fake library is no finer: a shorter call would become slower than it was.
SHORTEST_LATENCY_US = 1000.0
# Linux gives no pid this high: no process of the machine that plays the tape is taken for them.
FIRST_STRANGER = 1 << 22
# No new sample is no idleness: the driver takes them more rarely than the probe asks.
HOLD_SECONDS, NO_USE = 1.1, [0, 0, 0, 0]
PROCESSES, USE = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetProcessUtilization"
FIELD_VALUES = "nvmlDeviceGetFieldValues"
XID, MEMORY, MEMORY_V2 = "nvmlEventSetWait_v2", "MemoryInfo", "MemoryInfo_v2"
# Errors that are answers: nothing new.
ANSWERS = {(USE, "!6"), (XID, "!10")}


def field_key(field_id: int, scope: int) -> str:
    """Return what the tape calls a field."""
    return f"field.{field_id}" + (f".{scope}" if scope else "")


COUNTERS = {"energy", *(field_key(f.field_id, f.scope) for f in FIELDS if f.total)}


def _table(declared: str) -> dict[str, list[list[str]]]:
    """Read entries of: function without nvmlDeviceGet, then key=member for each number in it."""
    entries = (entry.split() for entry in declared.split(";"))
    return {words[0]: [word.split("=") for word in words[1:]] for words in entries}


# What the probe asks, what other tools ask and is asked once, and what of it changes.
_PROBED = _table("""
UtilizationRates utilization.gpu=gpu utilization.memory=memory; Temperature temperature;
MemoryInfo memory.total=total memory.used=used; EnforcedPowerLimit power.limit;
MemoryInfo_v2 memory.total=total memory.used=used memory.reserved=reserved; Name name;
PciInfo pci.device_id=pciDeviceId pci.subsystem_id=pciSubSystemId pci_bus_id=busId;
CurrPcieLinkGeneration pcie.gen; CurrPcieLinkWidth pcie.width; MigMode mig.enabled mig.pending;
MaxPcieLinkGeneration pcie.gen_max; MaxPcieLinkWidth pcie.width_max;
CudaComputeCapability capability.major capability.minor;
nvmlGpmQueryDeviceSupport gpm.supported=isSupportedDevice
""")
ONCE = _table("""
EncoderUtilization encoder; DecoderUtilization decoder; FanSpeed fan; NumFans fan.count;
BAR1MemoryInfo bar1.total=bar1Total bar1.used=bar1Used; MemoryBusWidth memory.bus_width;
PowerManagementLimit power.limit.management; PowerManagementDefaultLimit power.limit.default;
PowerManagementLimitConstraints power.limit.min power.limit.max; SupportedEventTypes events;
SupportedClocksEventReasons clocks_event_reasons.supported; PcieReplayCounter pcie.replays;
PcieSpeed pcie.speed; MinorNumber minor_number; Brand brand; Architecture architecture;
NumGpuCores cores; ComputeMode compute_mode; PersistenceMode persistence_mode;
EccMode ecc.mode ecc.mode.pending; MaxClockInfo clock.max.{clock}; VbiosVersion vbios_version;
TemperatureThreshold temperature.threshold.{0}; NvLinkState nvlink.{0}.active
""")
CHANGING = _table("""
PowerUsage power.usage; TotalEnergyConsumption energy; PerformanceState pstate;
CurrentClocksEventReasons clocks_event_reasons; ClockInfo clock.{clock}
""")
KEYS = _PROBED | ONCE | CHANGING
# How many there are of what has a number.
_COUNTS = {"MaxClockInfo": 4, "ClockInfo": 4, "TemperatureThreshold": 4, "NvLinkState": 18}


def asked(table: dict[str, list[list[str]]]) -> list[tuple[str, tuple[int, ...]]]:
    """Return each function with its arguments."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for name in table:
        numbers: list[tuple[int, ...]] = [(number,) for number in range(_COUNTS.get(name, 0))]
        found += [(f"nvmlDeviceGet{name}", each) for each in numbers or [()]]
    return found


class Call(NamedTuple):
    """One call of NVML: when, in seconds of the tape, who asked, and what became of it."""

    t: float
    seconds: float
    function: str
    arguments: tuple[Any, ...]
    outcome: Any
    asker: str
    phase: str

    @property
    def name(self) -> str:
        """The function of the library that it reached, where the binding hides a version."""
        versioned = self.function.endswith(MEMORY) and len(self.arguments) > 1
        return f"{self.function}_v2" if versioned else self.function

    @property
    def error(self) -> str | None:
        """NVML's error, as a tape has it."""
        outcome = self.outcome
        return f"!{getattr(outcome, 'value', '')}" if isinstance(outcome, Exception) else None


def tracks(calls: list[Call]) -> dict[str, Points]:
    """Return the values over time by the keys of the tape."""
    found: dict[str, Points] = defaultdict(list)
    answered = {call.name.removeprefix("nvmlDeviceGet") for call in calls if not call.error}
    samples = [call.t for call in calls if call.function == "nvmlGpmSampleGet" and not call.error]
    for call in calls:
        short = call.name.removeprefix("nvmlDeviceGet")
        if call.name == FIELD_VALUES and not call.error:
            for each in call.outcome:
                found[field_key(each.fieldId, each.scopeId)].append((call.t, field_value(each)))
        elif short == "nvmlGpmMetricsGet" and not call.error:
            # A mean between two samples holds from the first one on.
            start = [t for t in samples if t <= call.t][-2]
            for each in call.outcome.metrics[: call.outcome.numMetrics]:
                found[f"gpm.{each.metricId}"].append((start, _or_error(each, float(each.value))))
        # The first version of memory counts otherwise: only where it is all there is.
        elif short != MEMORY or MEMORY_V2 not in answered:
            for key, value in _answers(short, call):
                found[key].append((call.t, value))
    return found


def _answers(short: str, call: Call) -> Iterator[tuple[str, Value]]:
    arguments, declared = call.arguments, KEYS.get(short, [])
    clock = CLOCKS[arguments[1]] if "Clock" in short and len(arguments) > 1 else ""
    keys = [key.format(*arguments[1:], clock=clock) for key, *_ in declared]
    if call.error is not None:
        # What a function failed to say in its one version the other may have said.
        yield from ((key, call.error) for key in keys if not short.startswith(MEMORY))
        return
    outcome = call.outcome
    values = [getattr(outcome, word[1]) for word in declared if len(word) > 1]
    values = values or (list(outcome) if isinstance(outcome, list | tuple) else [outcome])
    shown = (text(value) if isinstance(value, bytes) else value for value in values)
    yield from zip(keys, shown, strict=False)


# As text -----------------------------------------------------------------------------------------
def lines(
    calls: list[Call], end: float, roles: dict[int, str], facts: dict[str, Any]
) -> Iterator[str]:
    """Yield the lines of a tape; ``roles`` are our own loads by pid."""
    yield "whyidle-nvml-tape 1"
    load = "" if facts["loaded"] else "; without any load: torch did not see the GPU"
    yield f"# {facts['date']}, {facts['command']}{load}; the UUID is not the real one"
    for name in ("driver", "nvml", "cuda"):
        yield f'set {name.replace("cuda", "cuda_driver")}_version "{facts[name]}"'
    fields = [a for call in calls if call.name == FIELD_VALUES and not call.error
              for a in call.outcome if not a.nvmlReturn]  # fmt: skip
    for field, kind in sorted({(a.fieldId, a.valueType) for a in fields}):
        yield f"fieldtype {field} {TYPES[kind]}"
    yield from ("gpu 0", "const 0 uuid GPU-00000000-0000-4000-8000-000000000000")
    for key, points in sorted(tracks(calls).items()):
        yield from _track(key, points)
    for name in sorted({call.name for call in calls}):
        yield from _function(name, [call for call in calls if call.name == name])
    yield from (f"xid 0 {c.t:.3f} {c.outcome.eventData}"
                for c in calls if c.function == XID and not c.error)  # fmt: skip
    yield from _processes(calls, roles, end)


def _track(key: str, points: Points) -> Iterator[str]:
    said = [(t, _word(value)) for t, value in points]
    changes, first = _changes(said), points[0][1]
    numbers = [value for _, value in points if not isinstance(value, str)]
    if isinstance(first, str) and not first.startswith("!"):
        yield f'const 0 {key} "{first}"'
    # Only steps keep all 64 bits, which a sentinel needs, and show where 32 bits began anew.
    elif key in COUNTERS and len(changes) > 1 and numbers == sorted(numbers):
        yield f"ramp 0 {key} " + " ".join(f"{t:.3f}:{word}" for t, word in said)
    # What a tape does not hold is not supported.
    elif {word for _, word in changes} != {"!3"}:
        yield f"track 0 {key} " + " ".join(f"{t:.3f}:{word}" for t, word in changes)


def _function(name: str, calls: list[Call]) -> Iterator[str]:
    """Yield what a function costs, and when it failed if that is on no track."""
    us = statistics.median(call.seconds for call in calls) * 1e6
    if us >= SHORTEST_LATENCY_US and name != XID:
        yield f"latency {name} {us:.0f}"
    short = name.removeprefix("nvmlDeviceGet")
    if short in KEYS and not short.startswith(MEMORY):
        return
    said = [(call.t, call.error or "") for call in calls if (name, call.error) not in ANSWERS]
    changes = _changes(said)
    device = "0" if name.startswith(("nvmlDevice", "nvmlGpm")) else "*"
    # As it began it was before.
    starts = [0.0, *(t for t, _ in changes[1:]), math.inf]
    for (start, end), (_, error) in zip(pairwise(starts), changes, strict=False):
        if error:
            yield f"fault {device} {name} {start:.3f}-{end:.3f} {error}"


def _processes(calls: list[Call], roles: dict[int, str], end: float) -> Iterator[str]:
    """Yield who was there; what was done in a window is known at its end."""
    strangers: dict[int, str] = {}
    listed = [(c.t, {p.pid: p.usedGpuMemory for p in c.outcome})
              for c in calls if c.function == PROCESSES and not c.error]  # fmt: skip
    use = uses(calls)
    for (t, memory), (until, _) in pairwise([*listed, (end, {})]):
        for pid in memory:
            strangers.setdefault(pid, str(FIRST_STRANGER + len(strangers)))
        # By name: the load before may still be listed beside the one that follows it.
        for name, pid in {roles.get(pid, strangers[pid]): pid for pid in memory}.items():
            near = [(abs(at - until), shares) for at, shares in use.get(pid, ())]
            _, shares = min((each for each in near if each[0] < HOLD_SECONDS), default=(0, NO_USE))
            use_ = dict(zip(("sm", "mem", "enc", "dec"), shares, strict=True))
            said = "".join(f" {n}={use_[n]}" for n in use_ if use_[n] or n in {"sm", "mem"})
            bytes_ = "none" if memory[pid] is None else memory[pid]
            yield f"proc 0 {name} {t:.3f}-{until:.3f} memory={bytes_}{said}"


def uses(calls: list[Call]) -> dict[int, list[tuple[float, list[int]]]]:
    """Return what each pid kept busy, %: the means of each answer."""
    found: dict[int, list[tuple[float, list[int]]]] = defaultdict(list)
    for call in calls:
        if call.function == USE and not call.error:
            # Over 100 the driver leaks.
            fresh = [s for s in call.outcome if s.smUtil <= 100 and s.timeStamp > call.arguments[1]]
            for pid in {s.pid for s in fresh}:
                own = [(s.smUtil, s.memUtil, s.encUtil, s.decUtil) for s in fresh if s.pid == pid]
                means = [round(statistics.fmean(each)) for each in zip(*own, strict=True)]
                found[pid].append((call.t, means))
    return found


def field_value(answer: Any) -> Value:
    """Return what a field holds, by its own word on the type, or its error."""
    return _or_error(answer, getattr(answer.value, MEMBERS[answer.valueType]))


def _changes(points: list[tuple[float, str]]) -> list[tuple[float, str]]:
    return [*points[:1], *(b for a, b in pairwise(points) if a[1] != b[1])]


def _or_error(answer: Any, value: Value) -> Value:
    return f"!{answer.nvmlReturn}" if answer.nvmlReturn else value


def _word(value: Value) -> str:
    # Shares and rates come with digits that mean nothing; totals need all of theirs.
    short = isinstance(value, float) and abs(value) < 1e6
    return f"{value:.6g}" if short else str(value)
