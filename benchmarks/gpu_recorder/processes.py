"""The processes on the GPU over time, as the windows that a tape has."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

# Linux gives no pid this high: nobody on the machine that plays the tape is taken for them.
FIRST_STRANGER = 1 << 22
HIGHEST_SHARE = 100
# No new sample is no idleness: the driver takes them more rarely than the probe asks.
HOLD_SECONDS = 1.1

Use = tuple[int, int, int, int]  # sm, memory, encoder, decoder: %
NO_USE: Use = (0, 0, 0, 0)


@dataclass
class _Moment:
    t: float
    memory: dict[int, int | None]
    # How busy each was since the moment before; None: the driver does not tell.
    use: dict[int, Use] | None = None


@dataclass
class _Window:
    start: float
    end: float
    text: str


@dataclass
class Processes:
    """Who was on the GPU at each tick."""

    # Our own loads by pid: "$TRAINER". Everyone else gets a number that means nobody.
    roles: dict[int, str] = field(default_factory=dict)
    strangers: dict[int, str] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    shares_above_100: int = 0
    _moments: list[_Moment] = field(default_factory=list)

    def take_list(self, t: float, memory: dict[int, int | None]) -> None:
        """Note the processes of a tick."""
        self._moments.append(_Moment(t, memory))
        self.seen |= set(memory)

    def take_use(self, samples: list[Any], since_us: int) -> None:
        """Note how busy they were, which the probe asks right after the list."""
        if not self._moments:
            return
        by_pid: dict[int, list[Any]] = {}
        for sample in samples:
            if sample.smUtil > HIGHEST_SHARE:
                self.shares_above_100 += 1
            elif sample.timeStamp > since_us:
                by_pid.setdefault(sample.pid, []).append(sample)
        self._moments[-1].use = {pid: _mean(found) for pid, found in by_pid.items()}

    def name(self, pid: int) -> str:
        """Return what the tape calls a process."""
        if pid in self.roles:
            return self.roles[pid]
        return self.strangers.setdefault(pid, str(FIRST_STRANGER + len(self.strangers)))

    def _uses(self) -> dict[int, list[tuple[float, Use]]]:
        found: dict[int, list[tuple[float, Use]]] = {}
        for moment in self._moments:
            for pid, use in (moment.use or {}).items():
                found.setdefault(pid, []).append((moment.t, use))
        return found

    def lines(self, end: float) -> Iterator[str]:
        """Give the proc lines; ``end`` is where the tape ends."""
        windows: dict[str, list[_Window]] = {}
        uses = self._uses()
        following = [*self._moments[1:], None]
        for moment, after in zip(self._moments, following, strict=False):
            until = end if after is None else after.t
            # What was done in a window is told at its end.
            told = moment if after is None else after
            # By name: the load before may still be listed beside the one that follows it.
            for name, pid in {self.name(pid): pid for pid in moment.memory}.items():
                use = _use_between(moment.t, told.t, uses.get(pid, ()))
                text = _values(moment.memory[pid], None if told.use is None else use)
                found = windows.setdefault(name, [])
                if found and found[-1].end == moment.t and found[-1].text == text:
                    found[-1].end = until
                else:
                    found.append(_Window(moment.t, until, text))
        for name, found in windows.items():
            for window in found:
                yield f"proc 0 {name} {window.start:.3f}-{window.end:.3f} {window.text}"


def _use_between(start: float, end: float, told: Sequence[tuple[float, Use]]) -> Use:
    """Return the last use told by the end, else the one told soon after, else none."""
    before = [use for t, use in told if start - HOLD_SECONDS <= t <= end]
    after = [use for t, use in told if end < t <= end + HOLD_SECONDS]
    return (before[-1:] + after[:1] + [NO_USE])[0]


def _mean(samples: list[Any]) -> Use:
    def of(member: str) -> int:
        return round(statistics.fmean(getattr(s, member) for s in samples))

    return of("smUtil"), of("memUtil"), of("encUtil"), of("decUtil")


def _values(memory: int | None, use: Use | None) -> str:
    words = [f"memory={'none' if memory is None else memory}"]
    if use is not None:
        words += [f"{n}={v}" for n, v in zip(("sm", "mem"), use[:2], strict=True)]
        words += [f"{n}={v}" for n, v in zip(("enc", "dec"), use[2:], strict=True) if v]
    return " ".join(words)
