"""What a job's own callbacks are told now and then: where its time goes, and what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from whyidle.agents import wire
from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.core.finding import at
from whyidle.monitor.recording.pipeline import Guard
from whyidle.monitor.recording.snapshot import Snapshot

# A training logs every few seconds.
EVERY_SECONDS: Final = 5.0
# All of it fits into one message of the link.
MOST_FINDINGS: Final = 5
LONGEST: Final = 120
MOST_BYTES: Final = wire.MESSAGE_BYTES - 200


class Telling:
    """Says when something is to be told, and what."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._next = 0.0

    def due(self, snapshot: Snapshot) -> Mapping[str, object] | None:
        """Return what is to be told at this tick; ``None``: nothing."""
        if snapshot.elapsed < self._next:
            return None
        self._next = snapshot.elapsed + EVERY_SECONDS
        try:
            return said(snapshot)
        except Exception as error:  # noqa: BLE001  a recording goes on
            self._guard.caught("telling", error)
            return None


def said(snapshot: Snapshot) -> dict[str, Any]:
    """Return the account and the findings in few words."""
    running = snapshot.estimate()
    total = sum(running.slices.values())
    parts = {str(part): round(ns / total, 4) for part, ns in running.slices.items() if total}
    found = [_finding(each) for each in snapshot.findings[:MOST_FINDINGS]]
    told = {
        "run": snapshot.run,
        "source": running.source if parts else None,
        "parts": parts,
        "verdict": None if snapshot.verdict is None else snapshot.verdict.text[:LONGEST],
        "findings": found,
        "more": len(snapshot.findings) - len(found),
    }
    # The names that a job gives itself may need six bytes a letter.
    while found and len(json.dumps(told)) > MOST_BYTES:
        found.pop()
        told["more"] = len(snapshot.findings) - len(found)
    return told


def _finding(finding: FindingJson) -> dict[str, Any]:
    place = next(iter(finding.where), None)
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title[:LONGEST],
        "speedup": finding.speedup,
        "expected": finding.expected,
        "at": None if place is None else at(place.file, place.line)[:LONGEST],
    }
