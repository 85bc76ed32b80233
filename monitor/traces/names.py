"""What a name means: regular expressions, to be run once over the unique names of a trace."""

from __future__ import annotations

import re
from typing import Final, Literal

from whyidle.monitor.traces.causes import Cause

Category = Literal["driver", "python", "operator", "annotation"]

# Patterns with a gap in them take the square of a name's length.
LONGEST_READ: Final = 500

COMMUNICATION: Final = re.compile(r"nccl|rccl", re.IGNORECASE)
# Communication of CPUs, as PyTorch's backends call it.
HOST_COLLECTIVE: Final = re.compile(r"^(gloo|mpi|ucc):")
XLA_COLLECTIVE: Final = re.compile(
    r"^(all-(reduce|gather|to-all)|reduce-scatter|collective-(permute|broadcast)|send|recv)\b"
)
COPY_KERNEL: Final = re.compile(r"__amd_rocclr_(copy|fill)")
STEP_MARK: Final = re.compile(r"^ProfilerStep#?\d*")
GRAPH_LAUNCH: Final = re.compile(r"GraphLaunch")
# What puts work of a GPU into its queue.
LAUNCH: Final = re.compile(r"^(cuda|cu|hip)([A-Z]\w*)?Launch(?!HostFunc)")
# A copy of pageable memory blocks the call that asked for it.
COPY_CALL: Final = re.compile(r"[Mm]emcpy")

_SYNC_CALL = re.compile(
    r"(Stream|Device|Event|Ctx)Synchronize|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol)?$"
    r"|^hipMemcpy(WithStream|DtoH|HtoD|DtoD)$|^cuMemcpy(HtoD|DtoH)(_v2)?$|synchronizeStream"
)
_ALLOCATOR = re.compile(
    r"^(cuda|hip)(Malloc|Free)|^(cuda|hip)Host(Alloc|Malloc|Free|Register|Unregister)"
    r"|^cuMem(Alloc|Free|Create|Map|Unmap|Release|AddressReserve|SetAccess)"
    r"|Build buffer allocations",
    re.IGNORECASE,
)
_CAPTURE = re.compile(
    r"GraphInstantiate|StreamBeginCapture|StreamEndCapture"
    r"|torch/cuda/graphs\.py\(\d+\): (capture_begin|capture_end|__enter__|__exit__)"
)
_COMPILE_CALL = re.compile(r"ModuleLoad|LibraryLoad|nvrtc|hiprtc|cuLink", re.IGNORECASE)
_COMPILE = re.compile(
    r"^Lazy Function Loading$|^Runtime Triggered Module Loading$|torch/_dynamo/convert_frame"
    r"|torch/_inductor/compile_fx\.py\(\d+\): (_?compile_fx|_?compile_fx_inner"
    r"|\w*codegen_and_compile|fw_compiler\w*|bw_compiler\w*)"
    r"|torch/_inductor/(codecache|scheduler|async_compile)\.py"
    r"|torch/_functorch/[\w/]+\.py\(\d+\): "
    r"(aot_(dispatch|module|stage|autograd)|create_aot|compile)"
    r"|triton/compiler/compiler\.py.*: compile|torch/utils/cpp_extension|\(dynamo_timed\)"
    r"|backend_compile|XlaCompile|compile_and_load|^(Compile|XLA compile)|Py\w*Client::Compile"
    r"|PjRt\w*Client::Compile|(Cpu|Gpu|Jit|Fusion|Llvm)Compiler::|^HLO passes|^Codegen$"
    r"|trace_to_jaxpr"
    r"|cache_miss.*lower|lower_(sharding|jaxpr)_|ptxas",
    re.IGNORECASE,
)
# What people call the regions of their own loop.
_NAMED_INPUT = re.compile(
    r"(?<![a-z])((data|batch)[ _-]?load(er|ing)?|input[ _-]?pipeline|(load|get|fetch|next|read)"
    r"[ _-]?(the[ _-]?)?(next[ _-]?)?(mini[ _-]?)?(batch|data|sample)(e?s)?)(?![a-z])|^data$",
    re.IGNORECASE,
)
# A checkpoint of activations is another thing: that one is not saved.
_NAMED_SAVE = re.compile(
    r"(?<![a-z])(sav|writ|dump)(e|ing)[ _-]?(the[ _-]?)?(checkpoint|ckpt|model|state)"
    r"|checkpoint[ _-]?sav",
    re.IGNORECASE,
)
_NAMED_STEP = re.compile(
    r"(?<![a-z])((?:(?:train|training|global|profiler)[ _.-]?)?"
    r"(?:step|iter(?:ation)?|(?:mini[ _-]?)?batch))(?:[\s_#:=/-]*(\d{1,18})|\W*$)",
    re.IGNORECASE,
)
_NO_STEP = re.compile(
    r"optim|sched|micro|valid|zero_grad|scaler|(?<![a-z])(on_|eval|test|warm|clip|log)",
    re.IGNORECASE,
)
# To run compiled code, or to look it up, is not compilation.
_NOT_COMPILE = re.compile(
    r"compile_fx\.py\(\d+\): (forward|__call__|run|wrapper)|output_code|CompiledFxGraph"
    r"|runtime_wrappers\.py|subclass_codegen|eval_frame\.py\(\d+\): compile_wrapper"
    r"|CompiledFunction|Torch-Compiled Region|autotun|Cache Lookup|graph\.py\(\d+\): __call__",
    re.IGNORECASE,
)
# The class that wraps a whole generation loop is no loader: DataLoader's own __next__ only. Stages
# of tf.data (`Iterator::Root::Prefetch`) run ahead on threads of their own: who asks is who waits.
_INPUT = re.compile(
    r"^enumerate\(DataLoader\)|(^|torch/utils/data/)dataloader\.py\(\d+\): __(next|iter)__"
    r"|IteratorGetNext|DataLoaderIter.*__next__|_MultiWorkerIter"
    r"|MultiDeviceIteratorGetNext|grain.*__next__|tfds.*__next__"
)
_PROFILER = re.compile(
    r"torch/profiler/profiler\.py\(\d+\): "
    r"(step|stop|start|_transit\w*|__exit__|_stop|stop_trace|start_trace)"
    r"|torch/autograd/profiler\.py\(\d+\): (__exit__|_disable)"
    r"|profiler\.py:\d+ (start|stop)_trace|Buffer Flush|Instrumentation"
)
_GC = re.compile(
    r"^gc$|built-in (function|method) collect\b|(?<!PythonRefManager::)CollectGarbage|^Python GC"
)
_CHECKPOINT = re.compile(
    r"torch/serialization\.py\(\d+\): (save|load)|torch/distributed/checkpoint/|orbax"
    r"|async_checkpoint|built-in (function|method) fsync\b|npyio\w*\.py\(\d+\): save",
    re.IGNORECASE,
)
_FLUSH = re.compile(r"^(fsync|fdatasync|sync_file_range|msync)")
_OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)#|^## optimizer ##")
_BLOCKED = re.compile(
    r"built-in (method|function) (acquire|poll|select|epoll|recv|recv_into|read|sleep|wait)\b"
    r"|threading\.py\(\d+\): (wait|join)|queue\.py\(\d+\): get"
    r"|selectors\.py\(\d+\): select|^BufferSequencingEvent"
)
_WAITS_FOR_DEVICE = re.compile(
    r"try_to_block|BlockHostUntilReady|block_until_ready|BlockUntilReady|np\.asarray\(jax\.Array\)"
    r"|PjRt.*::Await|TransferFromDevice|ToLiteral|CopyToHost"
)

_JAX_FRAME = re.compile(r"^\$(?P<of>[^ :]+)(:(?P<line>\d+))? (?P<function>.+)$")

_CALLS = (
    (_SYNC_CALL, Cause.SYNC),
    (_ALLOCATOR, Cause.ALLOCATOR),
    (_CAPTURE, Cause.CAPTURE),
    (_COMPILE_CALL, Cause.COMPILE),
)
_OTHERS = (
    (_PROFILER, Cause.PROFILER),
    (_INPUT, Cause.INPUT),
    (_CHECKPOINT, Cause.CHECKPOINT),
    (_OPTIMIZER, Cause.OPTIMIZER),
    (_WAITS_FOR_DEVICE, Cause.SYNC),
    (_BLOCKED, Cause.BLOCKED),
    (_ALLOCATOR, Cause.ALLOCATOR),
)
_NAMED = ((_NAMED_INPUT, Cause.INPUT), (_NAMED_SAVE, Cause.CHECKPOINT))
_ELSE: Final[dict[Category, Cause]] = {
    "driver": Cause.DRIVER_CALL,
    "python": Cause.PYTHON,
    "operator": Cause.OP,
    "annotation": Cause.AROUND,
}


def host_cause(category: Category, name: str) -> Cause:
    """Return what a host thread does while a span of this name is open."""
    name = _as_torch_writes(name[:LONGEST_READ])
    if category == "driver":
        return _first(_CALLS, name) or Cause.DRIVER_CALL
    if _GC.search(name):
        return Cause.GC
    if _CAPTURE.search(name):
        return Cause.CAPTURE
    if _COMPILE.search(name) and not _NOT_COMPILE.search(name):
        return Cause.COMPILE
    named = _NAMED if category == "annotation" else ()
    return _first(_OTHERS + named, name) or _ELSE[category]


def users_step(name: str) -> str | None:
    """Return how a region of the user's counts steps, as ``step 12``; None if it counts none."""
    name = name[:LONGEST_READ]
    found = None if _NO_STEP.search(name) else _NAMED_STEP.search(name)
    return None if found is None else " ".join(part for part in found.groups() if part)


def system_cause(name: str) -> Cause:
    """Return what a thread does in a call of the operating system that was worth recording."""
    return Cause.CHECKPOINT if _FLUSH.search(name) else Cause.BLOCKED


def _as_torch_writes(name: str) -> str:
    """Bring JAX's ``$a.py:5 f`` and ``$time sleep`` to the one form that the patterns know."""
    if not (found := _JAX_FRAME.match(name)):
        return name
    if found["line"]:
        return f"{found['of']}({found['line']}): {found['function']}"
    return f"<built-in function {found['function']}>"


def _first(table: tuple[tuple[re.Pattern[str], Cause], ...], name: str) -> Cause | None:
    return next((cause for pattern, cause in table if pattern.search(name)), None)


def kernel_cause(name: str) -> Cause:
    """Return whether a kernel computes, communicates or copies."""
    if COMMUNICATION.search(name) or XLA_COLLECTIVE.search(name):
        return Cause.COMM
    return Cause.COPY_KERNEL if COPY_KERNEL.search(name) else Cause.KERNEL


_DIRECTIONS = (
    (("htod", "h2d", "host -> device"), Cause.H2D),
    (("dtoh", "d2h", "device -> host"), Cause.D2H),
    (("ptop", "p2p"), Cause.P2P),
    (("dtod", "d2d"), Cause.D2D),
)
_PAGEABLE = {Cause.H2D: Cause.H2D_PAGEABLE, Cause.D2H: Cause.D2H_PAGEABLE}


def copy_cause(name: str) -> Cause:
    """Return the direction of a copy, and whether its host memory is pageable."""
    low = name.lower()
    if "memset" in low or "fillbuffer" in low:
        return Cause.MEMSET
    for words, cause in _DIRECTIONS:
        if any(word in low for word in words):
            return _PAGEABLE.get(cause, cause) if "pageable" in low else cause
    return Cause.COPY
