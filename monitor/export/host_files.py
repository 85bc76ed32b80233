"""What puts the exporter on hosts: the files in ``hosts/``, with what is known only here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as packaged
from pathlib import Path
from typing import Final

from whyidle.monitor.core.defaults import EXPORT_PORT, LOOPBACK

SERVICE: Final = "whyidle-export.service"
DAEMON_SET: Final = "whyidle-daemonset.yaml"
CONTAINERFILE: Final = "Containerfile"
# The same DaemonSet for Helm, with what a cluster sets.
CHART, VALUES = "chart/Chart.yaml", "chart/values.yaml"
TEMPLATE: Final = "chart/templates/whyidle.yaml"
# What the DaemonSet calls them.
NAMESPACE: Final = "whyidle"
APP: Final = "app.kubernetes.io/name=whyidle-export"
PROLOG, EPILOG, ATTACH = "slurm-prolog.sh", "slurm-epilog.sh", "attach-in-pod.sh"
# Those that are run.
SCRIPTS: Final = frozenset({PROLOG, EPILOG, ATTACH})
# Nobody publishes one: it is built from the first, and named in all.
IMAGE: Final = "registry.example/whyidle:latest"
# Each address that a host has.
ANY: Final = "0.0.0.0"  # noqa: S104  where nobody asks for it, nothing listens there


@dataclass(frozen=True, slots=True)
class Exporter:
    """What a host starts, and where that listens."""

    # The path of `monitor` there.
    program: str = str(Path(sys.executable).parent / "monitor")
    address: str = LOOPBACK
    port: int = EXPORT_PORT

    @property
    def started(self) -> str:
        """The command, as a unit of systemd has it."""
        words = [f'"{self.program}" export']
        words += [] if self.address == LOOPBACK else [f"--address {self.address}"]
        words += [] if self.port == EXPORT_PORT else [f"--port {self.port}"]
        return " ".join(words).replace("%", "%%")

    @property
    def near(self) -> str:
        """Where it is asked on its own host."""
        host = {ANY: LOOPBACK, "::": "::1"}.get(self.address, self.address)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def files(exporter: Exporter | None = None) -> dict[str, str]:
    """Return each file by its name."""
    exporter = exporter or Exporter()
    folder = packaged("whyidle.monitor.export") / "hosts"
    known = {
        "@STARTED@": exporter.started,
        "@NEAR@": exporter.near,
        "@PORT@": str(exporter.port),
        "@IMAGE@": IMAGE,
    }
    found = {}
    for name in (SERVICE, CONTAINERFILE, DAEMON_SET, PROLOG, EPILOG, ATTACH, CHART, VALUES):
        found[name] = _filled((folder / Path(name).name).read_text(), known)
    return found | {TEMPLATE: _template((folder / DAEMON_SET).read_text())}


def _template(text: str) -> str:
    """Return the DaemonSet as Helm fills it: into the namespace that is named to it."""
    _, *documents = text.split("---\n")
    known = {
        "@IMAGE@": "{{ .Values.image }}",
        "@PORT@": "{{ .Values.port }}",
        f"namespace: {NAMESPACE}\n": "namespace: {{ .Release.Namespace }}\n",
    }
    return _filled("---\n".join(documents), known)


def _filled(text: str, known: Mapping[str, str]) -> str:
    for word, value in known.items():
        text = text.replace(word, value)
    return text
