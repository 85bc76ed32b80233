"""Rung 0: an agent is already there, from `monitor run` or an earlier attach."""

from __future__ import annotations

import os

from whyidle.agents import wire
from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.link.channel import Address
from whyidle.monitor.link.link import Link, LinkRefused
from whyidle.monitor.processes.target import Target

NOT_THERE = Refusal("No agent is in it yet.")
NOT_ASKED = Refusal("Whether an agent is in it was not asked: others have kept us waiting.")


def refusal(target: Target, seconds: float) -> Refusal | None:
    """Return ``None`` when the agent in the process answers within about so many seconds."""
    sockets = _sockets(target)
    if not sockets:
        return NOT_THERE
    if seconds <= 0:
        return NOT_ASKED
    try:
        # They are asked one after another, and a job may have put several there.
        link = Link.open(target.key, target.fs, seconds / sockets)
    except LinkRefused as refused:
        return Refusal(refused.what, refused.next_step)
    if link is None:
        return NOT_THERE
    link.close()
    return None


def _sockets(target: Target) -> int:
    """Return how many sockets lie where an agent's may."""
    address = Address.of(target.key, target.fs)
    if address is None:
        return 0
    names = (f"{address.root}{f}/{address.folder}/{address.socket}" for f in wire.FOLDERS)
    return sum(os.path.lexists(name) for name in names)
