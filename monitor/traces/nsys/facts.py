"""What an export says of the machine: its devices, threads, ranks, and when it was made."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from whyidle.monitor.traces.model import Thread, Trace
from whyidle.monitor.traces.nsys.database import MISSING, Database, whole
from whyidle.monitor.traces.nsys.rows import Rows

# A global id is, from the highest bit on: the machine, 16 bits; the process, 24; the thread, 24.
_BITS: Final = 24
_PART: Final = (1 << _BITS) - 1
_RANK: Final = re.compile(r"(?:^|\s)(?:RANK|OMPI_COMM_WORLD_RANK|SLURM_PROCID)=(\d{1,6})(?:\s|$)")
_UNKNOWN: Final = {
    "host": "the file does not name its machine",
    "pid": "the file does not say which process launched the work",
    "rank": "the file names no ranks: there is no MPI in it, and no RANK in the environment",
    "model": "the file does not describe this device",
}


class Facts:
    """What small tables say; each may be missing."""

    def __init__(self, database: Database) -> None:
        began = database.small("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
        self.began_ns = _known(began[0][0]) if began else None
        self._gpus = {whole(i): n for i, n in database.small("TARGET_INFO_GPU", "id", "name")}
        cuda = database.small("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
        self._gpu_of = {(whole(pid), whole(cuda_id)): whole(gpu) for pid, cuda_id, gpu in cuda}
        self._any_gpu = {whole(cuda_id): whole(gpu) for _, cuda_id, gpu in cuda}
        env = database.small("TARGET_INFO_SYSTEM_ENV", "name", "value")
        self._env = {name.lower(): value for name, value in env if _texts(name, value)}
        ranks = database.small("MPI_RANKS", "globalTid", "rank")
        self._ranks = {whole(tid) >> _BITS & _PART: _known(rank) for tid, rank in ranks}
        self._thread_names = self._names(database)

    @staticmethod
    def _names(database: Database) -> dict[int, str]:
        """The names of threads, which refer to the table of strings."""
        named = database.small("THREADNAMES", "globalTid", "nameId")
        wanted = {whole(name): whole(tid) for tid, name in named}
        if not wanted:
            return {}
        ids = ",".join(map(str, list({n for n in wanted if n >= 0})[:900]))
        table = database.tables.get("STRINGIDS")
        where = f"WHERE {table.column('id')} IN ({ids})" if table and table.column("id") else ""
        texts = database.small("STRINGIDS", "id", "value", where=where)
        found = {whole(i): text for i, text in texts if isinstance(text, str)}
        return {whole(t): found[whole(n)] for t, n in named if whole(n) in found}

    def threads(self, rows: Rows) -> list[Thread]:
        """Return the threads of the rows, in their order."""
        found = []
        for key in rows.threads:
            if key in (MISSING, -1):
                found.append(Thread("unknown thread"))
                continue
            tid = key & _PART
            label = self._thread_names.get(key) or f"thread {tid}"
            found.append(Thread(label, key >> _BITS & _PART, str(tid)))
        return found

    def describe(self, trace: Trace) -> None:
        """Complete the devices, and say why the rest is unknown."""
        pids = {device.pid for device in trace.devices}
        only = self._rank_of_all() if len(pids) == 1 else None
        for device in trace.devices:
            cuda_id = int(device.index)
            gpu = self._gpu_of.get((device.pid or 0, cuda_id), self._any_gpu.get(cuda_id))
            gpu = cuda_id if gpu is None or gpu not in self._gpus else gpu
            device.index = str(gpu) if gpu >= 0 else "?"
            device.model = self._gpus.get(gpu) if isinstance(self._gpus.get(gpu), str) else None
            device.host = self._env.get("hostname")
            device.rank = self._ranks.get(device.pid or -1, only)
            for name, reason in _UNKNOWN.items():
                if getattr(device, name) is None:
                    trace.unknown[name] = reason
        trace.devices.sort(key=lambda device: (device.index.zfill(9), device.pid or 0))
        counts = Counter(device.index for device in trace.devices)
        for index, count in counts.items():
            if count > 1:
                trace.warnings.append(
                    f"{count} processes have work on GPU {index}: each has its part of it as a"
                    " device of its own here, and what one shows as idle may be another's work."
                )

    def _rank_of_all(self) -> int | None:
        found = _RANK.search(self._env.get("deviceenvironment", ""))
        return int(found[1]) if found else None


def _known(value: Any) -> int | None:
    number = whole(value)
    return None if number == MISSING else number


def _texts(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)
