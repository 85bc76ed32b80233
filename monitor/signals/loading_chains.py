"""What a thread does in one stack: whether it loads, and how; or what it waits for instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from whyidle.monitor.code.callees import Calls, calls_of
from whyidle.monitor.code.source import called, computes
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
# Of a line that reads, so much on a disk says that what it reads is in no cache.
LEAST_BLOCKED: Final = 0.2
_OF_LEAVES_ONLY: Final = frozenset({LoadKind.START, LoadKind.HAND_OVER})


def divided(
    chain: Chain, leaf: CodeLine, counts: Counts
) -> Iterator[tuple[LoadKind | None, bool, float]]:
    """Yield what a chain was doing, whether it had nothing to load, and in how many samples."""
    waited = counts.samples * counts.waited / counts.known if counts.known else 0.0
    blocked = min(waited, float(counts.blocked))
    if (
        plays(Role.IMPORT, leaf, chain.called)
        or _starts(leaf, chain.called)
        or begins_workers(chain)
    ):
        yield LoadKind.START, False, counts.samples
    elif blocked >= LEAST_BLOCKED * counts.samples and _reads_only(chain):
        # It copies what it has just waited for.
        yield LoadKind.STORAGE, False, counts.samples
    else:
        idles = plays(Role.IDLE, leaf)
        if not counts.known and idles:
            # Whether it ran is not known: mostly such a place is one to wait at.
            yield None, True, counts.samples
            return
        # Who wants Python's lock does nothing, and waits for no data.
        locked = counts.samples * counts.locked / counts.known if counts.known else 0.0
        yield _works_at(chain, leaf), False, counts.samples - waited - locked
        yield LoadKind.STORAGE, False, blocked
        idles = idles or _waits_for_device(chain, leaf)
        yield (None if idles else _waits_at(chain, leaf)), idles, waited - blocked


def begins_workers(chain: Chain) -> bool:
    """Tell whether a main thread is where a loader of PyTorch begins its workers."""
    return plays(Role.BEGIN, chain.called)


def _waits_for_device(chain: Chain, leaf: CodeLine) -> bool:
    """Tell whether a thread that loads ahead of the device waits for that one."""
    if any(package_of(x.file) in DEVICE_PACKAGES for x in (leaf, chain.called) if x is not None):
        return True
    at_users = bool(chain.frames) and leaf == chain.frames[0]
    return at_users and calls_of(leaf.file, leaf.line) is Calls.FRAMEWORK


def _reads_only(chain: Chain) -> bool:
    names = called(chain.frames[0].file, chain.frames[0].line) if chain.frames else ()
    return is_call(Role.DISK_ALONE, names)


def _starts(leaf: CodeLine, asked: CodeLine | None) -> bool:
    # A data set goes to each worker that is not a fork.
    return plays(Role.START, leaf) or (plays(Role.SEND, leaf) and plays(Role.BEGIN, asked))


def _works_at(chain: Chain, leaf: CodeLine) -> LoadKind | None:
    """Return what a thread that runs does."""
    users = chain.frames[0] if chain.frames else None
    at_users = users is not None and leaf == users
    names = list(called(users.file, users.line)) if users is not None else []
    functions = [frame.function for frame in chain.frames]
    found = (
        _by_library(leaf, chain.called if users is not None else None)
        or next((k for k, look in LOAD_LOOKS.items() if look.calls(names)), None)
        or _by_function(functions)
    )
    if found is not None:
        return found
    if not at_users:
        # A framework's own sources are long, and their names would say nothing.
        return None
    is_hosts = calls_of(leaf.file, leaf.line) in {Calls.HOST, Calls.LIBRARY}
    return LoadKind.TRANSFORM if is_hosts or computes(leaf.file, leaf.line) else None


def _by_library(leaf: CodeLine, asked: CodeLine | None) -> LoadKind | None:
    """Tell by the files; without a line of the user's, what was asked for is the thread's first."""
    for kind, look in LOAD_LOOKS.items():
        lines = [leaf] if kind in _OF_LEAVES_ONLY else [leaf, asked]
        if look.role is not None and plays(look.role, *lines):
            return kind
    return None


def _by_function(functions: Iterable[str]) -> LoadKind | None:
    """Tell by the names of the user's functions, the innermost first."""
    patterns = {kind: look.functions for kind, look in LOAD_LOOKS.items()}
    return next((kind for name in functions if (kind := _first([name], patterns))), None)


def _first(
    names: Iterable[str], patterns: Mapping[LoadKind, re.Pattern[str] | None]
) -> LoadKind | None:
    names = list(names)
    for kind, pattern in patterns.items():
        if pattern is not None and any(pattern.fullmatch(name) for name in names):
            return kind
    return None


def _waits_at(chain: Chain, leaf: CodeLine) -> LoadKind:
    """Return what a thread waits for that has something to load."""
    names = called(chain.frames[0].file, chain.frames[0].line) if chain.frames else ()
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
    functions = [frame.function for frame in chain.frames]
    if any(_LOADS.fullmatch(f) and not _USES.fullmatch(f) for f in functions):
        return True
    return kind in {LoadKind.TOKENISE, LoadKind.UNPACK, LoadKind.DECODE, LoadKind.NETWORK}
