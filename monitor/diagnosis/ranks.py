"""The ranks of a job, as an answer has them."""

from __future__ import annotations

from whyidle.monitor.core.contracts.ranks import SeenRankJson, SeenRanksJson
from whyidle.monitor.signals.window import Window


def ranks_json(window: Window) -> SeenRanksJson | None:
    """Return what is known of the ranks; ``None``: no two were seen."""
    ranks = window.ranks
    if ranks is None:
        return None
    # It brings numpy, which whoever has found ranks has loaded.
    from whyidle.monitor.core.ranks import RankShare  # noqa: PLC0415

    accounts = {each.seen.rank: each for each in window.rank_accounts}
    # What was seen for too little to be held against the others is no later than they are.
    nothing = 0.0, 0.0
    each = ranks.each or [
        RankShare(one.seen.rank, one.seen.pid, None, 0.0, nothing, nothing)
        for one in accounts.values()
    ]
    late = ranks.straggler

    def of(share: RankShare) -> SeenRankJson:
        account = None if share.rank is None else accounts.get(share.rank)
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

    return SeenRanksJson(
        each=[of(share) for share in each],
        world_size=window.world_size,
        straggler=None if late is None else of(late),
        alike=[share.rank for share in ranks.alike],
        kinds={kind: round(part, 4) for kind, part in ranks.kinds.items()},
        chance=ranks.chance,
        reason=ranks.reason,
    )
