"""The ranks of a job as a recording saw them, in the answer of ``monitor diagnose``."""

from __future__ import annotations

from msgspec import Struct


class SeenRankJson(Struct, frozen=True, kw_only=True):
    """One rank among the others; what is a range has its least and its most."""

    rank: int | None
    pid: int | None
    host: str | None
    # The part of the collectives that it came last to; of a live job, of the seconds.
    last: float
    # The part of a step in which the others wait for it, and in which it waits for them.
    late: list[float]
    waits: list[float]
    # What its main thread was at, by class of the host's account; empty where it was not sampled.
    host_shares: dict[str, float]
    steps: int | None


class SeenRanksJson(Struct, frozen=True, kw_only=True):
    """All ranks that were seen, and the one that the others wait for."""

    each: list[SeenRankJson]
    # How many ranks the job has, as it says itself.
    world_size: int | None
    straggler: SeenRankJson | None
    # The numbers of others that are late as it is.
    alike: list[int | None]
    # Its lateness by kind of collective, where a trace tells them apart.
    kinds: dict[str, float]
    # In so much of jobs without a late rank chance alone does this.
    chance: float | None
    # Why no rank is named.
    reason: str
