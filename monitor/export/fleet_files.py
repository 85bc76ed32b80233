"""What watching many hosts needs: scrapes, rules and alerts, and what the hosts themselves run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.defaults import EXPORT_PORT
from whyidle.monitor.export import families as f
from whyidle.monitor.export import host_files, lost_time
from whyidle.monitor.export.host_files import Exporter

JOB: Final = "whyidle"
CONFIG, RULES, TARGETS = "prometheus.yml", "whyidle.rules.yml", "whyidle.targets.json"
# A driver keeps less for itself; more, with nobody on the GPU, is somebody's who has gone.
LEFT_BEHIND_BYTES: Final = 2 << 30
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+(?:%\w+)?\]|\w[\w.-]*)(?::([0-9]{1,5}))?", re.ASCII)
_LAST_PORT: Final = 65535
ALERTMANAGER_PORT: Final = 9093
_GPU: Final = "GPU {{ $labels.gpu }} of {{ $labels.instance }}"
_POD: Final = "pod {{ $labels.namespace }}/{{ $labels.pod }}"
_JOB: Final = "job {{ $labels.job_key }} on {{ $labels.instance }}"


# A pod goes by its node: hosts keep their names when their pods are new ones.
_PODS: Final = f"""    kubernetes_sd_configs:
      - role: pod
        namespaces: {{names: [{host_files.NAMESPACE}]}}
        selectors: [{{role: pod, label: {host_files.APP}}}]
    relabel_configs:
      - source_labels: [__meta_kubernetes_pod_node_name]
        regex: (.+)
        target_label: instance
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that records a series, or an alert."""

    name: str
    expr: str
    # Of an alert: how long it must hold, how grave it is, and what it says.
    wait: str = ""
    severity: str = ""
    summary: str = ""

    def written(self) -> str:
        """Return it in YAML."""
        kind = "alert" if self.severity else "record"
        lines = [f"      - {kind}: {self.name}", f"        expr: {self.expr}"]
        if self.severity:
            lines += [
                f"        for: {self.wait}",
                f"        labels: {{severity: {self.severity}}}",
                f"        annotations: {{summary: {json.dumps(self.summary)}}}",
            ]
        return "\n".join(lines)


def _ratio(by: str = "") -> str:
    idle, whole = (f"sum{by}(rate({x.name}[5m]))" for x in (f.GPU_IDLE, f.GPU_SECONDS))
    return f"{idle} / {whole}"


RECORDED: Final = (
    Rule("instance:whyidle_gpu_idle:ratio_rate5m", _ratio(" by (instance) ")),
    Rule("whyidle_gpu_idle:ratio_rate5m", _ratio(" ")),
    Rule("whyidle_gpu_held_idle:sum", f"sum({f.GPU_HELD_IDLE.name})"),
    Rule("cause:whyidle_job_idle:rate5m", f"sum by (cause) (rate({f.JOB_IDLE.name}[5m]))"),
    Rule(
        "user:whyidle_job_idle:rate5m",
        f"sum by (user) (sum by (instance, job_key) (rate({f.JOB_IDLE.name}[5m]))"
        f" * on (instance, job_key) group_left (user) {f.JOB_INFO.name})",
    ),
    Rule(
        "currency:whyidle_gpu_idle_cost:per_hour",
        f"sum by (currency) (rate({f.GPU_IDLE_COST.name}[1h])) * 3600",
    ),
)
# In a group of their own, as they run less often.
SUMS: Final = tuple(Rule(each.record, each.counted(lost_time.EVERY)) for each in lost_time.SUMS)
_STEP: Final = m.JOB_STEP_P50.exported
_HEAT: Final = " > 0.1 or ".join(
    x.exported for x in (m.GPU_THROTTLED_HEAT, m.GPU_THROTTLED_HARDWARE_HEAT, m.GPU_THROTTLED_BRAKE)
)
# fmt: off
ALERTS: Final = (
    Rule("WhyidleGpuHeldAndIdle", f'increase({f.GPU_IDLE.name}{{held="true"}}[30m]) > 0.95 * 1800',
         "1m", "warning", f"{_GPU} is held by a process and has done nothing for half an hour."),
    Rule("WhyidleGpuAllocatedAndIdle",
         f"{f.GPU_ALLOCATED.name} and on (instance, gpu, UUID)"
         f' increase({f.GPU_IDLE.name}{{held="false"}}[5m]) > 0.95 * 300', "30m", "warning",
         f"{_GPU} is given to {_POD}, and no process has used it for half an hour."),
    Rule("WhyidleGpuHeldByNobody",
         f"{m.GPU_MEMORY_UNCLAIMED.exported} > {LEFT_BEHIND_BYTES} and {f.GPU_PROCESSES.name} == 0",
         "10m", "warning", f"Memory of {_GPU} is held by no process that lives."),
    Rule("WhyidleGpuLost", f"{f.GPU_LOST.name} == 1", "1m", "critical",
         f"{_GPU} is lost: the driver no longer reaches it."),
    Rule("WhyidleGpuSilent", f"{f.GPU_ANSWERS.name} == 0 unless {f.GPU_LOST.name} == 1", "5m",
         "warning", f"The driver gives no values of {_GPU}."),
    Rule("WhyidleGpuXid", f"increase({f.GPU_XIDS.name}[10m]) > 0", "0m", "warning",
         f"{_GPU} reported an XID error."),
    Rule("WhyidleGpuThrottled", f"{_HEAT} > 0.1", "10m", "warning",
         f"{_GPU} is slowed, for heat or by the power brake."),
    Rule("WhyidleStepTimeUp",
         f"avg_over_time({_STEP}[15m]) > 1.3 * avg_over_time({_STEP}[3h] offset 15m)", "15m",
         "warning", f"Steps of {_JOB} take 30% longer than in the hours before."),
    Rule("WhyidleFindingHigh", f'{f.JOB_FINDING.name}{{severity="high"}}', "1h", "warning",
         f"For an hour {_JOB} has had a fault: {{{{ $labels.rule }}}}, as `monitor rules` tells."),
    Rule("WhyidleExporterDown", f'up{{job="{JOB}"}} == 0', "5m", "warning",
         "{{ $labels.instance }} cannot be scraped."),
    Rule("WhyidleExporterProblem", f"{f.PROBLEM.name} == 1", "15m", "warning",
         "A part of the exporter on {{ $labels.instance }} does not work: {{ $labels.part }}."),
)
# fmt: on


def files(
    targets: Sequence[str],
    managers: Sequence[str] = (),
    *,
    kubernetes: bool = False,
    exporter: Exporter | None = None,
) -> dict[str, str]:
    """Return each file by its name.

    ``managers``: the Alertmanagers that alerts are sent to; ``kubernetes``: pods are scraped, too.
    """
    # Who is named twice would be scraped twice.
    hosts = [*dict.fromkeys(found for each in targets if (found := address(each)) is not None)]
    told = [found for each in managers if (found := address(each, ALERTMANAGER_PORT)) is not None]
    served = {CONFIG: _config(told, kubernetes), RULES: _rules(), TARGETS: _targets(hosts)}
    return {**served, **host_files.files(exporter)}


def address(target: str, port: int = EXPORT_PORT) -> str | None:
    """Return a host and its port; ``None`` where Prometheus would refuse all for its sake."""
    found = _HOST.fullmatch(
        f"[{target}]" if target.count(":") > 1 and "[" not in target else target
    )
    if found is None or not 0 < int(found[2] or port) <= _LAST_PORT:
        return None
    return f"{found[1]}:{found[2] or port}"


def _config(managers: Sequence[str], kubernetes: bool) -> str:
    return f"""# prometheus --config.file={CONFIG} --web.enable-remote-write-receiver
global:
  scrape_interval: 15s
  evaluation_interval: 30s
rule_files:
  - {RULES}
{_alerting(managers)}
# What a host that was cut off sends later: monitor export --backfill http://HERE:9090
storage:
  tsdb:
    out_of_order_time_window: 7d
scrape_configs:
  - job_name: {JOB}
    # Read again when it changes: add hosts there.
    file_sd_configs:
      - files: [{TARGETS}]
{_PODS if kubernetes else ""}"""


def _alerting(managers: Sequence[str]) -> str:
    if not managers:
        return "# Alerts are sent nowhere: remove this file, and add --alertmanager HOST."
    targets = json.dumps(managers)
    return f"alerting:\n  alertmanagers:\n    - static_configs: [{{targets: {targets}}}]"


def _rules() -> str:
    groups = (
        ("whyidle", "", RECORDED),
        ("whyidle lost time", f"    interval: {lost_time.EVERY}\n", SUMS),
        ("whyidle alerts", "", ALERTS),
    )
    written = (
        f"  - name: {name}\n{every}    rules:\n" + "\n".join(rule.written() for rule in rules)
        for name, every, rules in groups
    )
    return "groups:\n" + "\n".join(written) + "\n"


def _targets(hosts: Sequence[str]) -> str:
    return json.dumps([{"targets": list(hosts)}], indent=2) + "\n"
