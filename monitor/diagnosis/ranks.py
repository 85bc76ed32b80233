"""The ranks of a job, as an answer has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.monitor.core.contracts.ranks import SeenRankJson, SeenRanksJson
from whyidle.monitor.signals.ranks import RankAccount
from whyidle.monitor.signals.window import Window

if TYPE_CHECKING:
    from whyidle.monitor.core.ranks import RankShare


def ranks_json(window: Window) -> SeenRanksJson | None:
    """Return what is known of the ranks; ``None``: no two were seen."""
    ranks = window.ranks
    if ranks is None:
        return None
    accounts = {each.seen.rank: each for each in window.rank_accounts}

    def one(share: RankShare) -> SeenRankJson:
        return _rank(share, None if share.rank is None else accounts.get(share.rank))

    each = [one(share) for share in ranks.each]
    late = ranks.straggler
    return SeenRanksJson(
        each=each or [_unjudged(account) for account in accounts.values()],
        world_size=window.world_size,
        straggler=None if late is None else one(late),
        alike=[share.rank for share in ranks.alike],
        kinds={kind: round(part, 4) for kind, part in ranks.kinds.items()},
        chance=ranks.chance,
        reason=ranks.reason,
    )


def _rank(share: RankShare, account: RankAccount | None) -> SeenRankJson:
    return SeenRankJson(
        rank=share.rank,
        pid=share.pid,
        host=share.host,
        last=round(share.last, 4),
        late=[round(end, 4) for end in share.late],
        waits=[round(end, 4) for end in share.waits],
        host_shares={} if account is None else account.by_class,
        steps=None if account is None else account.seen.steps,
    )


def _unjudged(account: RankAccount) -> SeenRankJson:
    """Return a rank that was seen for too little to be held against the others."""
    return SeenRankJson(
        rank=account.seen.rank,
        pid=account.seen.pid,
        host=None,
        last=0.0,
        late=[0.0, 0.0],
        waits=[0.0, 0.0],
        host_shares=account.by_class,
        steps=account.seen.steps,
    )
