"""``monitor prune``: delete recordings and give the disk its space back."""

from __future__ import annotations

import re

import click

from whyidle.monitor.commands import _options as options

_AGES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Age(click.ParamType[float]):
    """A duration such as 12h or 30d."""

    name = "age"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", value.lower())
        if found is None:
            self.fail(f"'{value}' is no age; write for instance 12h, 30d or 4w", param, ctx)
        return float(found[1]) * _AGES[found[2]]


class Size(click.ParamType[int]):
    """A size such as 200MB."""

    name = "size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])i?b?", value.lower())
        if found is None:
            self.fail(f"'{value}' is no size; write for instance 200MB or 1GB", param, ctx)
        return int(float(found[1]) * _SIZES[found[2]])


_EPILOG = """\b
What would go:            monitor prune --older-than 30d --dry-run
All but the newest ten:   monitor prune --keep 10"""


@click.command(epilog=_EPILOG)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--older-than", type=Age(), metavar="AGE", help="Runs that ended before, e.g. 30d.")
@click.option("--keep", type=options.Whole(min=0), metavar="N", help="All but the newest N.")
@click.option("--max-size", type=Size(), metavar="SIZE", help="The oldest, until SIZE is left.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.as_json
@options.implemented_by("prune")
def command() -> None:
    """Delete recordings.

    Choose them by name, age, count or size. A running recording stays.

    The store also cleans up by itself: it keeps every second for a day, every 10 s for a week,
    every minute for 90 days, every hour forever, and at most 600 MB in all. It keeps the newest
    three files of the traces that it took for each recording, at most 512 MB in all.
    """
