"""What a thread does in one stack: whether it loads, and how; or what it waits for instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from whyidle.monitor.code.callees import calls_of
from whyidle.monitor.code.scopes import Calls
from whyidle.monitor.code.source import called, computes, goes_through
from whyidle.monitor.core.amounts import LITTLE
from whyidle.monitor.libraries.frames import is_call, package_of, plays
from whyidle.monitor.libraries.table import DEVICE_PACKAGES, Role
from whyidle.monitor.runs.stacks import Chain, CodeLine, Counts
from whyidle.monitor.signals.loading_kinds import LOAD_LOOKS, LoadKind

# Functions of the user's that load, by their names.
_LOADS: Final = re.compile(
    r"__(?:next|iter|getitem|getitems)__|.*(?:collate|load|fetch|decode|download|tokeni[sz]"
    r"|augment|preprocess|prepare|transform).*"
    r"|(?:.*_)?(?:read|batch|batches|sample|samples)(?:_.*)?",
    re.IGNORECASE,
)
# Of those that say what it is for, ``train_batch`` does that, and ``load_training_data`` loads.
_USES: Final = re.compile(
    r"(?!_*(?:load|fetch|read|get|collate|decode|download|tokeni[sz]|augment|preprocess|prepare"
    r"|transform))(?:.*_)?(?:train(?:ing)?|step|update|eval(?:uate)?|loss|fit|main)(?:_.*|[A-Z].*)?"
)
_OF_LEAVES_ONLY: Final = frozenset({LoadKind.START, LoadKind.HAND_OVER})


def divided(
    chain: Chain, leaf: CodeLine, counts: Counts
) -> Iterator[tuple[LoadKind | None, bool, float]]:
    """Yield what a chain was doing, whether it had nothing to load, and in how many samples."""
    waited = counts.of(counts.waited)
    blocked = min(waited, float(counts.blocked))
    names = called(chain.user.file, chain.user.line) if chain.user is not None else ()
    # A data set goes to each worker that is not a fork.
    sends = plays(Role.SEND, leaf) and plays(Role.BEGIN, chain.called)
    if (
        plays(Role.IMPORT, leaf, chain.called)
        or plays(Role.START, leaf)
        or sends
        or begins_workers(chain)
    ):
        yield LoadKind.START, False, counts.samples
    elif blocked >= LITTLE * counts.samples and is_call(Role.DISK_ALONE, names):
        # It copies what it has just waited for.
        yield LoadKind.STORAGE, False, counts.samples
    elif not counts.known and plays(Role.IDLE, leaf):
        # Whether it ran is not known: mostly such a place is one to wait at.
        yield None, True, counts.samples
    else:
        # Who wants Python's lock does nothing, and waits for no data.
        yield (
            _works_at(chain, leaf, names),
            False,
            counts.samples - waited - counts.of(counts.locked),
        )
        yield LoadKind.STORAGE, False, blocked
        # Who loads ahead of the device may wait for that one.
        lines = [line for line in (leaf, chain.called) if line is not None]
        idles = (
            plays(Role.IDLE, leaf)
            or any(package_of(line.file) in DEVICE_PACKAGES for line in lines)
            or (leaf == chain.user and calls_of(leaf.file, leaf.line) is Calls.FRAMEWORK)
        )
        yield (None if idles else _waits_at(chain, leaf, names)), idles, waited - blocked


def begins_workers(chain: Chain) -> bool:
    """Tell whether a main thread is where a loader of PyTorch begins its workers."""
    return plays(Role.BEGIN, chain.called)


def _works_at(chain: Chain, leaf: CodeLine, names: tuple[str, ...]) -> LoadKind | None:
    """Return what a thread that runs does."""
    # By the files; without a line of the user's, what was asked for is the thread's first.
    asked = None if chain.user is None else chain.called
    for kind, look in LOAD_LOOKS.items():
        lines = [leaf] if kind in _OF_LEAVES_ONLY else [leaf, asked]
        if look.role is not None and plays(look.role, *lines):
            return kind
    for kind, look in LOAD_LOOKS.items():
        if look.calls(names):
            return kind
    # By the names of the user's functions, the innermost first.
    for frame in chain.frames:
        for kind, look in LOAD_LOOKS.items():
            if look.functions is not None and look.functions.fullmatch(frame.function):
                return kind
    # A framework's own sources are long, and their names would say nothing.
    if leaf != chain.user:
        return None
    is_hosts = calls_of(leaf.file, leaf.line) in {Calls.HOST, Calls.LIBRARY}
    return LoadKind.TRANSFORM if is_hosts or computes(leaf.file, leaf.line) else None


def _waits_at(chain: Chain, leaf: CodeLine, names: tuple[str, ...]) -> LoadKind:
    """Return what a thread waits for that has something to load."""
    if plays(Role.SHARE, leaf):
        return LoadKind.HAND_OVER
    if is_call(Role.SLEEP, names):
        return LoadKind.WAIT
    at = (leaf, chain.called)
    if plays(Role.NETWORK, *at) or is_call(Role.NETWORK, names):
        return LoadKind.NETWORK
    if plays(Role.DISK, *at) or is_call(Role.DISK, names):
        return LoadKind.STORAGE
    return LoadKind.WAIT


def is_loading(chain: Chain, kind: LoadKind | None) -> bool:
    """Tell whether a thread that does other things, too, loads in this chain."""
    if plays(Role.LOADER, chain.leaf, chain.called):
        return True
    if kind is not None and _is_behind_a_bar(chain):
        return True
    functions = [frame.function for frame in chain.frames]
    if any(_LOADS.fullmatch(f) and not _USES.fullmatch(f) for f in functions):
        return True
    return kind in {LoadKind.TOKENISE, LoadKind.UNPACK, LoadKind.DECODE, LoadKind.NETWORK}


def _is_behind_a_bar(chain: Chain) -> bool:
    """Tell whether a loop goes through a bar of progress, and that asks for the next batch."""
    line, leaf = chain.user, chain.innermost
    if line is None or leaf is None or not plays(Role.BAR, chain.called):
        return False
    return bool(goes_through(line.file, line.line))
