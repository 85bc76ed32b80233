"""What is odd about an answer, in sentences: clocks, rules that do not run, half an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from whyidle.monitor.core.contracts.fleet import FleetJson
from whyidle.monitor.fleet.asking import Asking

# Clocks that are set by the network differ by less.
CLOCK_SECONDS: Final = 30.0
# Of the steps of the trend, how many may lack sums: those at both ends.
STEPS_LACKING: Final = 3


def notes(asking: Asking, found: FleetJson, took: float) -> Iterator[str]:
    """Return them; ``took``: how long the server needed to tell its time."""
    yield from _of_the_clock(found, took)
    yield from _of_the_rules(asking, found)
    said: dict[str, str] = {}
    for part, answer in asking.answers.items():
        for note in answer.notes:
            said.setdefault(note, part)
    for note, part in said.items():
        yield f"{part}: {note}."
    if found.hosts is None and "hosts" in asking.answers:
        yield (
            "No host answers: this server scrapes no `monitor export`, or none that is up. What it"
            " needs: monitor fleet init DIR --target HOST"
        )


def _of_the_clock(found: FleetJson, took: float) -> Iterator[str]:
    ahead = found.clock_ahead_s
    if ahead is not None and abs(ahead) > CLOCK_SECONDS + took:
        side = "ahead of" if ahead > 0 else "behind"
        yield (
            f"The server's clock is {abs(ahead):.0f} s {side} this machine's: times here are the"
            " server's."
        )


def _of_the_rules(asking: Asking, found: FleetJson) -> Iterator[str]:
    up = [number is not None for number in found.trend.hosts]
    summed = [share is not None for share in found.trend.idle_share]
    lacking = sum(is_up and not has for is_up, has in zip(up, summed, strict=True))
    if found.source == "rules" and any(summed) and lacking > STEPS_LACKING:
        yield (
            f"The recording rules ran in {1 - lacking / sum(up):.0%} of the time in which hosts"
            " answered: sums are of that part. To add up all of it: --counters"
        )
    if "rules" in asking.answers and not asking.rows("rules") and found.hosts:
        yield (
            "The recording rules of `monitor fleet init` do not run there: sums take longer,"
            " as they are computed from scratch."
        )
