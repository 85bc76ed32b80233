"""``monitor fleet init``: the files that a Prometheus server needs."""

from __future__ import annotations

from pathlib import Path

import click

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.export.fleet_files import CONFIG, RULES, files


def init(*, folder: str, targets: tuple[str, ...]) -> None:
    """Write what is not there yet."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files(targets or ("localhost",)).items():
            is_new = not (place / name).exists()
            if is_new:
                (place / name).write_text(text)
            click.echo(f"{'wrote' if is_new else 'kept '}  {place / name}")
    except OSError as error:
        raise UsageProblem(
            f"{error.filename or place} cannot be written: {error.strerror}.",
            "Name a folder of your own: monitor fleet init ~/whyidle-fleet",
        ) from None
    click.echo(f"Check the rules: promtool check rules {place / RULES}")
    click.echo(f"Start it:        prometheus --config.file={place / CONFIG}")
