"""Dashboards for Grafana, by the same queries as the page and the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.export import families as f
from whyidle.monitor.fleet.queries import DIMENSIONS, RATE, Query, main

FLEET, HOST = "whyidle.fleet.grafana.json", "whyidle.host.grafana.json"
# What Grafana wrote when these were made; a later one reads it.
SCHEMA: Final = 39
WIDTH: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_OF_HOST: Final = '{instance=~"$instance"}'


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    kind: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    width: int = WIDTH
    height: int = 8
    # A table or a number is of now, a graph of many moments.
    over_time: bool = False
    # Areas that add up.
    stacked: bool = False

    def written(self, number: int, x: int, y: int) -> dict[str, Any]:
        targets = [
            {
                "refId": chr(ord("A") + i),
                "datasource": _SOURCE,
                "expr": text,
                "legendFormat": legend,
                "instant": not self.over_time,
                "range": self.over_time,
                "format": "table" if self.kind == "table" else "time_series",
            }
            for i, (text, legend) in enumerate(self.queries)
        ]
        custom = {"stacking": {"mode": "normal"}, "fillOpacity": 60} if self.stacked else {}
        panel: dict[str, Any] = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": targets,
            "fieldConfig": {"defaults": {"unit": self.unit, "custom": custom}, "overrides": []},
            "options": {},
        }
        if self.kind == "table":
            hide = {"excludeByName": {"Time": True}, "renameByName": {"Value": self.unit}}
            panel["transformations"] = [{"id": "organize", "options": hide}]
        return panel


def files() -> dict[str, str]:
    """Return each dashboard by the name of its file."""
    return {FLEET: _board("whyidle: fleet", _fleet()), HOST: _board("whyidle: host", _host(), True)}


def _board(title: str, panels: Sequence[_Panel], by_host: bool = False) -> str:
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    ]
    if by_host:
        variables.append({
            "name": "instance", "label": "Host", "type": "query", "datasource": _SOURCE,
            "query": f"label_values({f.BUILD.name}, instance)", "refresh": 2, "multi": True,
            "includeAll": True, "allValue": ".*",
        })  # fmt: skip
    board = {
        "uid": title.replace(": ", "-"),
        "title": title,
        "tags": ["whyidle", "gpu"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": variables},
        "panels": list(_placed(panels)),
    }
    return json.dumps(board, indent=2) + "\n"


def _placed(panels: Sequence[_Panel]) -> Iterator[dict[str, Any]]:
    """Yield panels in rows, each as far left as it fits."""
    x = y = below = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y = 0, below
        yield panel.written(number, x, y)
        x, below = x + panel.width, max(below, y + panel.height)


def _fleet() -> list[_Panel]:
    asked = {query.part: query for query in main(DIMENSIONS, "rules")}

    def one(part: str, title: str, unit: str = "short") -> _Panel:
        return _Panel(title, "stat", [(asked[part].text, "{{held}}{{currency}}")], unit, 4, 5)

    def worst(part: str, title: str, width: int) -> _Panel:
        return _Panel(title, "table", [(asked[part].text, "")], "GPU-hours", width)

    def trend(part: str, title: str, legend: str, unit: str, *, stacked: bool = False) -> _Panel:
        query: Query = asked[part]
        return _Panel(title, "timeseries", [(query.text, legend)], unit, 12, 8, True, stacked)

    return [
        one("hosts", "Hosts that answer"),
        one("gpus", "GPUs"),
        one("gpus_held_idle", "Held, and idle for half an hour"),
        one("held.idle", "Idle GPU-hours, by whether held"),
        one("held.energy", "Energy in that time", "kwatth"),
        one("held.money", "Money for it"),
        trend("trend.lost_gpus", "GPUs lost, by cause", "{{cause}}", "short", stacked=True),
        trend("trend.idle_share", "Share of all GPUs that was idle", "idle", "percentunit"),
        worst("lost.job", "Jobs that lost the most", WIDTH),
        worst("lost.user", "By user", 8),
        worst("lost.team", "By team", 8),
        worst("lost.host", "By host", 8),
        worst("lost.cause", "By cause", 8),
        worst("lost.namespace", "By namespace", 8),
        _Panel("Held, and idle for half an hour", "table", [(asked["held_idle"].text, "")],
               "GPUs", 8),
        _Panel("Alerts", "table", [(asked["alerts"].text, "")], "fires", 12),
        _Panel("Hosts that no longer answer", "table", [(asked["gone"].text, "")], "last seen", 12),
    ]  # fmt: skip


def _host() -> list[_Panel]:
    def graph(title: str, text: str, legend: str, unit: str, *, stacked: bool = False) -> _Panel:
        return _Panel(title, "timeseries", [(text, legend)], unit, 12, 8, True, stacked)

    gpu, job = "{{instance}} GPU {{gpu}}", "{{instance}} {{job_key}}"
    lost = f"sum by (cause) (rate({f.JOB_IDLE.name}{_OF_HOST}[{RATE}]))"
    busy = f"1 - {_rate(f.GPU_IDLE, 'sum by (instance, gpu)')}"
    busy = f"{busy} / {_rate(f.GPU_SECONDS, 'sum by (instance, gpu)')}"
    return [
        graph("Time in which a kernel ran, at most", busy, gpu, "percentunit"),
        graph("GPUs lost, by cause", lost, "{{cause}}", "short", stacked=True),
        graph("Time of a step, median", f"{m.JOB_STEP_P50.exported}{_OF_HOST}", job, "s"),
        graph("Samples a second", _rate(f.JOB_SAMPLES, "sum by (instance, job_key)"), job, "short"),
        graph("Power", f"{m.GPU_POWER.exported}{_OF_HOST}", gpu, "watt"),
        graph("Memory in use", f"{m.GPU_MEMORY_USED.exported}{_OF_HOST}", gpu, "bytes"),
        _Panel("Jobs", "table", [(f"{f.JOB_INFO.name}{_OF_HOST}", "")], "runs", 12),
        _Panel("Findings", "table", [(f"{f.JOB_FINDING.name}{_OF_HOST}", "")], "lasts", 12),
    ]


def _rate(name: f.Name, by: str) -> str:
    return f"{by} (rate({name.name}{_OF_HOST}[{RATE}]))"
