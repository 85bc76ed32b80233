"""Turns NVML calls, as they are made, into a tape that the fake library of the tests plays.

tests/fake_nvml/README.md describes the format. What the GPU answered is kept; who it is (serial
number, UUID, other people's pids) is not. What repeats the value before it is left out.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from whyidle.monitor.sources.fields import FIELDS
from whyidle.monitor.sources.nvml import NOT_FOUND, NOT_SUPPORTED, TIMEOUT, text

Value = int | float | str  # a string is an error: "!3"
Points = list[tuple[float, Value]]
Use = tuple[int, ...]  # sm, memory, encoder, decoder: %

FIRST_LINE = "whyidle-nvml-tape 1"
LINE_WIDTH = 160
UUID = "GPU-00000000-0000-4000-8000-000000000000"
# Not supported, no permission, function not found, version mismatch: the next call says the same.
LASTING = frozenset({3, 4, 13, 25})
UNKNOWN_ERROR = 999
TYPES = ("double", "uint", "ulong", "ullong", "llong", "int", "ushort")
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
UINT, WRAP = 1, 1 << 32
CLOCKS = ("graphics", "sm", "mem", "video")
COUNTERS = frozenset({"energy"} | {f"field.{f.field_id}" for f in FIELDS if f.total})
# Sleeping in the fake library is no finer: a shorter call would become slower than it was.
SHORTEST_LATENCY_US = 1000.0
# Linux gives no pid this high: no process of the machine that plays the tape is taken for them.
FIRST_STRANGER = 1 << 22
# No new sample is no idleness: the driver takes them more rarely than the probe asks.
HOLD_SECONDS = 1.1

TEXTS = {"Name": "name", "VbiosVersion": "vbios_version"}
SETTINGS = {
    "nvmlSystemGetDriverVersion": "driver_version",
    "nvmlSystemGetNVMLVersion": "nvml_version",
    "nvmlSystemGetCudaDriverVersion": "cuda_driver_version",
}


def _table(declared: str) -> dict[str, list[list[str]]]:
    """Read entries of: function without nvmlDeviceGet, then key=member for each number in it."""
    entries = (entry.split() for entry in declared.split(";"))
    return {words[0]: [word.split("=") for word in words[1:]] for words in entries}


# What the probe asks, what other tools ask and is asked once, and what of it changes.
_PROBED = _table("""
UtilizationRates utilization.gpu=gpu utilization.memory=memory; Temperature temperature;
MemoryInfo memory.total=total memory.used=used; EnforcedPowerLimit power.limit;
MemoryInfo_v2 memory.total=total memory.used=used memory.reserved=reserved;
PciInfo pci.device_id=pciDeviceId pci.subsystem_id=pciSubSystemId; MigMode mig.enabled mig.pending;
CurrPcieLinkGeneration pcie.gen; CurrPcieLinkWidth pcie.width;
MaxPcieLinkGeneration pcie.gen_max; MaxPcieLinkWidth pcie.width_max;
CudaComputeCapability capability.major capability.minor
""")
_ONCE = _table("""
EncoderUtilization encoder; DecoderUtilization decoder; FanSpeed fan; NumFans fan.count;
BAR1MemoryInfo bar1.total=bar1Total bar1.used=bar1Used; MemoryBusWidth memory.bus_width;
PowerManagementLimit power.limit.management; PowerManagementDefaultLimit power.limit.default;
PowerManagementLimitConstraints power.limit.min power.limit.max; SupportedEventTypes events;
SupportedClocksEventReasons clocks_event_reasons.supported; PcieReplayCounter pcie.replays;
PcieSpeed pcie.speed; MinorNumber minor_number; Brand brand; Architecture architecture;
NumGpuCores cores; ComputeMode compute_mode; PersistenceMode persistence_mode;
EccMode ecc.mode ecc.mode.pending; MaxClockInfo clock.max.{clock};
TemperatureThreshold temperature.threshold.{0}; NvLinkState nvlink.{0}.active
""")
_CHANGING = _table("""
PowerUsage power.usage; TotalEnergyConsumption energy; PerformanceState pstate;
CurrentClocksEventReasons clocks_event_reasons; ClockInfo clock.{clock}
""")
KEYS = _PROBED | _ONCE | _CHANGING
_ARGUMENTS = {"MaxClockInfo": range(4), "TemperatureThreshold": range(4), "NvLinkState": range(18),
              "ClockInfo": (0, 3)}  # fmt: skip


def questions_of(table: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Return each function with its arguments."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for name in table:
        arguments = [(each,) for each in _ARGUMENTS.get(name, ())] or [()]
        found += [(f"nvmlDeviceGet{name}", each) for each in arguments]
    return found


FACTS = questions_of(_ONCE | dict.fromkeys(TEXTS))
BESIDE = questions_of(_CHANGING)


class Phase(NamedTuple):
    """A stretch of the recording, in seconds of the tape."""

    name: str
    start: float
    end: float
    load: str | None


@dataclass
class Moment:
    """Who was on the GPU at a tick."""

    t: float
    memory: dict[int, int | None]
    # How busy each was since the moment before; None: the driver does not say.
    use: dict[int, Use] | None = None


class Tape:
    """One GPU's answers over time. ``take`` is the tap of :class:`whyidle...Nvml`."""

    def __init__(self, gpu: int) -> None:
        self.zero = time.monotonic()
        self.points: dict[str, Points] = {}
        self.texts: dict[str, str] = {"uuid": UUID}
        self.settings: dict[str, str] = {}
        self.field_types: dict[int, int] = {}
        self.xids: list[tuple[float, int]] = []
        # Function, from, to, error.
        self.faults: list[tuple[str, float, float, int]] = []
        self.moments: list[Moment] = []
        self.shares_above_100 = 0
        # Our own loads by pid: "$TRAINER". All others get a number that is no pid.
        self.roles: dict[int, str] = {}
        self._gpu = gpu
        self._handle: int | None = None
        self._failing: dict[str, tuple[float, int]] = {}
        self._sampled: list[float] = []

    def now(self) -> float:
        """Return the seconds since the tape began."""
        return time.monotonic() - self.zero

    def is_ours(self, function: str, arguments: tuple[Any, ...], outcome: Any) -> bool:
        """Return whether a call is about this GPU, or about none."""
        if function == "nvmlDeviceGetHandleByIndex":
            ours = bool(arguments[0] == self._gpu)
            if ours and not isinstance(outcome, Exception):
                self._handle = _address(outcome)
            return ours
        about_device = function.startswith(("nvmlDevice", "nvmlGpmSampleGet", "nvmlGpmQuery"))
        return not (about_device and arguments) or _address(arguments[0]) == self._handle

    def take(self, function: str, arguments: tuple[Any, ...], seconds: float, outcome: Any) -> None:
        """Keep what one call answered."""
        # The driver read the value somewhere in the call.
        t, name = max(0.0, self.now() - seconds / 2), name_of(function, arguments)
        short, error = name.removeprefix("nvmlDeviceGet"), error_of(outcome)
        # The first version of memory counts otherwise: only where it is all there is.
        is_spare = short == "MemoryInfo" and "nvmlDeviceGetMemoryInfo_v2" not in self._failing
        keys = [] if is_spare else _keys(short, arguments)
        if error is not None:
            if keys and not short.startswith("MemoryInfo"):
                self._add(t, dict.fromkeys(keys, f"!{error}"))
            elif (short, error) == ("ProcessUtilization", NOT_FOUND):
                self._take_use([], 0)
            elif (name, error) != ("nvmlEventSetWait_v2", TIMEOUT):
                self._failing.setdefault(name, (t, error))
            return
        if name in self._failing:
            start, error = self._failing.pop(name)
            self.faults.append((name, start, t, error))
        self._add(t, dict(zip(keys, _values(short, outcome), strict=False)))
        self._take_special(short, t, arguments, outcome)

    def _take_special(  # noqa: C901  a line for each call
        self, short: str, t: float, arguments: tuple[Any, ...], outcome: Any
    ) -> None:
        if short in SETTINGS:
            self.settings[SETTINGS[short]] = str(text(outcome))
        elif short in TEXTS:
            self.texts[TEXTS[short]] = str(text(outcome))
        elif short == "PciInfo":
            self.texts["pci_bus_id"] = str(text(outcome.busId))
        elif short == "FieldValues":
            self._add(t, dict(map(self._field, outcome)))
        elif short == "ComputeRunningProcesses":
            self.moments.append(Moment(t, {p.pid: p.usedGpuMemory for p in outcome}))
        elif short == "ProcessUtilization":
            self._take_use(outcome, arguments[1])
        elif short == "nvmlGpmQueryDeviceSupport":
            self._add(t, {"gpm.supported": outcome.isSupportedDevice})
        elif short == "nvmlGpmSampleGet":
            self._sampled = [*self._sampled[-1:], t]
        elif short == "nvmlGpmMetricsGet":
            found = outcome.metrics[: outcome.numMetrics]
            values = {f"gpm.{m.metricId}": _or_error(m, float(m.value)) for m in found}
            # A mean between two samples holds from the first one on.
            self._add(self._sampled[0], values)
        elif short == "nvmlEventSetWait_v2" and _address(outcome.device) == self._handle:
            self.xids.append((t, outcome.eventData))

    def _add(self, t: float, values: dict[str, Any]) -> None:
        for key, value in values.items():
            self.points.setdefault(key, []).append((t, value))

    def _field(self, answer: Any) -> tuple[str, Value]:
        if not answer.nvmlReturn:
            self.field_types[answer.fieldId] = answer.valueType
        return field_key(answer.fieldId, answer.scopeId), _or_error(answer, number(answer))

    def _take_use(self, samples: list[Any], since_us: int) -> None:
        """Keep how busy the processes were, which the probe asks right after the list."""
        by_pid: dict[int, list[Any]] = {}
        for sample in samples:
            # What the driver leaks.
            self.shares_above_100 += sample.smUtil > 100
            if sample.smUtil <= 100 and sample.timeStamp > since_us:
                by_pid.setdefault(sample.pid, []).append(sample)
        names = ("smUtil", "memUtil", "encUtil", "decUtil")
        use = {
            pid: tuple(round(statistics.fmean(getattr(s, n) for s in found)) for n in names)
            for pid, found in by_pid.items()
        }
        for last in self.moments[-1:]:
            last.use = use

    # As text -------------------------------------------------------------------------------------
    def lines(
        self, phases: Sequence[Phase], medians_us: dict[str, float], made_with: str
    ) -> Iterator[str]:
        """Yield the lines of the tape."""
        yield from (FIRST_LINE, f"# {made_with}")
        yield from self._head(phases, medians_us)
        for key, points in sorted(self.points.items()):
            # What a tape does not hold is not supported.
            if any(value != f"!{NOT_SUPPORTED}" for _, value in points):
                yield from self._track(key, sorted(points, key=lambda point: point[0]))
        yield from (f"xid 0 {t:.3f} {code}" for t, code in self.xids)
        # What lasts was there before.
        failing = (
            (name, 0.0 if error in LASTING else start, float("inf"), error)
            for name, (start, error) in self._failing.items()
        )
        for function, start, end, error in (*self.faults, *failing):
            device = "0" if function.startswith(("nvmlDevice", "nvmlGpm")) else "*"
            yield f"fault {device} {function} {start:.3f}-{end:.3f} !{error}"
        yield from self._process_lines(phases[-1].end)

    def _head(self, phases: Sequence[Phase], medians_us: dict[str, float]) -> Iterator[str]:
        yield "# The UUID is not the real one. Seconds, phase, load:"
        for phase in phases:
            yield f"# {phase.start:.1f}-{phase.end:.1f} {phase.name}: {phase.load or 'no load'}"
        for name, said in sorted(self.settings.items()):
            yield f'set {name} "{said}"'
        for field_id, kind in sorted(self.field_types.items()):
            yield f"fieldtype {field_id} {TYPES[kind]}"
        for function, us in sorted(medians_us.items()):
            if us >= SHORTEST_LATENCY_US and not function.startswith("nvmlEventSetWait"):
                yield f"latency {function} {us:.0f}"
        yield "gpu 0"
        for key, said in sorted(self.texts.items()):
            yield f'const 0 {key} "{said}"'

    def _track(self, key: str, points: Points) -> Iterator[str]:
        head, wrap = f"track 0 {key}", ""
        words = key.split(".")
        changes = [b for a, b in pairwise(points) if _word(a[1]) != _word(b[1])]
        # What never changes is no ramp: only steps keep all 64 bits, which a sentinel needs.
        if ".".join(words[:2]) in COUNTERS and changes:
            head = f"ramp 0 {key}"
            if words[0] == "field" and self.field_types.get(int(words[1])) == UINT:
                points, wrap = unwrapped(points), f" wrap={WRAP}"
            # Between points a counter is straight: both ends of a level are kept.
            around = zip(points, points[1:], points[2:], strict=False)
            inner = [b for a, b, c in around if not a[1] == b[1] == c[1]]
            points = [points[0], *inner, points[-1]]
        else:
            points = [points[0], *changes]
        line = head
        for t, value in points:
            word = f" {t:.3f}:{_word(value)}"
            if len(line) + len(word) > LINE_WIDTH:
                yield line + wrap
                line = head
            line += word
        yield line + wrap

    def _process_lines(self, end: float) -> Iterator[str]:
        """Yield who was there; what was done in a window is known at its end."""
        strangers: dict[int, str] = {}
        windows: dict[str, list[tuple[float, float, str]]] = {}
        for now, after in zip(self.moments, [*self.moments[1:], None], strict=False):
            last, until = after or now, end if after is None else after.t
            names = {}
            for pid in now.memory:
                other = strangers.setdefault(pid, str(FIRST_STRANGER + len(strangers)))
                # By name: the load before may still be listed beside the one that follows it.
                names[self.roles.get(pid, other)] = pid
            for name, pid in names.items():
                memory, found = now.memory[pid], windows.setdefault(name, [])
                said = f"memory={'none' if memory is None else memory}"
                said += "" if last.use is None else self._use(pid, now.t, last.t)
                start = found.pop()[0] if found and found[-1][1:] == (now.t, said) else now.t
                found.append((start, until, said))
        for name, found in windows.items():
            for start, until, said in found:
                yield f"proc 0 {name} {start:.3f}-{until:.3f} {said}"

    def _use(self, pid: int, start: float, end: float) -> str:
        """Return the last use known by the end, else the one known soon after, else none."""
        near = [(m.t, m.use[pid]) for m in self.moments if m.use and pid in m.use
                if start - HOLD_SECONDS <= m.t <= end + HOLD_SECONDS]  # fmt: skip
        _, use = max(
            near, key=lambda each: each[0] if each[0] <= end else -each[0], default=(0, (0,) * 4)
        )
        shown = zip(("sm", "mem", "enc", "dec"), use, (True, True, False, False), strict=True)
        return "".join(f" {name}={share}" for name, share, always in shown if share or always)


def name_of(function: str, arguments: tuple[Any, ...]) -> str:
    """Return which function of the library this call reaches, where the binding hides a version."""
    versioned = function == "nvmlDeviceGetMemoryInfo" and len(arguments) > 1
    return f"{function}_v2" if versioned else function


def error_of(outcome: Any) -> int | None:
    """Return NVML's error code, None where there was an answer."""
    is_error = isinstance(outcome, Exception)
    return int(getattr(outcome, "value", UNKNOWN_ERROR)) if is_error else None


def number(answer: Any) -> int | float:
    """Return what a field holds, by its own word on the type."""
    value: int | float = getattr(answer.value, MEMBERS[answer.valueType])
    return value


def field_key(field_id: int, scope: int) -> str:
    """Return what the tape calls a field."""
    return f"field.{field_id}" + (f".{scope}" if scope else "")


def unwrapped(points: Points) -> Points:
    """Let a counter of 32 bits go on where it began anew; the tape wraps it again."""
    result: Points = []
    turns, last = 0, 0.0
    for t, value in points:
        if not isinstance(value, str):
            turns += value < last
            last = value
        result.append((t, value if isinstance(value, str) else value + turns * WRAP))
    return result


def _or_error(answer: Any, value: Value) -> Value:
    return f"!{answer.nvmlReturn}" if answer.nvmlReturn else value


def _keys(short: str, arguments: tuple[Any, ...]) -> list[str]:
    clock = CLOCKS[arguments[1]] if "Clock" in short and len(arguments) > 1 else ""
    return [key.format(*arguments[1:], clock=clock) for key, *_ in KEYS.get(short, ())]


def _values(short: str, outcome: Any) -> list[Value]:
    members = [word[1] for word in KEYS.get(short, ()) if len(word) > 1]
    if members:
        return [getattr(outcome, member) for member in members]
    return list(outcome) if isinstance(outcome, list | tuple) else [outcome]


def _word(value: Value) -> str:
    # Shares and rates come with digits that mean nothing; totals need all of theirs.
    short = isinstance(value, float) and abs(value) < 1e6
    return f"{value:.6g}" if short else str(value)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
