"""``monitor fleet init``: the files that a Prometheus server and its hosts need."""

from __future__ import annotations

from pathlib import Path

import click

from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.export.fleet_files import CONFIG, RULES, address, files
from whyidle.monitor.export.host_files import SCRIPTS
from whyidle.monitor.fleet import grafana
from whyidle.monitor.render.escape import printable


def init(*, folder: str, targets: tuple[str, ...]) -> None:
    """Write what is not there yet."""
    place = Path(folder)
    for target in targets:
        if address(target) is None:
            raise UsageProblem(
                f"'{target}' is no host that Prometheus can scrape.",
                "Name it alone, or with a port: --target node1 --target node2:9400 --target [::1]",
            )
    done: list[str] = []
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in (files(targets or ("localhost",)) | grafana.files()).items():
            is_new = not (place / name).exists()
            if is_new:
                (place / name).write_text(text)
                if name in SCRIPTS:
                    (place / name).chmod(0o755)
            done.append(f"{'wrote' if is_new else 'kept '}  {place / name}")
    except OSError as error:
        raise StorageProblem(
            f"{error.filename or place} cannot be written: {error.strerror}.",
            "Name a folder of your own: monitor fleet init ~/whyidle-fleet",
        ) from None
    done.append(f"Check the rules: promtool check rules {place / RULES}")
    started = f"prometheus --config.file={place / CONFIG} --web.enable-remote-write-receiver"
    done.append(f"Start it:        {started}")
    for line in done:
        click.echo(printable(line))
