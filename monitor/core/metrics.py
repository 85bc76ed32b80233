"""Every metric, declared once; schema, exporter names, labels and documents derive from it.

A metric belongs to one scope; a scope is one wide table in the store, with one row per subject and
tick. An unknown value is absent and has a reason; it is never written as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from whyidle.agents import wire

Unit = Literal[
    "ratio",
    "bytes",
    "bytes_per_second",
    "per_second",
    "watts",
    "joules",
    "celsius",
    "megahertz",
    "cores",
    "seconds",
    "count",
    "code",
]
Source = Literal["nvml", "gpm", "procfs", "cgroup", "agent", "monitor"]
Kind = Literal["gauge", "counter"]
# What a number from the agent becomes: itself ("level"), the growth of a total ("rate"), or for
# nanoseconds the share of the time ("share"). A total that grows in leaps, such as waits that last
# many seconds and end in one, is averaged over the last seconds; others since the last record.
Becomes = Literal["level", "rate", "share", "recent rate", "recent share"]
Framework = Literal["torch", "jax", "julia", "any"]
# How the processes of a job combine to one value; "slowest": the process with the longest step.
Together = Literal["max", "min", "sum", "slowest"]

# Why a number from the agent may be missing, in the words that screens show.
NOT_READ: Final = "the agent cannot read it"
NO_LOADER: Final = "no batch of a data loader was seen yet"
NO_OPTIMIZER: Final = "no step of a PyTorch optimizer without a closure was seen yet"
NO_SAMPLES: Final = "no batch whose size is known was seen yet"
NO_POOL: Final = "no device memory of the framework's is known"


class Scope(StrEnum):
    """The subject of one row in a metric's table."""

    GPU = "gpu"
    GPU_PROCESS = "gpu_process"
    JOB = "job"
    PROCESS = "process"
    HOST = "host"
    MONITOR = "monitor"


SHOWN_UNIT: dict[Unit, str] = {
    "bytes_per_second": "bytes/s",
    "per_second": "1/s",
    "watts": "W",
    "joules": "J",
    "celsius": "°C",
    "megahertz": "MHz",
    "seconds": "s",
}


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that the agent sends: its name on the wire, and what it becomes."""

    key: str
    becomes: Becomes
    # The framework that counts it; ``None``: the agent itself.
    framework: Framework | None = None
    # Why it may be missing although its framework is in use.
    missing: str = NOT_READ
    # It is missing until this number exceeds 0.
    needs: str | None = None
    # Whether its growth over the whole run is kept, too.
    in_run: bool = False

    @property
    def is_recent(self) -> bool:
        """Whether the value is an average over the last seconds."""
        return self.becomes.startswith("recent")


@dataclass(frozen=True, eq=False, slots=True)
class Metric:
    """One number we record. A counter holds the total since the run began."""

    scope: Scope
    name: str
    unit: Unit
    source: Source
    help: str
    kind: Kind = "gauge"
    # For a process: the agent's number behind it.
    gauge: Gauge | None = None
    # For a job: how to combine the metric of the same name of its processes.
    together: Together | None = None

    @property
    def column(self) -> str:
        """SQLite column: the unit is always part of the name."""
        return f"{self.name}_{self.unit}"

    @property
    def exported(self) -> str:
        """Prometheus name; there `_count` is the end of a histogram's name, and units are basic."""
        total = "_total" if self.kind == "counter" else ""
        unit = {"count": "", "megahertz": "_hertz"}.get(self.unit, f"_{self.unit}")
        return f"whyidle_{self.scope}_{self.name}{unit}{total}"

    @property
    def exported_factor(self) -> float:
        """What a value is multiplied by under that name."""
        return 1e6 if self.unit == "megahertz" else 1.0

    @property
    def label(self) -> str:
        """Axis label of a chart."""
        return f"{self.words} ({SHOWN_UNIT.get(self.unit, self.unit)})"

    @property
    def words(self) -> str:
        """The name as used in a sentence."""
        return self.name.replace("_", " ")


def _gpu(name: str, unit: Unit, source: Source, help_: str, kind: Kind = "gauge") -> Metric:
    return Metric(Scope.GPU, name, unit, source, help_, kind)


def _job(name: str, unit: Unit, source: Source, help_: str) -> Metric:
    return Metric(Scope.JOB, name, unit, source, help_)


def _inside(name: str, unit: Unit, help_: str, gauge: Gauge | None = None) -> Metric:
    return Metric(Scope.PROCESS, name, unit, "agent", help_, gauge=gauge)


def _together(how: Together, name: str, unit: Unit, help_: str) -> Metric:
    return Metric(Scope.JOB, name, unit, "agent", help_, together=how)


def _host(name: str, unit: Unit, help_: str) -> Metric:
    return Metric(Scope.HOST, name, unit, "procfs", help_)


def _self(name: str, unit: Unit, help_: str) -> Metric:
    return Metric(Scope.MONITOR, name, unit, "monitor", help_)


# One GPU -----------------------------------------------------------------------------------------
GPU_UTILISATION = _gpu(
    "utilisation", "ratio", "nvml", "Share of the driver's window in which any kernel ran."
)
GPU_MEMORY_USED = _gpu("memory_used", "bytes", "nvml", "Device memory in use by everybody.")
GPU_MEMORY_TOTAL = _gpu("memory_total", "bytes", "nvml", "Device memory present.")
GPU_MEMORY_UNCLAIMED = _gpu(
    "memory_unclaimed", "bytes", "nvml", "Memory in use that no live process holds."
)
GPU_MEMORY_BANDWIDTH = _gpu(
    "memory_bandwidth", "ratio", "nvml", "Share of the window in which device memory was accessed."
)
GPU_ENGINE_ACTIVITY = _gpu(
    "engine_activity", "ratio", "gpm", "Share of time in which the compute engine had work."
)
GPU_SM_ACTIVITY = _gpu("sm_activity", "ratio", "gpm", "Share of SM cycles with a warp resident.")
GPU_SM_OCCUPANCY = _gpu("sm_occupancy", "ratio", "gpm", "Resident warps over the most possible.")
GPU_TENSOR_ACTIVITY = _gpu(
    "tensor_activity", "ratio", "gpm", "Share of cycles with a tensor core at work."
)
GPU_DRAM_ACTIVITY = _gpu(
    "dram_activity", "ratio", "gpm", "Share of the peak device memory bandwidth in use."
)
GPU_FP32_ACTIVITY = _gpu(
    "fp32_activity", "ratio", "gpm", "Share of cycles with the FP32 pipe at work."
)
GPU_FP16_ACTIVITY = _gpu(
    "fp16_activity", "ratio", "gpm", "Share of cycles with the FP16 pipe at work, tensor excluded."
)
GPU_PCIE_RX = _gpu("pcie_rx", "bytes_per_second", "nvml", "PCIe traffic into the GPU (H2D).")
GPU_PCIE_TX = _gpu("pcie_tx", "bytes_per_second", "nvml", "PCIe traffic out of the GPU (D2H).")
GPU_NVLINK_RX = _gpu("nvlink_rx", "bytes_per_second", "nvml", "NVLink data in, all links.")
GPU_NVLINK_TX = _gpu("nvlink_tx", "bytes_per_second", "nvml", "NVLink data out, all links.")
GPU_POWER = _gpu("power", "watts", "nvml", "Power draw, averaged by the driver over a second.")
GPU_POWER_LIMIT = _gpu("power_limit", "watts", "nvml", "Power cap in force.")
GPU_ENERGY = _gpu("energy", "joules", "nvml", "Energy used since the run began.", "counter")
GPU_TEMPERATURE = _gpu("temperature", "celsius", "nvml", "Temperature of the GPU's core.")
GPU_MEMORY_TEMPERATURE = _gpu(
    "memory_temperature", "celsius", "nvml", "Temperature of the device memory."
)
GPU_SM_CLOCK = _gpu("sm_clock", "megahertz", "nvml", "SM clock now; activity is per cycle of it.")
GPU_MEMORY_CLOCK = _gpu("memory_clock", "megahertz", "nvml", "Device memory clock now.")
GPU_THROTTLED_POWER = _gpu(
    "throttled_power", "ratio", "nvml", "Share of time slowed by the software power cap."
)
GPU_THROTTLED_SYNC = _gpu(
    "throttled_sync_boost", "ratio", "nvml", "Share of time slowed to match a sync-boost group."
)
GPU_THROTTLED_HEAT = _gpu(
    "throttled_heat", "ratio", "nvml", "Share of time slowed by software for heat."
)
GPU_THROTTLED_HARDWARE_HEAT = _gpu(
    "throttled_hardware_heat", "ratio", "nvml", "Share of time slowed by hardware for heat."
)
GPU_THROTTLED_BRAKE = _gpu(
    "throttled_power_brake", "ratio", "nvml", "Share of time slowed by the external power brake."
)
GPU_PCIE_GENERATION = _gpu("pcie_generation", "count", "nvml", "PCIe link generation now.")
GPU_PCIE_WIDTH = _gpu("pcie_width", "count", "nvml", "PCIe lanes in use now.")
GPU_XID = _gpu("xid", "code", "nvml", "Last XID error since the run began.")

# One process on one GPU --------------------------------------------------------------------------
PROCESS_GPU_MEMORY = Metric(
    Scope.GPU_PROCESS, "memory_used", "bytes", "nvml", "Device memory that the process holds."
)
PROCESS_SM_SHARE = Metric(
    Scope.GPU_PROCESS, "sm_share", "ratio", "nvml", "Share of SM time that the process took."
)

# The watched job: the whole process tree ---------------------------------------------------------
JOB_CPU = _job(
    "cpu", "cores", "procfs", "CPU time per second, whole process tree, ended children included."
)
JOB_KERNEL = _job(
    "kernel_cpu", "cores", "procfs", "Of that the time in the kernel: page faults, system calls."
)
JOB_MAIN_THREAD = _job(
    "main_thread_cpu", "cores", "procfs", "CPU time per second of the busiest main thread."
)
JOB_MAIN_THREAD_WAIT = _job(
    "main_thread_run_delay", "ratio", "procfs", "Share of time that this thread waited for a core."
)
JOB_PROCESSES = _job("processes", "count", "procfs", "Live processes of the job.")
JOB_THREADS = _job("threads", "count", "procfs", "Threads of the job.")
JOB_RSS = _job("rss", "bytes", "procfs", "Resident memory, summed over processes.")
JOB_MINOR_FAULTS = _job("minor_faults", "per_second", "procfs", "Page faults without disk access.")
JOB_MAJOR_FAULTS = _job("major_faults", "per_second", "procfs", "Page faults that read the disk.")
JOB_DISK_READ = _job("disk_read", "bytes_per_second", "procfs", "Read from storage by the job.")
JOB_DISK_WRITE = _job("disk_write", "bytes_per_second", "procfs", "Written to storage by it.")
JOB_READ = _job(
    "read", "bytes_per_second", "procfs", "Read by its calls: from caches, storage, and pipes."
)
JOB_NET_RX = _job("net_rx", "bytes_per_second", "procfs", "Received in its network namespace.")
JOB_NET_TX = _job("net_tx", "bytes_per_second", "procfs", "Sent in its network namespace.")
JOB_SWITCHES = _job(
    "context_switches", "per_second", "procfs", "Voluntary switches of the main threads."
)
JOB_PREEMPTIONS = _job(
    "preemptions", "per_second", "procfs", "Involuntary switches of the main threads."
)
JOB_THROTTLED = _job(
    "cgroup_throttled",
    "ratio",
    "cgroup",
    "Share of scheduling periods in which the CPU limit stopped the job.",
)
JOB_CPU_LIMIT = _job("cgroup_cpu_limit", "cores", "cgroup", "CPU limit of the job's cgroup.")
JOB_MEMORY_LIMIT = _job(
    "cgroup_memory_limit", "bytes", "cgroup", "Memory limit of the job's cgroup."
)
JOB_CORES_ALLOWED = _job(
    "cores_allowed", "cores", "procfs", "Cores that the threads of the job that run may use."
)
JOB_CORES_BUSY = _job(
    "cores_allowed_busy", "ratio", "procfs", "Share of these cores that worked, for anybody."
)
JOB_WAITING_THREADS = _job(
    "waiting_threads", "count", "procfs", "Threads that could run and had no core, on average."
)
JOB_BUSY_PROCESSES = _job(
    "busy_processes", "count", "procfs", "Processes whose threads want half a core or more."
)
JOB_FAR_FROM_GPU = _job(
    "far_from_gpu",
    "ratio",
    "procfs",
    "Share of the last looks that found the main thread on another NUMA node than its GPU, worst"
    " process.",
)
JOB_SWAP = _job("swap", "bytes", "procfs", "Memory of the job that lies in swap.")
JOB_MEMORY_USED = _job(
    "cgroup_memory_used",
    "bytes",
    "cgroup",
    "Memory under the tightest limit, without the pages of files, which can be dropped.",
)
JOB_MEMORY_HIGH = _job(
    "cgroup_memory_high", "bytes", "cgroup", "Use of memory from which the kernel slows the job."
)
JOB_MEMORY_STALL = _job(
    "cgroup_memory_stall",
    "ratio",
    "cgroup",
    "Share of time in which a task of the job's cgroup waited for memory.",
)
JOB_MEMORY_STALL_ALL = _job(
    "cgroup_memory_stall_all",
    "ratio",
    "cgroup",
    "Share of time in which all tasks of the job's cgroup that were not idle waited for memory.",
)
JOB_OOM_KILLS = _job(
    "cgroup_oom_kills",
    "count",
    "cgroup",
    "Processes of the job's cgroup that were killed out of memory since the run began.",
)
JOB_GC_PAUSE = _together(
    "max", "gc_pause", "ratio", "Share of time in the garbage collector, worst process."
)
JOB_AGENT_CPU = _together(
    "sum", "agent_cpu", "cores", "CPU time per second that our agents take in the job."
)
JOB_STEPS = _together("min", "steps", "per_second", "Training steps, of the slowest process.")
JOB_STEP_P50 = _together(
    "slowest", "step_p50", "seconds", "Median time of a step, slowest process."
)
JOB_STEP_P95 = _together(
    "slowest", "step_p95", "seconds", "Time that 95% of steps stay under, likewise."
)
JOB_SAMPLES = _together(
    "sum", "samples", "per_second", "Samples trained on, all processes together."
)
JOB_LOADER_WAIT = _together(
    "max", "loader_wait", "ratio", "Share of time that waits for the data loader, worst process."
)
JOB_SYNC_WAIT = _together(
    "max", "sync_wait", "ratio", "Share of time in reads of values from the device, worst process."
)
JOB_COMPILE = _together("max", "compile", "ratio", "Share of time spent compiling, worst process.")
JOB_COMPILES = _together("sum", "compiles", "per_second", "Compilations that no cache had.")
JOB_AGENTS = _job("agents", "count", "agent", "Processes of the job with the agent inside.")

# One process of the job --------------------------------------------------------------------------
PROCESS_CPU = Metric(Scope.PROCESS, "cpu", "cores", "procfs", "CPU time per second.")
PROCESS_RSS = Metric(Scope.PROCESS, "rss", "bytes", "procfs", "Resident memory.")
PROCESS_THREADS = Metric(Scope.PROCESS, "threads", "count", "procfs", "Threads.")
# The table of the agent's numbers: the metric, the number behind it, and why it may be missing.
# fmt: off
PROCESS_GC_PAUSE = _inside("gc_pause", "ratio", "Share of time in the garbage collector.",
    Gauge(wire.GC_NS, "share", in_run=True))
PROCESS_GC_COLLECTIONS = _inside("gc_collections", "per_second", "Garbage collections.",
    Gauge(wire.GC_COLLECTIONS, "rate"))
PROCESS_GC_FULL = _inside("gc_full", "per_second", "Of these, of all objects: Julia's are counted.",
    Gauge(wire.GC_FULL, "rate", "julia"))
PROCESS_ALLOCATED = _inside("allocated", "bytes_per_second", "Newly allocated from Julia's heap.",
    Gauge(wire.ALLOCATED_BYTES, "recent rate", "julia", in_run=True))
PROCESS_HEAP = _inside("heap", "bytes", "Alive on Julia's heap, as of the last collection.",
    Gauge(wire.HEAP_BYTES, "level", "julia"))
PROCESS_PYTHON_THREADS = _inside("python_threads", "count", "Threads that run Python.",
    Gauge(wire.PYTHON_THREADS, "level"))
PROCESS_RSS_PEAK = _inside("rss_peak", "bytes", "Most resident memory since the process began.",
    Gauge(wire.RSS_PEAK_BYTES, "level"))
PROCESS_AGENT_CPU = _inside("agent_cpu", "cores", "CPU time per second of our agent's thread.",
    Gauge(wire.AGENT_CPU_NS, "share"))
PROCESS_AGENT_LOST = _inside("agent_lost", "count",
    "Records of the agent that found no room or came damaged.", Gauge(wire.LOST, "level"))
PROCESS_STEPS = _inside("steps", "per_second", "Training steps.")
PROCESS_STEP_P50 = _inside("step_p50", "seconds", "Median time of a step.")
PROCESS_STEP_P95 = _inside("step_p95", "seconds", "Time that 95% of the steps stay under.")
PROCESS_SAMPLES = _inside("samples", "per_second", "Samples of batches whose size is known.",
    Gauge(wire.SAMPLES, "recent rate", "torch", NO_SAMPLES, wire.SAMPLES, in_run=True))
PROCESS_OPTIMIZER_TIME = _inside("optimizer_time", "ratio", "Share of time inside optimizers.",
    Gauge(wire.OPTIMIZER_NS, "recent share", "torch", NO_OPTIMIZER, wire.OPTIMIZER_STEPS,
          in_run=True))
PROCESS_LOADER_BATCHES = _inside("loader_batches", "per_second", "Batches from data loaders.",
    Gauge(wire.LOADER_BATCHES, "recent rate", "any", NO_LOADER, wire.LOADER_BATCHES, in_run=True))
PROCESS_LOADER_WAIT = _inside("loader_wait", "ratio", "Share of time that waits for a data loader.",
    Gauge(wire.LOADER_WAIT_NS, "recent share", "any", NO_LOADER, wire.LOADER_BATCHES,
          in_run=True))
PROCESS_SYNCS = _inside("syncs", "per_second", "Values read back from the device.",
    Gauge(wire.SYNCS, "recent rate", "any", in_run=True))
PROCESS_SYNC_WAIT = _inside("sync_wait", "ratio", "Share of time that such reads take.",
    Gauge(wire.SYNC_NS, "recent share", "any", in_run=True))
PROCESS_READBACK = _inside("readback", "bytes_per_second", "Read back from the device.",
    Gauge(wire.READ_BYTES, "recent rate", "any", in_run=True))
PROCESS_DEVICE_PUTS = _inside("device_puts", "per_second", "Explicit copies to the device.",
    Gauge(wire.DEVICE_PUTS, "recent rate", "jax"))
PROCESS_COMPILES = _inside("compiles", "per_second", "Compilations that no cache had.",
    Gauge(wire.COMPILES, "recent rate", "any", in_run=True))
PROCESS_COMPILE = _inside("compile", "ratio", "Share of time spent compiling.",
    Gauge(wire.COMPILE_NS, "recent share", "any", in_run=True))
PROCESS_COMPILE_HITS = _inside("compile_hits", "per_second", "Compilations that a cache had.",
    Gauge(wire.COMPILE_HITS, "recent rate", "jax", in_run=True))
PROCESS_AUTOCASTS = _inside("autocasts", "per_second", "Regions of reduced precision entered.",
    Gauge(wire.AUTOCASTS, "recent rate", "torch"))
PROCESS_DEBUG_MODES = _inside("debug_modes", "count",
    "Debugging modes that slow each step and are on.", Gauge(wire.DEBUG_MODES, "level", "any"))
PROCESS_EXECUTABLES = _inside("executables", "count", "Compiled programs alive.",
    Gauge(wire.EXECUTABLES, "level", "jax"))
PROCESS_LIVE_ARRAYS = _inside("live_arrays", "count", "Arrays alive on devices.",
    Gauge(wire.LIVE_ARRAYS, "level", "jax"))
PROCESS_LIVE_BYTES = _inside("live_bytes", "bytes", "Bytes of the arrays alive.",
    Gauge(wire.LIVE_BYTES, "level", "jax"))
PROCESS_POOL_USED = _inside("pool_used", "bytes", "Device memory in use, by the framework's count.",
    Gauge(wire.POOL_USED_BYTES, "level", "any", NO_POOL))
PROCESS_POOL_PEAK = _inside("pool_peak", "bytes", "Most device memory in use so far, likewise.",
    Gauge(wire.POOL_PEAK_BYTES, "level", "any", NO_POOL))
PROCESS_POOL_RESERVED = _inside("pool_reserved", "bytes", "Device memory the framework holds.",
    Gauge(wire.POOL_RESERVED_BYTES, "level", "any", NO_POOL))
PROCESS_POOL_LIMIT = _inside("pool_limit", "bytes", "Device memory the framework may take.",
    Gauge(wire.POOL_LIMIT_BYTES, "level", "any", NO_POOL))
PROCESS_POOL_SPLIT = _inside("pool_split", "bytes", "Of that, free in pieces between what is used.",
    Gauge(wire.POOL_SPLIT_BYTES, "level", "any", NO_POOL))
PROCESS_ALLOC_RETRIES = _inside("alloc_retries", "per_second", "Allocations that had to try again.",
    Gauge(wire.ALLOC_RETRIES, "recent rate", "any", NO_POOL))
PROCESS_ALLOC_OOMS = _inside("alloc_ooms", "count", "Allocations that failed.",
    Gauge(wire.ALLOC_OOMS, "level", "any", NO_POOL))
# fmt: on

# The machine -------------------------------------------------------------------------------------
HOST_CPU = _host("cpu_busy", "ratio", "Share of all cores that worked.")
HOST_IOWAIT = _host("cpu_iowait", "ratio", "Share of all cores idle with disk I/O outstanding.")
HOST_CORES = _host("cpu", "cores", "Cores of the machine.")
HOST_MEMORY_TOTAL = _host("memory_total", "bytes", "Main memory present.")
HOST_MEMORY_AVAILABLE = _host("memory_available", "bytes", "Main memory left without swapping.")
HOST_CPU_PRESSURE = _host("cpu_pressure", "ratio", "Share of time some task waited for a core.")
HOST_IO_PRESSURE = _host("io_pressure", "ratio", "Share of time some task waited for I/O.")
HOST_MEMORY_PRESSURE = _host(
    "memory_pressure", "ratio", "Share of time some task waited for memory."
)
HOST_SWAPPED_IN = _host("swapped_in", "bytes_per_second", "Read back from swap.")
HOST_DISK_READ = _host("disk_read", "bytes_per_second", "Read from all disks.")
HOST_DISK_WRITE = _host("disk_write", "bytes_per_second", "Written to all disks.")
HOST_NET_RX = _host("net_rx", "bytes_per_second", "Received by the machine, loopback excluded.")
HOST_NET_TX = _host("net_tx", "bytes_per_second", "Sent by the machine, loopback excluded.")

# The monitor itself ------------------------------------------------------------------------------
SELF_CPU = _self("cpu", "cores", "CPU time per second that the monitor itself takes.")
SELF_RSS = _self("rss", "bytes", "Resident memory of the monitor.")
SELF_NVML = _self("nvml_time", "seconds", "Time that the last round of NVML calls took.")
SELF_TICK = _self("tick_time", "seconds", "Time that the last tick took, storing included.")
SELF_MISSED = _self("missed_ticks", "count", "Ticks left out since the run began.")

METRICS = tuple(v for v in list(globals().values()) if isinstance(v, Metric))


def metrics_of(scope: Scope) -> tuple[Metric, ...]:
    """Return the metrics of one scope, in column order."""
    return tuple(m for m in METRICS if m.scope is scope)


def processes_of(metric: Metric) -> Metric:
    """Return the process metric behind a job metric."""
    return next(x for x in metrics_of(Scope.PROCESS) if x.name == metric.name)


def _is_recent(metric: Metric) -> bool:
    gauge = processes_of(metric).gauge if metric.together else metric.gauge
    return gauge is not None and gauge.is_recent


# The bounds of a histogram of steps, in seconds.
STEP_BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)  # fmt: skip
# How far back a recent rate or share reaches; with longer steps, over a few steps.
REACH_S = 10.0
STEPS = frozenset({PROCESS_STEPS, JOB_STEPS})
IN_LEAPS = frozenset(metric for metric in METRICS if _is_recent(metric))
