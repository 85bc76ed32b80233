"""What a Prometheus server is told; checked and run by the real one where it is."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Monitor, command
from tests.export.exporter import exporter, samples
from tests.export.servers import prometheus, tool
from tests.export.test_dcgm import BOARD, once
from whyidle.monitor.app.fleet_hosts import exporter as exporter_of
from whyidle.monitor.app.fleet_hosts import say_what_is_to_do
from whyidle.monitor.core.errors import Exit, UsageProblem
from whyidle.monitor.export import families
from whyidle.monitor.export.fleet_files import (
    ALERTS,
    CONFIG,
    RECORDED,
    RULES,
    TARGETS,
    address,
    files,
)
from whyidle.monitor.export.host_files import ANY, DAEMON_SET, EPILOG, SERVICE

Tape = Callable[..., dict[str, str]]


def promtool(*arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("promtool"), *map(str, arguments)],
        input=text, text=True, capture_output=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.fixture
def fleet(tmp_path: Path, monitor: Monitor) -> Path:
    folder = tmp_path / "fleet"
    done = monitor("fleet", "init", folder, "--target", "node1", "--target", "node2:9401")
    assert done.returncode == 0, done.stderr
    return folder


def test_it_writes_what_is_not_there_yet(fleet: Path, monitor: Monitor) -> None:
    assert json.loads((fleet / TARGETS).read_text()) == [{"targets": ["node1:9400", "node2:9401"]}]
    (fleet / TARGETS).write_text("mine")
    (fleet / RULES).unlink()
    done = monitor("fleet", "init", fleet)
    assert f"kept   {fleet / TARGETS}" in done.stdout
    assert f"wrote  {fleet / RULES}" in done.stdout
    assert (fleet / TARGETS).read_text() == "mine"
    assert done.stderr == ""


def test_what_was_asked_for_and_is_not_written_is_said(fleet: Path, monitor: Monitor) -> None:
    """A folder that is there stays; whoever adds a host or an Alertmanager must hear of it."""
    before = {path.name: path.read_text() for path in fleet.rglob("*") if path.is_file()}
    done = monitor("fleet", "init", fleet, "--target", "node3", "--alertmanager", "alerts")
    assert f"{fleet / TARGETS} was there and stays: --target changed nothing" in done.stderr
    assert f"{fleet / CONFIG} was there and stays: --alertmanager changed nothing" in done.stderr
    assert {path.name: path.read_text() for path in fleet.rglob("*") if path.is_file()} == before
    (fleet / RULES).write_text("groups: []\n")
    done = monitor("fleet", "init", fleet)
    assert f"Not as this version writes them: {RULES}." in done.stderr
    # Hosts and servers are a person's own.
    assert "--target" not in done.stderr
    # The same again is nothing to speak of.
    done = monitor("fleet", "init", fleet, "--target", "node1", "--target", "node2:9401")
    assert "changed nothing" not in done.stderr


def test_hosts_that_cannot_be_scraped_as_it_is_are_said(tmp_path: Path, monitor: Monitor) -> None:
    """Nothing listens where others reach it unless that is asked for; who needs it must hear so."""
    folder = tmp_path / "the fleet"
    done = monitor("fleet", "init", folder, "--target", "node1", "--target", "localhost")
    assert done.returncode == 0
    assert "listens on 127.0.0.1 only: no server can scrape node1." in done.stderr
    assert "a path of this machine: node1 may have it elsewhere" in done.stderr
    assert "ExecStart" not in done.stderr
    typed = done.stderr.partition("For these hosts: ")[2].strip()
    assert typed.endswith(" --address 0.0.0.0 --exec /PATH/OF/monitor")
    assert f"rm '{folder / SERVICE}' && monitor fleet init '{folder}' --target node1" in typed
    # As it says.
    (folder / SERVICE).unlink()
    words = shlex.split(typed.partition("monitor ")[2].replace("PATH/OF", "opt/100%/bin"))
    done = monitor(*words)
    assert done.stderr == ""
    (line,) = re.findall("^ExecStart=(.*)$", (folder / SERVICE).read_text(), re.MULTILINE)
    assert line == '"/opt/100%%/bin/monitor" export --address 0.0.0.0'
    done = monitor("fleet", "init", folder, "--address", "::1")
    assert f"{folder / SERVICE} was there and stays: --address changed nothing." in done.stderr


@pytest.mark.parametrize(
    ("targets", "listens", "started", "near"),
    [
        (["node1:9401", "n2:9401"], ANY, "export --address 0.0.0.0 --port 9401", "127.0.0.1:9401"),
        (["node1", "node2:9401"], ANY, "export --address 0.0.0.0", "127.0.0.1:9400"),
        (["10.0.0.5"], "10.0.0.5", "export --address 10.0.0.5", "10.0.0.5:9400"),
        (["node1"], "::", "export --address ::", "[::1]:9400"),
        (["localhost"], "127.0.0.1", "export", "127.0.0.1:9400"),
    ],
)
def test_the_exporter_of_a_host_listens_where_it_is_asked(
    targets: list[str], listens: str, started: str, near: str
) -> None:
    found = files(targets, exporter=exporter_of(targets, listens, "/bin/monitor"))
    assert f'ExecStart="/bin/monitor" {started}\n' in found[SERVICE]
    # What runs on the same host finds it there.
    assert f"http://{near}/metrics" in found[EPILOG]


def test_hosts_that_are_asked_at_another_port_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*targets: str, listens: str = ANY) -> str:
        made = exporter_of(targets, listens, "/bin/monitor")
        say_what_is_to_do(tmp_path, made, targets, named=True)
        return capsys.readouterr().err

    assert "asked at another: node2:9401." in said("node1", "node3", "node2:9401")
    assert said("node1:9401", "node2:9401") == ""
    # On this machine all is as it must be.
    assert said("localhost", "[::1]", "127.0.0.2", listens="127.0.0.1") == ""
    assert "no server can scrape a, b, c and 2 more." in said(*"abcde", listens="127.0.0.1")


@pytest.mark.parametrize(
    ("targets", "listens", "program", "next_step"),
    [
        ([], "node1", None, "--address 0.0.0.0"),
        (["a", "b"], "10.0.0.5", None, "--address 0.0.0.0"),
        ([], "127.0.0.1", "bin/monitor", "--exec /opt/whyidle/bin/monitor"),
        ([], "127.0.0.1", '/opt/"quoted"/monitor', "--exec /opt/whyidle/bin/monitor"),
    ],
)
def test_what_no_host_can_start_is_refused(
    targets: list[str], listens: str, program: str | None, next_step: str
) -> None:
    with pytest.raises(UsageProblem) as refused:
        exporter_of(targets, listens, program)
    assert next_step in refused.value.next_step


def test_alerts_go_to_each_alertmanager_that_is_named(tmp_path: Path, monitor: Monitor) -> None:
    folder = tmp_path / "fleet"
    names = ("--alertmanager", "alerts", "--alertmanager", "[::1]:9094")
    assert monitor("fleet", "init", folder, *names).returncode == 0
    assert 'targets: ["alerts:9093", "[::1]:9094"]' in (folder / CONFIG).read_text()
    checked = promtool("check", "config", folder / CONFIG)
    assert checked.returncode == 0, checked.stderr
    wrong = monitor("fleet", "init", folder, "--alertmanager", "http://alerts")
    assert wrong.returncode == Exit.USAGE
    assert "--alertmanager alerts:9093" in wrong.stderr


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, monitor: Monitor) -> None:
    (tmp_path / "file").write_text("")
    done = monitor("fleet", "init", tmp_path / "file" / "in")
    assert done.returncode == Exit.STORAGE
    assert "cannot be written" in done.stderr


def test_a_folder_without_a_name_is_not_the_one_that_one_is_in(
    tmp_path: Path, monitor: Monitor
) -> None:
    done = monitor("fleet", "init", "", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "No folder is named." in done.stderr
    assert not list(tmp_path.glob("*.yml"))


def test_a_server_in_a_cluster_scrapes_pods_by_their_nodes(
    tmp_path: Path, monitor: Monitor
) -> None:
    """Debian's promtool is built without Kubernetes; VictoriaMetrics reads the same, strictly."""
    folder = tmp_path / "fleet"
    assert monitor("fleet", "init", folder, "--kubernetes").returncode == 0
    assert json.loads((folder / TARGETS).read_text()) == [{"targets": []}]
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load((folder / CONFIG).read_text())["scrape_configs"]
    (pods,), (rename,) = job["kubernetes_sd_configs"], job["relabel_configs"]
    daemon = yaml.safe_load_all((folder / DAEMON_SET).read_text())
    labels = next(each for each in daemon if each["kind"] == "DaemonSet")["metadata"]
    assert pods["namespaces"] == {"names": [labels["namespace"]]}
    name, _, value = pods["selectors"][0]["label"].partition("=")
    assert labels["labels"][name] == value
    assert rename["target_label"] == "instance"
    scrapes = folder / "scrapes.yml"
    scrapes.write_text(yaml.safe_dump({"scrape_configs": [job]}))
    check = (
        tool("victoria-metrics"), f"-promscrape.config={scrapes}", "-promscrape.config.dryRun",
        "-promscrape.config.strictParse", f"-storageDataPath={tmp_path / 'data'}",
    )  # fmt: skip
    done = subprocess.run(check, text=True, capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    scrapes.write_text(scrapes.read_text().replace("selectors:", "selektors:"))
    assert subprocess.run(check, capture_output=True, check=False, timeout=30).returncode != 0


@pytest.mark.parametrize(
    "target", ["http://node1", "node1/metrics", "a b", "node1:0", "n:70000", "-x"]
)
def test_a_target_that_prometheus_refuses_is_not_written(
    tmp_path: Path, monitor: Monitor, target: str
) -> None:
    done = monitor("fleet", "init", tmp_path / "fleet", f"--target={target}")
    assert done.returncode == Exit.USAGE
    assert "--target node1" in done.stderr
    assert not (tmp_path / "fleet").exists()


def test_a_reader_that_is_gone_is_no_folder_that_cannot_be_written(
    tmp_path: Path, state: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(state)}
    done = subprocess.run(
        command("fleet", "init", tmp_path / "fleet"), env=env, stdout=write,
        stderr=subprocess.PIPE, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(write)
    assert "cannot be written" not in done.stderr
    assert len(list((tmp_path / "fleet").iterdir())) >= 6


def test_who_is_named_twice_is_scraped_once() -> None:
    (served,) = json.loads(files(["node1", "node1:9400", "node2"])[TARGETS])
    assert served["targets"] == ["node1:9400", "node2:9400"]


def test_an_address_gets_its_port() -> None:
    found = [address(each) for each in ("node1", "10.0.0.1:80", "::1", "[fe80::1]:9401")]
    assert found == ["node1:9400", "10.0.0.1:80", "[::1]:9400", "[fe80::1]:9401"]


def test_rules_ask_for_names_that_are_exported() -> None:
    ours = {each.name for each in vars(families).values() if isinstance(each, families.Name)}
    ours |= {x.exported for x in (*families.OF_GPU, *families.OF_JOB, *families.OF_MONITOR)}
    for rule in (*RECORDED, *ALERTS):
        asked = {
            word
            for word in rule.expr.replace("(", " ").replace("{", " ").replace("[", " ").split()
            if word.startswith("whyidle_")
        }
        assert {word.rstrip(")") for word in asked} <= ours, rule.name


def test_promtool_finds_nothing_wrong(fleet: Path, monitor: Monitor, tape: Tape) -> None:
    checked = promtool("check", "config", fleet / CONFIG)
    assert checked.returncode == 0, checked.stderr
    page = once(monitor, tape("eight_gpus", TRAINER=os.getpid()))
    linted = promtool("check", "metrics", text=page)
    said = linted.stderr.splitlines()
    # What it says of dcgm-exporter's own names is dcgm-exporter's.
    assert not [line for line in said if not line.startswith("DCGM_")], linted.stderr
    assert linted.returncode in {0, 3}


SERIES = (Path(__file__).parent / "alerts.test.yml").read_text()
# Each alert that must fire by then, with what it is about; those of healthy series must not.
FIRE = {
    "WhyidleGpuHeldAndIdle": 'gpu: "0", held: "true"',
    "WhyidleGpuLost": 'gpu: "2"',
    "WhyidleGpuHeldByNobody": 'gpu: "3"',
    "WhyidleGpuXid": 'gpu: "4"',
    "WhyidleGpuThrottled": 'gpu: "5"',
    "WhyidleFindingHigh": 'job_key: "1-2", rule: "input_starved"',
    "WhyidleStepTimeUp": 'job_key: "1-2"',
    "WhyidleGpuAllocatedAndIdle": 'gpu: "7", namespace: "research", pod: "train-0"',
    "WhyidleGpuSilent": 'gpu: "6"',
    "WhyidleExporterDown": 'job: "whyidle"',
    "WhyidleExporterProblem": 'part: "backfill"',
}


def test_each_alert_fires_for_its_fault_and_for_nothing_else(fleet: Path, tmp_path: Path) -> None:
    alerts = []
    assert FIRE.keys() == {rule.name for rule in ALERTS}
    for name, labels in FIRE.items():
        rule = next(rule for rule in ALERTS if rule.name == name)
        of = dict(pair.split(": ") for pair in f'instance: "a", {labels}'.split(", "))
        text = rule.summary
        for label, value in of.items():
            text = text.replace(f"{{{{ $labels.{label} }}}}", value.strip('"'))
        alerts.append(
            f"      - {{alertname: {name}, eval_time: 92m, exp_alerts: [{{exp_labels: "
            f'{{severity: {rule.severity}, instance: "a", {labels}}}, '
            f"exp_annotations: {{summary: {json.dumps(text)}}}}}]}}"
        )
    file = tmp_path / "test.yml"
    rules = fleet / RULES
    file.write_text(SERIES.format(rules=rules, alerts="\n".join(alerts), ratio=4.5))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_scrapes_it_and_answers_the_board(
    tape: Tape, state: Path, tmp_path: Path, fleet: Path
) -> None:
    env = tape("eight_gpus", TRAINER=os.getpid())
    with exporter(env, state) as running:
        (fleet / TARGETS).write_text(json.dumps([{"targets": [f"127.0.0.1:{running.port}"]}]))
        text = (fleet / CONFIG).read_text()
        (fleet / CONFIG).write_text(text.replace("interval: 15s", "interval: 1s"))
        with prometheus(fleet / CONFIG, tmp_path / "data") as server:
            server.until("DCGM_FI_DEV_GPU_TEMP", 8)
            for query in BOARD[:-1]:
                asked = query.replace("$instance", ".*").replace("$gpu", ".*")
                # A gpu and its instance, or one sum of all.
                many = 1 if query.startswith(("avg", "sum")) else 8
                assert len(server.ask(asked)) == many, query
            page = samples(running.scrape())
            for name in {each.name for each in page if each.name.startswith("whyidle_gpu")}:
                assert len(server.ask(name)) >= 8, name
