"""The counters of GPUs that Nsight Systems sampled (--gpu-metrics-devices), on average."""

from __future__ import annotations

import math
from typing import Any

from whyidle.monitor.traces.model import GpuMetric
from whyidle.monitor.traces.nsys.database import DAMAGE, Database

# No GPU has as many counters, and no machine as many GPUs.
_MOST = 10_000


def gpu_metrics(database: Database) -> list[GpuMetric]:
    """Average each counter over the file; none where there are none, or their names are missing."""
    named = database.small(
        "TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName", "typeName"
    ) or [(*row, "") for row in database.small(
        "TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName"
    )]  # fmt: skip
    names = {(t, m): (name, gpu) for t, m, name, gpu in named if isinstance(name, str)}
    found = []
    for kind, metric, mean, samples in _averages(database):
        name, gpu = names.get((kind, metric), ("", ""))
        if name and isinstance(mean, float) and math.isfinite(mean):
            found.append(GpuMetric(gpu if isinstance(gpu, str) else "", name, mean, samples))
    return found


def _averages(database: Database) -> list[Any]:
    table = database.tables.get("GPU_METRICS")
    columns = [table.column(c) for c in ("typeId", "metricId", "value")] if table else [None]
    if table is None or None in columns:
        return []
    kind, metric, value = (column for column in columns if column)
    wanted = f"{kind}, {metric}, avg({value}), count(*)"
    where = f"WHERE typeof({value}) IN ('integer', 'real') GROUP BY 1, 2 LIMIT {_MOST}"
    try:
        return [row for block in database.rows(table, [wanted], where) for row in block]
    except DAMAGE:
        return []
