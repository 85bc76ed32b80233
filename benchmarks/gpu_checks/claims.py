"""What the notes claim of a GPU without having seen one: each claim beside what is seen here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from gpu_checks.jobs import FRAMEWORKS
from gpu_checks.profiled import profiled
from gpu_checks.room import LeftOut, Part, Room, told
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

SECONDS = 10
NEEDS_GPU = "there is no GPU here to ask"
LONGEST = 400


class Claim(NamedTuple):
    """A sentence of the notes, and what was seen; ``holds``: ``None`` where it cannot be told."""

    note: str
    claim: str
    holds: bool | None
    seen: str

    def plain(self) -> dict[str, Any]:
        """Return it for the report."""
        return {**self._asdict(), "seen": self.seen[:LONGEST]}


def run(room: Room) -> None:
    """Ask each framework; what NVML says of the notes the record check has told."""
    room.do("nvml", partial(_nvml, room))
    for framework in FRAMEWORKS:
        room.do(framework, partial(ask, room, framework))


def _nvml(room: Room, part: Part) -> None:
    findings = [
        finding
        for each in told(room.folder.parent / "record")
        for finding in each["figures"].get("findings", [])
    ]
    if not findings:
        raise LeftOut("the check 'record' has not run before")
    part.figures["claims"] = [
        {
            "note": "nvml.md",
            "claim": f"{f['question']}? {f['note']}",
            "holds": None if f["differs"] is None else not f["differs"],
            "seen": f["seen"][:LONGEST],
        }
        for f in findings
    ]
    if not room.gpu:
        part.figures = {"asked": len(findings)}
        raise LeftOut(NEEDS_GPU)


def ask(room: Room, framework: str, part: Part) -> None:
    """Hold each claim about a framework against what its profiled run shows."""
    facts, file = profiled(room, framework)
    answer = contract(analyse(file))
    claims = [claim.plain() for claim in _ASKED[framework](facts, answer)]
    if not room.gpu:
        part.figures = {"asked": len(claims)}
        raise LeftOut(NEEDS_GPU)
    part.figures["claims"] = claims
    part.figures["differs"] = [c["claim"] for c in claims if c["holds"] is False]


# PyTorch -----------------------------------------------------------------------------------------
_TORCH_KEYS = (
    *("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"),
    *("inactive_split_bytes.all.current", "reserved_bytes.all.current"),
    *("allocated_bytes.all.current", "active_bytes.all.current"),
)


def _torch(facts: dict[str, Any], answer: dict[str, Any]) -> Iterator[Claim]:
    note, keys = "torch.md", facts["memory_stats"]
    missing = [key for key in _TORCH_KEYS if key not in keys]
    yield Claim(
        note, f"memory_stats has {', '.join(_TORCH_KEYS)}", not missing, f"missing: {missing}"
    )
    before = facts["memory_stats_before"]
    yield Claim(
        note, "memory_stats is {} before the GPU is initialised", not before, f"{before[:5]}"
    )
    pinned = facts["pin_memory"]
    yield Claim(note, "a loader with pin_memory=True has _pin_memory True", pinned, str(pinned))
    copies = [name for name in facts["totals"] if name.startswith("Memcpy")]
    both = {"Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"}
    yield Claim(
        note,
        f"copies to the GPU are named {' and '.join(sorted(both))}",
        both <= {*copies},
        f"{copies}",
    )
    yield from _common(note, answer)


# JAX ---------------------------------------------------------------------------------------------
_PLANE = "/device:GPU:"
_KERNEL_STATS = (
    "correlation_id",
    "kernel_details",
    "theoretical_occupancy_pct",
    "hlo_module",
    "hlo_op",
)
_DEVICE_LINES = ("XLA Modules", "XLA Ops", "Steps")


def _jax(facts: dict[str, Any], answer: dict[str, Any]) -> Iterator[Claim]:
    note = "jax.md"
    planes: dict[str, Any] = facts["planes"]
    device = next((lines for name, lines in planes.items() if name.startswith(_PLANE)), {})
    yield Claim(note, f"the GPU's plane is {_PLANE}N", bool(device), f"planes: {[*planes]}")
    lines = [name for kind in device.values() for name in kind["lines"]]
    streams = [name for name in lines if name.startswith("Stream #")]
    yield Claim(note, "its work lies on lines 'Stream #k(...)'", bool(streams), f"{lines}")
    more = [name for name in lines if name.startswith(_DEVICE_LINES)]
    yield Claim(note, "the file has no lines XLA Modules, XLA Ops, Steps", not more, f"{more}")
    told_of = [kind for name, kind in device.items() if name.startswith("Stream")]
    stats = {name for kind in told_of for name in kind["stats"]}
    missing = [name for name in _KERNEL_STATS if name not in stats]
    yield Claim(note, f"kernels carry {', '.join(_KERNEL_STATS)}", not missing, f"{sorted(stats)}")
    some = {name: s for kind in told_of for name, s in kind["some"].items() if "Memcpy" in name}
    details = [s.get("memcpy_details", "") for s in some.values()]
    right = all("size:" in text and "kind_src:" in text for text in details)
    yield Claim(
        note, "memcpy_details has kind_src: and size:", right if details else None, json.dumps(some)
    )
    hosts = [name for name in planes if "CUPTI" in name]
    yield Claim(note, "launches lie on /host:CUPTI", bool(hosts), f"{[*planes]}")
    yield from _jax_memory(facts["memory_stats"] or {})
    yield from _common(note, answer)


_JAX_MEMORY = ("bytes_in_use", "peak_bytes_in_use", "bytes_limit", "largest_free_block_bytes",
               "pool_bytes", "num_allocs")  # fmt: skip


def _jax_memory(stats: dict[str, Any]) -> Iterator[Claim]:
    missing = [key for key in _JAX_MEMORY if key not in stats]
    yield Claim(
        "jax.md", f"memory_stats has {', '.join(_JAX_MEMORY)}", not missing, json.dumps(stats)
    )
    free = stats.get("pool_bytes", 0) - stats.get("bytes_in_use", 0)
    share = 1 - stats.get("largest_free_block_bytes", 0) / free if free > 0 else None
    yield Claim(
        "jax.md",
        "1 - largest_free / (pool - in_use) is a share of fragmentation, near 0 in a small job",
        None if share is None else 0 <= share < 0.5,
        f"{share}",
    )


def _common(note: str, answer: dict[str, Any]) -> Iterator[Claim]:
    """What our own reader must find in a trace of a GPU."""
    gpus = [device for device in answer["devices"] if device["kind"] == "gpu"]
    yield Claim("traces.md", f"{note}: the trace has one GPU", len(gpus) == 1, f"{len(gpus)}")
    launching = answer["launching"] or {}
    matched = launching.get("launched"), launching.get("operations")
    yield Claim(
        "budget.md",
        f"{note}: each operation of the GPU has a launch of the same correlation id",
        None if not matched[1] else matched[0] == matched[1],
        f"{matched[0]} of {matched[1]}",
    )
    early, seen = launching.get("started_before_launch"), launching.get("operations")
    yield Claim(
        "budget.md",
        f"{note}: at most 1 % of the operations start before their launch",
        None if not seen or early is None else early <= 0.01 * seen,
        f"{early} of {seen}",
    )
    yield Claim(
        note, "a short trace has no warnings", not answer["warnings"], f"{answer['warnings']}"
    )


_ASKED: dict[str, Callable[..., Iterator[Claim]]] = {"torch": _torch, "jax": _jax}
