"""The tables of an export that are read, and under which names their columns went.

A column that a table lacks is unknown; a table that the file lacks was not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# What the rows of a table are: work of a device, or something that a thread of the host did.
Work = Literal["kernel", "copy", "set", "graph", "decompression"]
Says = Literal["driver", "range", "library", "waits", "overhead", "compilation"]


@dataclass(frozen=True, slots=True)
class WorkTable:
    """Work of devices; ``extra``: columns that its name is made of."""

    name: str
    work: Work
    names: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostTable:
    """Spans of threads; ``text``: a column that holds names itself, and goes first."""

    name: str
    says: Says
    names: tuple[str, ...] = ("nameId", "textId", "text", "name")
    text: str = ""


_NAMES: Final = ("demangledName", "shortName", "mangledName", "name")
_COPY: Final = ("copyKind", "srcKind", "dstKind")

WORK: Final = (
    WorkTable("CUPTI_ACTIVITY_KIND_KERNEL", "kernel", _NAMES),
    WorkTable("CUPTI_ACTIVITY_KIND_MEMCPY", "copy", extra=_COPY),
    WorkTable("CUPTI_ACTIVITY_KIND_MEMSET", "set", extra=("memKind",)),
    # One row a launch, with --cuda-graph-trace=graph: what it holds is not said.
    WorkTable("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph", extra=("graphId",)),
    WorkTable("CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS", "decompression"),
)
HOST: Final = (
    HostTable("CUPTI_ACTIVITY_KIND_RUNTIME", "driver"),
    HostTable("CUPTI_ACTIVITY_KIND_DRIVER", "driver"),
    HostTable("NVTX_EVENTS", "range", ("textId",), "text"),
    HostTable("CUDNN_EVENTS", "library"),
    HostTable("CUBLAS_EVENTS", "library"),
    HostTable("OSRT_API", "waits"),
    HostTable("MPI_P2P_EVENTS", "waits"),
    HostTable("MPI_COLLECTIVES_EVENTS", "waits"),
    HostTable("MPI_START_WAIT_EVENTS", "waits"),
    HostTable("MPI_OTHER_EVENTS", "waits"),
    HostTable("PROFILER_OVERHEAD", "overhead"),
    HostTable("CUPTI_ACTIVITY_KIND_OVERHEAD", "overhead"),
    HostTable("CUPTI_ACTIVITY_KIND_JIT", "compilation"),
)
# Any of these makes a file an export, whatever else is in it.
KNOWN: Final = frozenset(
    {table.name for table in (*WORK, *HOST)}
    | {"STRINGIDS", "TARGET_INFO_GPU", "META_DATA_EXPORT", "ANALYSIS_DETAILS", "COMPOSITE_EVENTS"}
)

# Ranges of NVTX: pushed and popped, or begun and ended. Other rows are marks, names and domains.
EVENT_TYPES: Final = (59, 60)
# ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND, which older versions only document.
COPY_KINDS: Final = (
    *("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *("HtoD", "DtoH", "DtoD"),
)
UNIFIED: Final = range(11, 14)
MEMORY_KINDS: Final = (
    *("Pageable", "Pinned", "Device", "Array", "Managed", "Device", "Managed", "Unknown"),
)
