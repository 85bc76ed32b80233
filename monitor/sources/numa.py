"""Which NUMA node a core and a GPU are at, read from sysfs."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import Stat
from whyidle.monitor.sources.threads import cpus

# A process that may run anywhere is found near as often as far, not all of this time far.
LOOKS: Final = 30


class Numa:
    """The nodes of one machine; a machine with one node has nothing far."""

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._sysfs = sysfs
        self._looks: dict[ProcessKey, deque[bool]] = {}

    @cached_property
    def _node_of(self) -> Mapping[int, int]:
        """The node of each core."""
        folder = self._sysfs / "devices/system/node"
        lists = {path.parent.name: _text(path) for path in folder.glob("node[0-9]*/cpulist")}
        return {core: int(name[4:]) for name, listed in lists.items() for core in cpus(listed)}

    def node_of_gpu(self, pci_bus_id: str | None) -> int | None:
        """Return the node that a GPU is at; ``None``: not known, or all are at one."""
        if pci_bus_id is None or len(set(self._node_of.values())) < 2:
            return None
        # The driver writes the domain with eight digits, the kernel with four.
        domain, _, rest = pci_bus_id.lower().partition(":")
        said = _text(self._sysfs / f"bus/pci/devices/{domain[-4:]}:{rest}/numa_node").strip()
        return int(said) if said.isdecimal() else None

    def far(
        self, stats: Mapping[ProcessKey, Stat], near: Mapping[int, Collection[int]]
    ) -> float | None:
        """Return how often the process that is far the most was far, of the last looks.

        ``near`` has the nodes of the GPUs of each process, by its pid.
        """
        for key, stat in stats.items():
            node = None if stat.core is None else self._node_of.get(stat.core)
            if near.get(key.pid) and node is not None:
                seen = self._looks.setdefault(key, deque(maxlen=LOOKS))
                seen.append(node not in near[key.pid])
        self._looks = {key: seen for key, seen in self._looks.items() if key in stats}
        return max((sum(s) / len(s) for s in self._looks.values()), default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
