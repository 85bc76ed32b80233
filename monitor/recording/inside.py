"""Which processes of the job the agent is in: enters them, reads what it tells, leaves them.

A tick does nothing here that waits: entering is done by a thread of its own (``entering``), and the
links only take what is there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import Outcome, Refusal
from whyidle.monitor.attach.target import Target
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.link.channel import Address
from whyidle.monitor.link.link import Link, LinkLost
from whyidle.monitor.processes.naming import SETTLED_SECONDS
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat
from whyidle.monitor.recording import together, told
from whyidle.monitor.recording.bulletin import Bulletin
from whyidle.monitor.recording.counted import has_any
from whyidle.monitor.recording.entering import Arrival, Entering, outside
from whyidle.monitor.recording.onlooker import Onlooker
from whyidle.monitor.recording.seats import BEGUN_SECONDS, Seat, has_framework, lived
from whyidle.monitor.recording.snapshot import JobEvent, Member

MOST_MEMBERS = 64
ENTERED, REFUSED, LEFT = "agent_entered", "agent_refused", "agent_left"
OBSERVED = Refusal("Only observed: nothing of ours goes into the job.")
EXIT_SECONDS = 10.0
# An import of a framework takes so long, and the agent comes at its end.
BROUGHT_SECONDS = 5.0


class Inside:
    """The agents of one job. ``tick`` first, then what it came to."""

    def __init__(  # noqa: PLR0913  what the user wants, by name
        self,
        root: ProcessKey,
        fs: ProcFs,
        *,
        observe: bool = False,
        any_user: bool = False,
        brought: bool = False,
        enter: Callable[[Target], Outcome] = ladder.enter,
        caught: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._caught = caught
        self._root = root
        self._fs = fs
        self._observe = observe
        self._patience = BROUGHT_SECONDS if brought else 0.0
        self._uid = None if any_user else fs.owner(root.pid)
        self._seats: dict[ProcessKey, Seat] = {}
        self._entering = Entering(fs, enter)
        self._onlooker = Onlooker(fs)
        self._bulletin = Bulletin(root)
        self._began_ns = time.monotonic_ns()
        self._now = self._began_ns / 1e9
        self._readings: dict[ProcessKey, Reading] = {}
        # What processes had done that are no longer here.
        self._gone: dict[ProcessKey, Mapping[str, Any]] = {}
        # The job's first process as its agent left it; a short job has nothing else to tell.
        self._last: Member | None = None
        # Why the job's first process is not entered as it is; told once.
        self.not_entered: Refusal | None = None
        self._was_judged = False
        # What the agent of the first process said at last.
        self.last_word: str | None = None

    def tick(
        self, now: float, stats: Mapping[ProcessKey, Stat], known: Mapping[ProcessKey, Identity]
    ) -> None:
        """Take in what is new; begin with the processes whose turn it is."""
        self._now = now
        self._take_seats(now, stats, known)
        for arrival in self._entering.arrivals():
            self._arrived(arrival, stats)
        self._readings = {}
        for seat in list(self._seats.values()):
            try:
                self._tend(seat, now, stats.get(seat.key))
            except Exception as error:
                if self._caught is None:
                    raise
                # What one process says must not cost the others.
                self._caught("an agent", error)
        self._judge(stats, known)
        self._say_if_hanging(stats)
        self._bulletin.count_short_lived(now)
        self._bulletin.add(self._onlooker.tick(self._seats.values()))

    def _tend(self, seat: Seat, now: float, stat: Stat | None) -> None:
        if stat is not None:
            seat.look_at(stat)
            self._grow(seat)
        if seat.link is not None:
            self._read(seat, seat.link)
        elif stat is None and not seat.on_the_way:
            self._forget(seat)
        elif stat is not None and seat.is_due(now, stat):
            self._entering.ask(seat.key, inject=seat.may_inject)
            seat.tries += 1
            seat.on_the_way = True

    def members(self) -> tuple[Member, ...]:
        """Return each process with a framework or an agent, the oldest first."""
        seats = sorted(self._seats.values(), key=lambda seat: _age(seat.key))
        return tuple(s.member() for s in seats if s.has_framework or s.link is not None)

    def last_members(self) -> tuple[Member, ...]:
        """Return what is left to tell of when all agents have gone, however young it was."""
        return () if self._last is None else (replace(self._last, settled=True),)

    def readings(self) -> dict[ProcessKey, Reading]:
        """Return what the agents told since the last tick, and why others did not."""
        outside = (s for s in self._seats.values() if s.link is None and s.has_framework)
        return {**{seat.key: seat.without() for seat in outside}, **self._readings}

    def has_settled(self, key: ProcessKey) -> bool:
        """Tell whether an agent tells of a process that has lived long enough to be kept."""
        return key in self._readings and key in self._seats and not self._seats[key].is_young

    def put_job(self, reading: Reading) -> None:
        """Put what is true of the whole job."""
        inside = [seat for seat in self._seats.values() if seat.link is not None]
        # A launcher has no rank, and knows nothing of steps.
        inside.sort(key=lambda seat: (seat.identity.rank is None, told.rank_of(seat) or 0))
        together.put_job(reading, [seat.harvest.latest for seat in inside])

    def counted(self) -> dict[ProcessKey, Mapping[str, Any]]:
        """Return what each process has done since the recording began, also those that ended."""
        ours = ((key, seat.counted.told()) for key, seat in self._seats.items())
        return {**self._gone, **{key: sums for key, sums in ours if has_any(sums)}}

    def seats(self) -> list[Seat]:
        """Return each process that may be entered, and how far we have come with it."""
        return list(self._seats.values())

    def take_events(self) -> list[JobEvent]:
        """Return what happened since the last call."""
        return self._bulletin.take()

    def renew(self, key: ProcessKey) -> None:
        """Begin anew with a process that runs another program now."""
        self._was_judged, self.not_entered = False, None
        seat = self._seats.get(key)
        if seat is not None and seat.link is None and not seat.on_the_way:
            del self._seats[key]

    def leave(self, seconds: float) -> None:
        """Ask every agent to go, and take the last records of each, also of the dead."""
        deadline = time.monotonic() + seconds
        self._onlooker.close()
        for arrival in self._entering.close(seconds / 2):
            self._arrived(arrival, {})
        self._readings = {}
        for link in self._links():
            link.ask_to_leave()
        while links := self._links():
            for seat in list(self._seats.values()):
                if seat.link is not None:
                    self._read(seat, seat.link)
            if time.monotonic() >= deadline:
                break
            links[0].wait(0.01)
        for seat in self._seats.values():
            self._part(seat, "the agent did not answer in time and will go by itself")
        self._bulletin.count_short_lived(float("inf"))

    # Inside --------------------------------------------------------------------------------------
    def _links(self) -> list[Link]:
        return [seat.link for seat in self._seats.values() if seat.link is not None]

    def _take_seats(
        self, now: float, stats: Mapping[ProcessKey, Stat], known: Mapping[ProcessKey, Identity]
    ) -> None:
        taken = Counter(seat.has_framework for seat in self._seats.values())
        for key in sorted(stats.keys() & known.keys(), key=_age):
            who = known[key]
            if (seat := self._seats.get(key)) is not None:
                had_framework, seat.identity = seat.has_framework, who
                if seat.has_framework and not had_framework:
                    seat.due = max(seat.due, now + self._patience)
            elif who.python is not None and taken[has_framework(who)] < MOST_MEMBERS:
                taken[has_framework(who)] += 1
                young = 0.0 if key == self._root else BEGUN_SECONDS - lived(key)
                seat = Seat(key, who, now + max(0.0, young, self._patience))
                seat.address = None if self._observe else Address.of(key, self._fs)
                seat.barred = self._barred(seat)
                self._seats[key] = seat

    def _grow(self, seat: Seat) -> None:
        """Keep what was held back of a process that has turned out to stay."""
        seat.is_young = seat.key != self._root and lived(seat.key) < SETTLED_SECONDS
        if not seat.is_young:
            self._bulletin.tell_untold(seat)

    def _forget(self, seat: Seat) -> None:
        self._bulletin.forget(seat)
        sums = seat.counted.told()
        if not seat.is_young and has_any(sums) and len(self._gone) < MOST_MEMBERS:
            self._gone[seat.key] = sums
        del self._seats[seat.key]

    def _say_if_hanging(self, stats: Mapping[ProcessKey, Stat]) -> None:
        """Go on outside with those that wait for a way in that does not end."""
        refusal = self._entering.hangs()
        if refusal is None:
            return
        for seat in [seat for seat in self._seats.values() if seat.on_the_way]:
            if seat.key not in stats:
                self._forget(seat)
            elif seat.has_framework:
                seat.outcome = outside(refusal)
                self._refused(seat, refusal)

    def _judge(
        self, stats: Mapping[ProcessKey, Stat], known: Mapping[ProcessKey, Identity]
    ) -> None:
        """Say why the first process has no agent, where no seat of it will say so."""
        seat, who = self._seats.get(self._root), known.get(self._root)
        if seat is not None and (seat.has_framework or seat.link is not None):
            self.not_entered = None
        elif not self._was_judged and self._root in stats and not (who and has_framework(who)):
            self._was_judged = True
            self.not_entered = told.why_not(Target(self._root, self._fs))
            if self._observe:
                self.not_entered = OBSERVED

    def _barred(self, seat: Seat) -> Refusal | None:
        pid = seat.key.pid
        if self._observe:
            return OBSERVED
        if self._uid is not None and self._fs.owner(pid) != self._uid:
            return Refusal(
                f"Process {pid} belongs to another user ({seat.identity.user}) than the job.",
                f"To enter it too: monitor attach {self._root.pid} --any-user",
            )
        return None

    def _arrived(self, arrival: Arrival, stats: Mapping[ProcessKey, Stat]) -> None:
        seat = self._seats.get(arrival.key)
        if seat is None:
            if arrival.link is not None:
                arrival.link.close()
            return
        stat = stats.get(seat.key)
        seat.arrived(arrival.outcome, arrival.link, self._now, stat)
        if arrival.link is not None:
            entry = told.entry(seat, arrival.link)
            self._bulletin.happened(ENTERED, seat, told.how(seat), entry, now=self._now)
        elif seat.has_framework and (refusal := seat.refusal) is not None:
            self._refused(seat, refusal)

    def _refused(self, seat: Seat, refusal: Refusal) -> None:
        if refusal.what != seat.told:
            seat.told = refusal.what
            text, data = told.refused(seat, refusal), {"next_step": refusal.next_step}
            self._bulletin.happened(REFUSED, seat, text, data, now=self._now, severity="low")

    def _read(self, seat: Seat, link: Link) -> None:
        """Take what an agent has written."""
        now_ns = time.monotonic_ns()

        def moment(t: int) -> int:
            # Whatever a job says: nothing happens after now.
            return min(now_ns, link.monotonic_ns(t))

        lost = False
        try:
            records = link.exchange()
        except LinkLost:
            records, lost = [], True
        # An agent that was there already has told of a time that is not ours to tell of.
        ours = [record for record in records if moment(record.t) >= self._began_ns]
        seat.harvest.take(ours, moment, link.damaged)
        fresh = seat.harvest.reading(now_ns, stopped=seat.is_stopped)
        if fresh.values or fresh.unknown:
            self._readings[seat.key] = fresh
        if not seat.is_young:
            self._bulletin.add(seat.harvest.events(now_ns))
        if lost:
            self._part(seat, told.STAYS if link.stays else told.why_gone(link.bye))

    def _part(self, seat: Seat, why: str) -> None:
        """Close the line to an agent; what it told last is kept."""
        link = seat.link
        if link is None:
            return
        if not seat.is_young:
            self._bulletin.add(seat.harvest.events(time.monotonic_ns(), ending=True))
        said = f"{told.who(seat)}: {why}."
        self._bulletin.happened(LEFT, seat, said, {"bye": told.short(link.bye)}, now=self._now)
        if seat.key == self._root:
            self.last_word, self._last = link.bye, seat.member()
        stat = self._fs.stat(seat.key.pid)
        if stat is None or stat.has_ended or stat.start_ticks != seat.key.start_ticks:
            link.remove_leftovers()
        link.sweep()
        link.close()
        seat.left(self._now)
        if link.bye == told.EXIT:
            # Its Python is about to end: there is nothing to go into.
            seat.due += EXIT_SECONDS


def _age(key: ProcessKey) -> tuple[int, int]:
    return key.start_ticks, key.pid
