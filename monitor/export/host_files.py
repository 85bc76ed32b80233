"""What puts the exporter on hosts: the files in ``hosts/``, with what is known only here."""

from __future__ import annotations

import sys
from importlib.resources import files as packaged
from pathlib import Path
from typing import Final

from whyidle.monitor.core.defaults import EXPORT_PORT

SERVICE: Final = "whyidle-export.service"
DAEMON_SET: Final = "whyidle-daemonset.yaml"
CONTAINERFILE: Final = "Containerfile"
# What the DaemonSet calls them.
NAMESPACE: Final = "whyidle"
APP: Final = "app.kubernetes.io/name=whyidle-export"
PROLOG, EPILOG, ATTACH = "slurm-prolog.sh", "slurm-epilog.sh", "attach-in-pod.sh"
# Those that are run.
SCRIPTS: Final = frozenset({PROLOG, EPILOG, ATTACH})
# Nobody publishes one: it is built from the first, and named in all.
IMAGE: Final = "registry.example/whyidle:latest"


def files() -> dict[str, str]:
    """Return each file by its name."""
    folder = packaged("whyidle.monitor.export") / "hosts"
    known = {
        "@MONITOR@": str(Path(sys.executable).parent / "monitor"),
        "@PORT@": str(EXPORT_PORT),
        "@IMAGE@": IMAGE,
    }
    found = {}
    for name in (SERVICE, CONTAINERFILE, DAEMON_SET, PROLOG, EPILOG, ATTACH):
        text = (folder / name).read_text()
        for word, value in known.items():
            text = text.replace(word, value)
        found[name] = text
    return found
