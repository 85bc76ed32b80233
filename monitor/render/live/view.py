"""All that the live view knows of one moment: data, no text of the screen."""

from __future__ import annotations

from dataclasses import dataclass

from whyidle.monitor.core.contracts.diagnosis import FindingJson, VerdictJson
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.recording.snapshot import Member, Snapshot
from whyidle.monitor.render import inside, plain
from whyidle.monitor.render.live import account, advice, devices, host, title
from whyidle.monitor.render.live.account import Account
from whyidle.monitor.render.live.advice import Advice
from whyidle.monitor.render.live.devices import Devices
from whyidle.monitor.render.live.history import History
from whyidle.monitor.render.live.host import Host
from whyidle.monitor.render.live.title import Title


@dataclass(frozen=True, slots=True)
class View:
    """One moment, by the parts of the screen."""

    title: Title
    advice: tuple[Advice, ...]
    account: Account | None
    devices: Devices
    members: tuple[Member, ...]
    host: Host
    # The newest last, each with its time.
    events: tuple[tuple[str, plain.NewsLine], ...]
    trouble: str | None
    # For its pages.
    verdict: VerdictJson | None
    findings: tuple[FindingJson, ...]
    how: str
    monitor: Reading
    shown: str


def of(snapshot: Snapshot, history: History, *, everything: bool) -> View:
    """Return the view of this moment."""
    advised = advice.of(snapshot)
    return View(
        title=title.of(snapshot),
        advice=advised,
        account=account.of(snapshot, history),
        devices=devices.of(snapshot, history, everything=everything),
        members=snapshot.members,
        host=host.of(snapshot, history, named=advised[0].place),
        events=tuple(history.events),
        trouble=snapshot.trouble,
        verdict=snapshot.verdict,
        findings=snapshot.findings,
        how=inside.how(snapshot),
        monitor=snapshot.monitor,
        shown="all" if everything else snapshot.owned.how,
    )
