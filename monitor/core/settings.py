"""Settings that cost time, each declared once: where it is read, when it does, what to type.

What a framework says of itself comes from the agent, as a fact. Variables are read from outside, as
the process was started with them: of an environment, which holds secrets, only these are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from whyidle.monitor.core.finding import Framework, Severity

# Of a value: a path may stand in it.
LONGEST: Final = 200
_OFF: Final = frozenset({"", "0", "false", "off", "no", "n", "f"})


class Purpose(StrEnum):
    """What a person switches it on for."""

    DEBUGGING = "debugging"
    # Repeatable results, less memory, a machine that does not work otherwise.
    OTHER = "other"


class Where(StrEnum):
    """Of which jobs it takes time."""

    ANY = "any"
    GPU = "gpu"
    # Those of several processes, with and without GPUs.
    SEVERAL = "several"
    SEVERAL_GPUS = "several GPUs"


def is_on(value: object) -> bool:
    """Tell whether a flag is set, as a framework says it or a variable spells it."""
    return value.strip().lower() not in _OFF if isinstance(value, str) else value is True


def is_off(value: object) -> bool:
    """Tell whether a flag is there and not set."""
    return value.strip().lower() in _OFF if isinstance(value, str) else value is False


def _is_there(_value: object) -> bool:
    """Tell that it is, whatever its value."""
    return True


@dataclass(frozen=True, slots=True)
class Setting:
    """One of them. Where the agent says how it stands, what the job was started with is old."""

    # As a person types it.
    name: str
    # What it does to a job, as part of a sentence.
    does: str
    # What to type instead.
    instead: str
    frameworks: tuple[Framework, ...]
    fact: str | None = None
    variable: str | None = None
    # A word of that variable, up to its "=".
    flag: str | None = None
    costs: Callable[[Any], bool] = is_on
    purpose: Purpose = Purpose.DEBUGGING
    where: Where = Where.ANY
    # Of a finding that nothing gives a gain; and where all is on a CPU, if that is another.
    severity: Severity = Severity.LOW
    severity_on_cpu: Severity | None = None

    def said(self, facts: Mapping[str, Any]) -> Any:
        """Return how it stands as the agent says it; ``None``: it does not."""
        return None if self.fact is None else facts.get(self.fact)

    def given(self, variables: Mapping[str, str] | None) -> str | None:
        """Return what a variable gives it; ``None``: it is not among them."""
        given = (variables or {}).get(self.variable or "")
        return given if given is None or self.flag is None else _of_flag(given, self.flag)


def _of_flag(given: str, flag: str) -> str | None:
    """Return the value of the last such flag; one without a value is on."""
    words = [word.partition("=") for word in given.split()]
    values = [value if equals else "true" for name, equals, value in words if name == flag]
    return values[-1] if values else None


_TORCH: Final[tuple[Framework, ...]] = ("pytorch",)
_JAX: Final[tuple[Framework, ...]] = ("jax",)
_TENSORFLOW: Final[tuple[Framework, ...]] = ("tensorflow",)
_BOTH: Final[tuple[Framework, ...]] = ("pytorch", "jax")


def _unset(name: str) -> str:
    return f"unset {name}"


def _flag(name: str, does: str, **more: Any) -> Setting:
    """Return a flag of XLA's."""
    given: dict[str, Any] = {"costs": is_on, **more}
    return Setting(
        name, does, f"take {name} out of XLA_FLAGS", _JAX, variable="XLA_FLAGS", flag=name, **given
    )


def _option(
    name: str, does: str, severity: Severity, severity_on_cpu: Severity | None = None
) -> Setting:
    """Return an option of JAX's, whose variable has its name in capitals."""
    return Setting(
        f"jax_{name}", does, f'jax.config.update("jax_{name}", False)', _JAX,
        fact=name, variable=f"JAX_{name.upper()}", severity=severity,
        severity_on_cpu=severity_on_cpu,
    )  # fmt: skip


SETTINGS: Final[tuple[Setting, ...]] = (
    # To find errors.
    Setting(
        "torch.autograd.set_detect_anomaly",
        "keeps the stack of each operation, and looks through each gradient for NaN",
        "torch.autograd.set_detect_anomaly(False)",
        _TORCH, fact="anomaly_detection", severity=Severity.MEDIUM,
    ),
    # On a CPU what it copies lies there already: 2% of a step of 0.6 ms (JAX 0.10, three layers).
    _option(
        "debug_nans", "copies each result to the host, to look for NaN", Severity.MEDIUM,
        Severity.LOW,
    ),
    _option(
        "debug_infs", "copies each result to the host, to look for infinity", Severity.MEDIUM,
        Severity.LOW,
    ),
    _option("disable_jit", "compiles nothing: each operation runs by itself", Severity.MEDIUM),
    _option("check_tracer_leaks", "traces each function again, and looks for leaks", Severity.LOW),
    _option("enable_checks", "checks each internal value and program of JAX", Severity.LOW),
    _option("log_compiles", "writes a line for each compilation", Severity.INFO),
    Setting(
        "tf.config.run_functions_eagerly",
        "runs each operation by itself: no tf.function is a graph",
        "tf.config.run_functions_eagerly(False)",
        _TENSORFLOW, fact="run_functions_eagerly", severity=Severity.MEDIUM,
    ),
    Setting(
        "tf.data.experimental.enable_debug_mode",
        "makes each element of a pipeline in Python, one by one",
        "# without tf.data.experimental.enable_debug_mode()",
        _TENSORFLOW, fact="data_debug_mode", severity=Severity.MEDIUM,
    ),
    Setting(
        "a profiler of the job's own",
        "records each operation, and keeps the records in memory",
        "schedule=torch.profiler.schedule(wait=100, warmup=2, active=3, repeat=1)",
        _TORCH, fact="own_profiler",
    ),
    Setting(
        "a trace of the job's own", "records each program and call, and keeps them in memory",
        "jax.profiler.stop_trace()", _JAX, fact="own_profiler",
    ),
    Setting(
        "CUDA_LAUNCH_BLOCKING", "waits for the GPU after each launch",
        _unset("CUDA_LAUNCH_BLOCKING"), _BOTH, variable="CUDA_LAUNCH_BLOCKING", where=Where.GPU,
        severity=Severity.MEDIUM,
    ),
    Setting(
        # Whatever its value is.
        "PYTORCH_NO_CUDA_MEMORY_CACHING", "asks the driver for each tensor's memory",
        _unset("PYTORCH_NO_CUDA_MEMORY_CACHING"), _TORCH, where=Where.GPU,
        variable="PYTORCH_NO_CUDA_MEMORY_CACHING", costs=_is_there,
        severity=Severity.MEDIUM,
    ),
    Setting(
        "TORCH_DISTRIBUTED_DEBUG=DETAIL", "compares all ranks before each collective",
        _unset("TORCH_DISTRIBUTED_DEBUG"), _TORCH, variable="TORCH_DISTRIBUTED_DEBUG",
        costs=lambda value: str(value).upper() == "DETAIL", where=Where.SEVERAL,
    ),
    *(
        Setting(
            name, "makes the host wait for each collective", _unset(name), _TORCH, variable=name,
            where=Where.SEVERAL_GPUS,
        )
        for name in ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    ),
    Setting(
        # With one frame steps of a network of 20 layers took 1.3 times as long, lists of records
        # 1.9 times, to import torch 4 times; with 25 frames to import it took a minute in place of
        # a second (PyTorch 2.13 on a CPU, Python 3.11, CPU time).
        "PYTHONTRACEMALLOC", "records the stack of each Python allocation",
        _unset("PYTHONTRACEMALLOC"), _BOTH, variable="PYTHONTRACEMALLOC", severity=Severity.MEDIUM,
    ),
    Setting(
        "PYTHONMALLOC", "checks each Python allocation", _unset("PYTHONMALLOC"), _BOTH,
        variable="PYTHONMALLOC", costs=lambda value: str(value).endswith("debug"),
    ),
    *(
        Setting(name, does, _unset(name), _BOTH, variable=name)
        for name, does in (
            ("PYTHONDEVMODE", "checks each Python allocation"),
            ("ONEDNN_VERBOSE", "prints a line for each operation on a CPU"),
            ("DNNL_VERBOSE", "prints a line for each operation on a CPU"),
            ("MKL_VERBOSE", "prints a line for each matrix product on a CPU"),
        )
    ),
    _flag(
        "--xla_dump_to", "writes files for each program that is compiled",
        costs=bool, severity=Severity.INFO,
    ),
    # For other ends.
    Setting(
        "jax_disable_most_optimizations", "leaves programs unoptimized",
        'jax.config.update("jax_disable_most_optimizations", False)',
        _JAX, fact="disable_most_optimizations", variable="JAX_DISABLE_MOST_OPTIMIZATIONS",
        purpose=Purpose.OTHER, severity=Severity.MEDIUM,
    ),
    Setting(
        "XLA_PYTHON_CLIENT_ALLOCATOR=platform", "always asks the driver",
        _unset("XLA_PYTHON_CLIENT_ALLOCATOR"), _JAX, variable="XLA_PYTHON_CLIENT_ALLOCATOR",
        costs=lambda value: str(value).lower() == "platform", where=Where.GPU,
        purpose=Purpose.OTHER, severity=Severity.MEDIUM,
    ),
    Setting(
        "XLA_PYTHON_CLIENT_PREALLOCATE", "lets memory grow in pieces",
        _unset("XLA_PYTHON_CLIENT_PREALLOCATE"), _JAX, variable="XLA_PYTHON_CLIENT_PREALLOCATE",
        costs=is_off, where=Where.GPU, purpose=Purpose.OTHER, severity=Severity.INFO,
    ),
    Setting(
        "torch.use_deterministic_algorithms", "takes slower kernels",
        "torch.use_deterministic_algorithms(False)", _TORCH, fact="deterministic_algorithms",
        purpose=Purpose.OTHER, severity=Severity.INFO,
    ),
    Setting(
        "torch.backends.cudnn.deterministic", "takes slower convolutions",
        "torch.backends.cudnn.deterministic = False", _TORCH, fact="cudnn_deterministic",
        where=Where.GPU, purpose=Purpose.OTHER, severity=Severity.INFO,
    ),
    *(
        _flag(
            name, "takes slower kernels", where=Where.GPU, purpose=Purpose.OTHER,
            severity=Severity.INFO,
        )
        for name in ("--xla_gpu_deterministic_ops", "--xla_gpu_exclude_nondeterministic_ops")
    ),
    _flag(
        "--xla_gpu_autotune_level", "takes kernels that were not tuned",
        costs=lambda value: value == "0", where=Where.GPU, purpose=Purpose.OTHER,
    ),
    *(
        Setting(
            name, "switches torch.compile off", _unset(name), _TORCH, variable=name,
            purpose=Purpose.OTHER, costs=lambda value: value == "1", severity=Severity.INFO,
        )
        for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
    ),
    Setting(
        "NVIDIA_TF32_OVERRIDE=0", "keeps matmuls off the tensor cores",
        _unset("NVIDIA_TF32_OVERRIDE"), _BOTH, variable="NVIDIA_TF32_OVERRIDE",
        costs=lambda value: value == "0", where=Where.GPU, purpose=Purpose.OTHER,
    ),
    *(
        Setting(
            name, does, _unset(name), _BOTH, variable=name, where=Where.SEVERAL_GPUS,
            purpose=Purpose.OTHER, costs=lambda value: value != "0",
        )
        for name, does in (
            ("NCCL_P2P_DISABLE", "sends between GPUs through host memory"),
            ("NCCL_SHM_DISABLE", "sends between local processes by network"),
            ("NCCL_IB_DISABLE", "uses TCP between machines, not InfiniBand"),
        )
    ),
)  # fmt: skip
VARIABLES: Final = frozenset(each.variable for each in SETTINGS if each.variable is not None)
_FLAGS: Final = frozenset(each.flag for each in SETTINGS if each.flag is not None)


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what is kept of an environment: the variables above, and of flags those above."""
    found = {}
    for name in sorted(VARIABLES & environment.keys()):
        value = environment[name]
        if name == "XLA_FLAGS":
            value = " ".join(x for x in value.split() if x.partition("=")[0] in _FLAGS)
        found[name] = value[:LONGEST]
    return found
