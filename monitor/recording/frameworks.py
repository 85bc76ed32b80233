"""What the framework probes of one process say that seldom changes: model, batch size, backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whyidle.agents import wire
from whyidle.monitor.link.records import State
from whyidle.monitor.processes.events import JobEvent
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.due import Due
from whyidle.monitor.recording.figures import FRAMEWORKS

FRAMEWORK = "framework"
# No sound probe says more, or deeper.
LONGEST_WORD = 200
LONGEST_LIST = 100
DEEPEST = 4

_WORDS = {"jax": "JAX", "torch": "PyTorch"}


class Frameworks:
    """Takes the states of one process."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        # The latest facts by the name of the probe.
        self.latest: Mapping[str, Mapping[str, Any]] = {}
        self._due = Due()
        self._changed: dict[str, None] = {}
        self._told: set[str] = set()

    def take(self, state: State) -> None:
        """Take in one state."""
        facts = plain(state.facts)
        if state.probe not in FRAMEWORKS or len(json.dumps(facts)) > wire.STATE_BYTES:
            return
        if facts != self.latest.get(state.probe):
            # A new one: the old may be on its way to a screen.
            self.latest = {**self.latest, state.probe: facts}
            self._changed[state.probe] = None

    def events(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Return what is due to be kept: facts that change all the time are told now and then."""
        if self._due.now(now_ns, self._changed, ending=ending) is None:
            return []
        changed, self._changed = self._changed, {}
        return [self._event(probe) for probe in changed]

    def _event(self, probe: str) -> JobEvent:
        facts = self.latest[probe]
        is_first = probe not in self._told
        self._told.add(probe)
        text = f"Process {self._key.pid}: {said(probe, facts)}."
        data = {"probe": probe, "facts": facts}
        return JobEvent(FRAMEWORK, self._key, text, data=data, is_news=is_first)


def said(probe: str, facts: Mapping[str, Any]) -> str:
    """Return in a few words what trains here."""
    version, backend, model = (_word(facts.get(n)) for n in ("version", "backend", "model"))
    parts = [" ".join(word for word in (_WORDS.get(probe, probe), version) if word)]
    if backend:
        parts[0] += f" on {backend}"
    parameters, batch = facts.get("parameters"), facts.get("batch_size")
    if model:
        parts.append(f"model {model}")
    if type(parameters) is int:
        parts.append(f"{parameters:,} parameters")
    if type(batch) is int:
        parts.append(f"batches of {batch:,}")
    return ", ".join(parts)


def _word(fact: object) -> str | None:
    return fact if isinstance(fact, str) else None


def plain(fact: Any, deep: int = 0) -> Any:
    """Return a fact as a sound probe would tell it: short, shallow, and in the store's numbers."""
    match fact:
        case str():
            return fact[:LONGEST_WORD]
        case int() | float():
            # Neither what is no number nor infinity is less.
            return fact if abs(fact) < 2**63 else None
        case list() if deep < DEEPEST:
            return [plain(each, deep + 1) for each in fact[:LONGEST_LIST]]
        case dict() if deep < DEEPEST:
            names = list(fact)[:LONGEST_LIST]
            return {name[:LONGEST_WORD]: plain(fact[name], deep + 1) for name in names}
        case _:
            return None
