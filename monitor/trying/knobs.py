"""The knobs: what each does, needs and risks, how it is undone, which findings point to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.sources.threads import cpus

ON, OFF = "on", "off"
# A change of cores or priorities shows once what was prepared before is used up.
OUTSIDE_SETTLE_S: Final = 1.0
# Best effort, the last of its levels (linux/ioprio.h).
LAST_OF_BEST_EFFORT: Final = (2 << 13) | 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One change that can be tried in a running job."""

    name: str
    does: str
    needs: str
    risk: str
    undone: str
    # What a value may be, in words; its own where none is given (``None``: one must be).
    takes: str | None = None
    default: str | None = None
    parse: Callable[[str], Any]
    # Set by the kernel from outside: the setting, and whether the job's first process is left out.
    setting: str | None = None
    helpers_only: bool = False
    # Why results may differ with it.
    numerics: str | None = None
    # Findings that point to it.
    rules: tuple[str, ...] = ()
    settle_s: float = 0.0
    # The collector's pauses are what it is about: a block has several of them.
    is_about_gc: bool = False

    @property
    def is_inside(self) -> bool:
        """Whether the agent turns it."""
        return self.setting is None

    def value_of(self, text: str | None) -> Any:
        """Return the value that is meant; raises where none is."""
        given = self.default if text is None else text
        if given is None:
            raise UsageProblem(
                f"{self.name} needs a value: {self.takes}.", f"Such as: {self.name}=…"
            )
        try:
            return self.parse(given)
        except ValueError:
            raise UsageProblem(
                f"'{given}' is no value of {self.name}: it takes {self.takes or 'none'}.",
                "See every knob: monitor try --list",
            ) from None


def _nothing(text: str) -> None:
    if text:
        raise ValueError(text)


def _switch(text: str) -> bool:
    if text not in {ON, OFF}:
        raise ValueError(text)
    return text == ON


def _precision(text: str) -> str:
    if text not in {"highest", "high", "medium"}:
        raise ValueError(text)
    return text


def _cores(text: str) -> list[int]:
    online = cpus(Path("/sys/devices/system/cpu/online").read_text())
    found = online if text == "all" else cpus(text)
    if not found & online:
        raise ValueError(text)
    return sorted(found & online)


def _node(text: str) -> list[int]:
    folder = Path("/sys/devices/system/node")
    nodes = sorted(folder.glob("node[0-9]*/cpulist"))
    if len(nodes) < 2:
        raise UsageProblem(
            "This machine has one NUMA node: nothing is far from anything.",
            "See every knob: monitor try --list",
        )
    found = folder / f"node{int(text)}" / "cpulist"
    if found not in nodes:
        raise ValueError(text)
    return sorted(cpus(found.read_text()))


def _nice(text: str) -> int:
    found = int(text)
    if not 1 <= found <= 19:
        raise ValueError(text)
    return found


_RETURNS_OBJECTS = "gc.unfreeze(): the objects are the collector's again, in its oldest generation"
_OF_PYTHON = "CPython with its GIL"
_THREADS = "each thread gets back what it had, and those that began meanwhile what their maker had"

KNOBS: Final[dict[str, Knob]] = {
    knob.name: knob
    for knob in (
        Knob(
            name="gc.freeze",
            does="The garbage collector passes over all objects that are alive now.",
            needs=f"{_OF_PYTHON}; that the job has frozen none itself.",
            risk="Garbage in circles of that moment stays until it is undone; kept, for good.",
            undone=_RETURNS_OBJECTS,
            default="",
            parse=_nothing,
            rules=("gc_pauses",),
            is_about_gc=True,
        ),
        Knob(
            name="gc.threshold",
            does="The garbage collector comes after so many new objects (gc.set_threshold).",
            needs=_OF_PYTHON,
            risk="Garbage in circles waits longer: memory is watched meanwhile.",
            undone="gc.set_threshold() with the three numbers of before",
            takes="a whole number",
            default="50000",
            parse=int,
            rules=("gc_pauses",),
            is_about_gc=True,
        ),
        Knob(
            name="gc.disable",
            does="The garbage collector does not come by itself.",
            needs=f"{_OF_PYTHON}; that the job has not switched it off itself.",
            risk="Garbage in circles piles up: memory is watched meanwhile.",
            undone="gc.enable()",
            default="",
            parse=_nothing,
            rules=("gc_pauses",),
            is_about_gc=True,
        ),
        Knob(
            name="python.switch_interval",
            does="A thread keeps Python's lock for so long when another one wants it.",
            needs=_OF_PYTHON,
            risk="Threads that read data or write logs wait longer for their turn.",
            undone="sys.setswitchinterval() with the interval of before",
            takes="seconds, 0.00001 to 1",
            default="0.0005",
            parse=float,
            rules=("gil_contention",),
        ),
        Knob(
            name="torch.threads",
            does="One operation of PyTorch on the CPU takes so many threads.",
            needs="A main thread that ends steps; no step that torch.compile has compiled.",
            risk="The threads that PyTorch starts between operations are set once, and stay.",
            undone="torch.set_num_threads() with the number of before, on the main thread",
            takes="a whole number",
            parse=int,
            numerics="sums on the CPU are added in another order, so that last digits differ",
            rules=("cpu_starved",),
        ),
        Knob(
            name="torch.matmul_precision",
            does="PyTorch multiplies 32-bit matrices in so precise a way.",
            needs="PyTorch with a GPU that has TF32; no step that torch.compile has compiled.",
            risk="Products have fewer digits.",
            undone="torch.set_float32_matmul_precision() with the word of before",
            takes="highest, high or medium",
            default="high",
            parse=_precision,
            numerics="products of matrices have fewer digits",
            rules=("full_precision_matmul",),
        ),
        Knob(
            name="cudnn.benchmark",
            does="cuDNN times its algorithms for each shape, and takes the fastest.",
            needs="PyTorch with cuDNN.",
            risk="Each new shape is timed first, and takes memory for that.",
            undone="torch.backends.cudnn.benchmark as before",
            takes="on or off",
            default=ON,
            parse=_switch,
            numerics="another algorithm adds in another order, so that last digits differ",
            rules=("cudnn_autotune_thrashes",),
        ),
        Knob(
            name="cudnn.tf32",
            does="cuDNN may convolve in TF32.",
            needs="PyTorch with cuDNN, and a GPU that has TF32.",
            risk="Convolutions have fewer digits.",
            undone="torch.backends.cudnn.allow_tf32 as before",
            takes="on or off",
            default=ON,
            parse=_switch,
            numerics="convolutions have fewer digits",
            rules=("full_precision_matmul",),
        ),
        Knob(
            name="cpu.affinity",
            does="All threads of the job and of its workers may run on these cores.",
            needs="The job's own user, or root.",
            risk="The cores may be promised to others. Libraries keep the threads that they have.",
            undone=_THREADS,
            takes="cores such as 0-7,16, or all that its cpuset allows",
            default="all",
            parse=_cores,
            setting="affinity",
            rules=("few_cpus_allowed",),
            settle_s=OUTSIDE_SETTLE_S,
        ),
        Knob(
            name="cpu.numa",
            does="All threads of the job and of its workers run on the cores of one NUMA node.",
            needs="A machine with several nodes; the job's own user, or root.",
            risk="Memory stays where it is: the job may be far from what it has.",
            undone=_THREADS,
            takes="the number of the node",
            parse=_node,
            setting="affinity",
            rules=("numa_far_from_gpu",),
            settle_s=OUTSIDE_SETTLE_S,
        ),
        Knob(
            name="helpers.nice",
            does="What the job has started, such as loader workers, gives way to its main process.",
            needs="A right to take it back: root, CAP_SYS_NICE or a limit (ulimit -e).",
            risk="Loader workers that are short of cores fall behind.",
            undone=_THREADS,
            takes="a niceness, 1 to 19",
            default="10",
            parse=_nice,
            setting="nice",
            helpers_only=True,
            rules=("cpu_starved",),
            settle_s=OUTSIDE_SETTLE_S,
        ),
        Knob(
            name="helpers.ionice",
            does="What the job has started reads and writes the disk behind everybody else.",
            needs="The job's own user, or root; a disk whose scheduler knows priorities.",
            risk="Loader workers that read from that disk fall behind.",
            undone=_THREADS,
            default="",
            parse=lambda text: LAST_OF_BEST_EFFORT if not text else int("no"),
            setting="ionice",
            helpers_only=True,
            rules=("checkpoint_blocks",),
            settle_s=OUTSIDE_SETTLE_S,
        ),
    )
}


def named(text: str) -> tuple[Knob, Any]:
    """Return the knob and the value of ``NAME`` or ``NAME=VALUE``."""
    name, given, value = text.partition("=")
    knob = KNOBS.get(name)
    if knob is None:
        raise UsageProblem(f"There is no knob '{name}'.", "See every knob: monitor try --list")
    return knob, knob.value_of(value if given else None)


def of_rule(rule: str) -> list[Knob]:
    """Return the knobs that a finding of this rule points to."""
    return [knob for knob in KNOBS.values() if rule in knob.rules]
