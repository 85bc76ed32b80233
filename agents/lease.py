"""How long the agent may stay: as long as a client renews its lease."""

from __future__ import annotations

from .wire import LEASE_SECONDS

_LEASE_NS = int(LEASE_SECONDS * 1e9)
# Only the last clients that left are remembered: the others' connections are closed by then.
_MOST_GONE = 64


class _Lease:
    __slots__ = ("epoch", "read", "until")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.read = 0
        self.until = 0


class Leases:
    """One lease a client; before the first one the agent has a period of grace."""

    def __init__(self, grace_until: int) -> None:
        # When the last lease ends.
        self._until = grace_until
        self._leases: dict[int, _Lease] = {}
        self._gone: dict[int, None] = {}

    def renew(self, client: int, read: int, epoch: int, now: int) -> None:
        """Begin or renew a client's lease; ``read`` bytes of the spool it knew of are read."""
        if client in self._gone:
            # It was sent before the answer that it has left.
            return
        for other, its in list(self._leases.items()):
            if its.until < now:
                del self._leases[other]
        lease = self._leases.setdefault(client, _Lease(epoch))
        self._until = lease.until = now + _LEASE_NS
        # A client that does not know yet of an emptied spool means the old one.
        lease.read = read if lease.epoch == epoch else 0
        lease.epoch = epoch

    def leave(self, client: int) -> None:
        """End a client's lease."""
        self._leases.pop(client, None)
        self._until = max((lease.until for lease in self._leases.values()), default=0)
        self._gone[client] = None
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def are_over(self, now: int) -> bool:
        """Tell whether no client has one."""
        return self._until < now

    def have_all_read(self, size: int, epoch: int) -> bool:
        """Tell whether every client has read the spool to its end."""
        leases = self._leases.values()
        return bool(leases) and all(x.read == size and x.epoch == epoch for x in leases)
