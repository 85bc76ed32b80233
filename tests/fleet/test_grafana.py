"""Grafana's dashboards: whole by a schema, and each query one that Prometheus reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.conftest import Monitor
from tests.export.test_fleet import promtool
from whyidle.monitor.fleet import grafana
from whyidle.monitor.fleet.queries import filled

BOARDS = grafana.files()
DATASOURCE = {
    "type": "object",
    "required": ["type", "uid"],
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}},
}
# What its documentation says of a dashboard's JSON model, as far as ours go.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "templating", "panels", "time"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "title": {"type": "string", "minLength": 1},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "refresh": {"type": "string", "pattern": "^[0-9]+[smh]$"},
        "templating": {"type": "object", "properties": {"list": {"type": "array", "items": {
            "type": "object", "required": ["name", "type", "query"],
            "properties": {"type": {"enum": ["datasource", "query"]}},
        }}}},
        "panels": {"type": "array", "minItems": 1, "items": {
            "type": "object",
            "required": ["id", "type", "title", "datasource", "gridPos", "targets", "fieldConfig"],
            "properties": {
                "type": {"enum": ["stat", "table", "timeseries"]},
                "datasource": DATASOURCE,
                "gridPos": {"type": "object", "required": ["x", "y", "w", "h"], "properties": {
                    "x": {"type": "integer", "minimum": 0, "maximum": 23},
                    "w": {"type": "integer", "minimum": 1, "maximum": 24},
                    "y": {"type": "integer", "minimum": 0},
                    "h": {"type": "integer", "minimum": 1},
                }},
                "targets": {"type": "array", "minItems": 1, "items": {
                    "type": "object", "required": ["refId", "expr", "datasource"],
                    "properties": {"datasource": DATASOURCE,
                                   "expr": {"type": "string", "minLength": 1},
                                   "format": {"enum": ["table", "time_series"]}},
                }},
                "fieldConfig": {"type": "object", "required": ["defaults", "overrides"]},
            },
        }},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_whole(name: str) -> None:
    board = json.loads(BOARDS[name])
    jsonschema.Draft7Validator(SCHEMA).validate(board)
    sources = [v for v in board["templating"]["list"] if v["type"] == "datasource"]
    assert [(v["name"], v["query"]) for v in sources] == [("datasource", "prometheus")]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert at["x"] + at["w"] <= grafana.WIDTH
        assert not mine & taken, panel["title"]
        taken |= mine


def test_fleet_init_writes_them_and_prometheus_reads_each_query(
    tmp_path: Path, monitor: Monitor
) -> None:
    assert monitor("fleet", "init", tmp_path).returncode == 0
    rules = []
    for name in BOARDS:
        for panel in json.loads((tmp_path / name).read_text())["panels"]:
            for target in panel["targets"]:
                text = filled(target["expr"].replace("$instance", ".*"), 86_400, 720)
                rules.append(f"      - {{record: a, expr: {json.dumps(text)}}}")
    file = tmp_path / "rules.yml"
    # Each in a group of its own: two rules of one would be one too many.
    groups = [f"  - name: g{i}\n    rules:\n{rule}" for i, rule in enumerate(rules)]
    file.write_text("groups:\n" + "\n".join(groups) + "\n")
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
