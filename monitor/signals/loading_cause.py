"""Why loading is slow, in the words of a finding: what it does, or which of its workers is late."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.batches import begins_for_one
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LEAST_POINTS, LITTLE, MOST_SHOWN, MOSTLY, NEARLY_ALL
from whyidle.monitor.core.finding import Evidence, Fix, Framework, Place, Severity
from whyidle.monitor.core.measure import SAMPLES
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.signals.cores import Runner
from whyidle.monitor.signals.loading import LEAST_OF_LOADING, Loader, Loading
from whyidle.monitor.signals.loading_kinds import LOAD_LOOKS, LoadKind
from whyidle.monitor.signals.sampling import error_of
from whyidle.monitor.signals.user_lines import fetches, own, seen
from whyidle.monitor.signals.window import Window

# Lines of the loading that stand before the one that waits for it.
MOST_LINES: Final = MOST_SHOWN - 1
# Who reads from these waits for another process, not for storage.
NO_STORAGE: Final = frozenset({"socket", "pipe", "anon_inode"})
# File systems that are slow for many small files, whatever is behind them.
SLOW: Final = {
    r"nfs\d*": "NFS",
    r"fuse\..*|fuse": "a FUSE file system",
    r"cifs|smb\d*": "SMB",
    r"ceph|lustre|beegfs|gpfs|glusterfs|9p|virtiofs|afs": "a file system of the network",
}
# Several of these at once take as long as one, and no core: as many workers as cores are no bound.
OVERLAPS: Final = frozenset({LoadKind.STORAGE, LoadKind.NETWORK, LoadKind.WAIT})
# Evidence that others go by: what is waited for, by how many workers, and what these spend time on.
WAITS_FOR_INPUT: Final = "waiting for input"
HAS_WORKERS: Final = "loader workers"
SPENDS: Final = "loading spends on {}"
BEGUN: Final = "Each batch starts its data loader again"
FOR_ALL: Final[dict[Framework, Fix]] = {
    "pytorch": Fix(
        "Take all batches from one loop over the loader. Each start shuffles the whole data set.",
        """\
for epoch in range(epochs):
    for batch in loader:  # not: next(iter(loader)) in each step
        train(batch)""",
    )
}
SLOW_WORKER: Final[dict[Framework, Fix]] = {
    "pytorch": Fix(
        "Give each worker an equal share: shuffle samples, not files. Split the slow shard. A"
        " loader that takes batches as they come does not wait for the slowest.",
        """\
# PyTorch 2.6 and later
loader = DataLoader(dataset, in_order=False, **as_before)""",
    ),
    "jax": Fix(
        "Give each worker an equal share: shuffle samples, not files. Split the slow shard."
        " Take batches as they come, not in turns."
    ),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """What a finding says of the loading."""

    title: str
    evidence: tuple[Evidence, ...]
    where: tuple[Place, ...]
    fixes: Mapping[Framework, Fix]
    # ``None``: one worker is late, whatever it does.
    kind: LoadKind | None = None
    # More workers or threads than there are would divide it.
    divides: bool = False
    # What comes back at most where the workers' work is spread evenly; ``None``: it is.
    most: float | None = None
    # The part of the loading that is surely this kind's, and the part that surely stays.
    least: float = 0.0
    left: float = 0.0


def cause_of(window: Window) -> Cause | None:
    """Return the cause; ``None``: the samples do not say."""
    return _begun(window) or _late_worker(window) or _largest(window) or _too_few(window)


def _begun(window: Window) -> Cause | None:
    """Return the cause where the loader that is waited for begins for each batch."""
    where = seen(window.job, fetches)[:1] if window.loaders else ()
    if not where or not begins_for_one(where[0].file, where[0].line):
        return None
    here = [
        (chain, counts.samples)
        for chain, counts in window.job.stacks.chains.items()
        if chain.user is not None and chain.user[:2] == (where[0].file, where[0].line)
    ]
    begins = sum(
        n for chain, n in here if plays(Role.BEGIN, chain.called) or plays(Role.SHUFFLE, chain.leaf)
    )
    whole = sum(n for _, n in here)
    share = begins / whole if whole else 0.0
    least = share - error_of(share, whole)
    if least < LEAST_OF_LOADING:
        return None
    return Cause(
        BEGUN,
        (_share(window, SPENDS.format("starting it"), share),),
        where,
        FOR_ALL,
        LoadKind.START,
        least=least,
        # Where no worker does, the main thread still loads the batch.
        left=0.0 if with_workers(window) else 1 - share,
    )


def _late_worker(window: Window) -> Cause | None:
    workers, loaders = window.loader_workers, with_workers(window)
    # Of two loaders the one may have nothing to do.
    if len(workers) < 2 or len(loaders) != 1 or len(workers) > loaders[0]:
        return None
    late, others = workers[0], workers[1:]
    if late.share < NEARLY_ALL or any(x.share + x.error > MOSTLY * late.share for x in others):
        return None
    mean = sum(each.share for each in workers) / len(workers)
    loading = late.loading
    evidence = [
        _share(window, "the slowest worker works", late.share),
        _share(window, "the next one works", others[0].share),
        Evidence.of("worker processes seen", window.job.measure(len(workers), "count", SAMPLES)),
        *(_kinds(window, loading) if loading else ()),
    ]
    places = (
        ()
        if loading is None
        else tuple(dict.fromkeys(place for kind in LoadKind for place in loading.places(kind)))
    )
    places = own(sorted(places, key=lambda place: -(place.share or 0.0)))
    return Cause(
        "One loader worker is slow, and all others wait for it",
        tuple(evidence), places, SLOW_WORKER, most=1 - mean / late.share,
    )  # fmt: skip


def with_workers(window: Window) -> list[int]:
    """Return how many workers each loader has, of those that have any."""
    return [w for each in window.loaders if isinstance(w := each.get("workers"), int) and w]


def _are_too_few(window: Window) -> bool:
    """Tell whether all workers work all the time, beside cores that nobody uses."""
    workers, cores, count = window.loader_workers, window.core_account, sum(with_workers(window))
    if cores is None or not 0 < len(workers) <= count:
        return False
    is_busy = all(each.share - each.error / 2 >= NEARLY_ALL for each in workers)
    return is_busy and count < cores.cores - 1 and cores.runs[Runner.FREE] >= 1.0


def _too_few(window: Window) -> Cause | None:
    cores = window.core_account
    if cores is None or not _are_too_few(window):
        return None
    least = min(each.share for each in window.loader_workers)
    free = window.job.measure(cores.runs[Runner.FREE], "cores", "procfs")
    return Cause(
        "The data loader has too few workers, and all are busy",
        (_share(window, "each worker works at least", least), Evidence.of("idle cores", free)),
        (),
        {},
    )


def _largest(window: Window) -> Cause | None:
    loading = window.loading
    kind = None if loading is None else loading.cause
    # Where no loader starts workers anew other processes begin, and are none of its.
    starts = [x for x in window.loaders if x.get("workers") and not x.get("persistent_workers")]
    stay = bool(window.loaders) and not starts
    if loading is None or kind is None or (kind is LoadKind.START and stay):
        return None
    look = LOAD_LOOKS[kind]
    title, evidence = look.title, [Evidence("who loads", str(loading.who), "", SAMPLES)]
    if loading.who is Loader.MAIN and not window.loaders:
        # A function of the job's own makes the batch.
        title = title.replace("The data loader", "Loading")
    evidence += _kinds(window, loading)
    if kind is LoadKind.STORAGE:
        place = _place(window)
        evidence += _storage(window, place)
        # Its kind is named where it is a slow one by itself.
        named = [words for like, words in SLOW.items() if re.fullmatch(like, place.split(" ")[0])]
        named += ["a rotating disk"] if "rotating" in place else []
        title += f": {named[0]}" if named else ""
    elif kind is LoadKind.START:
        for loader in window.loaders[:1]:
            stays = loader.get("persistent_workers")
            if stays is not None and loader.get("workers"):
                evidence.append(Evidence("persistent_workers", str(stays), "", "agent"))
    # A worker needs a core that the steps do not compute on.
    cores = window.core_account
    # A worker takes a core; beside steps that filled both of two, with samples prepared in the main
    # thread, two workers made the job 0.76 times as fast, and samples that were kept 1.5 times.
    room = window.device != "cpu" or cores is None or cores.runs[Runner.FREE] >= MOSTLY
    return Cause(
        title,
        tuple(evidence),
        own((*loading.places(kind)[:MOST_LINES], *(Place(*x) for x in loading.waits_at[:1]))),
        look.fixes(),
        kind,
        divides=look.divides
        and (kind in OVERLAPS or room)
        and (loading.who is Loader.MAIN or _are_too_few(window)),
        least=max(0.0, loading.share(kind) - loading.error(loading.share(kind))),
    )


def _storage(window: Window, place: str) -> Iterator[Evidence]:
    """Yield what is known of the storage: what is read from it, and how much of that is cached."""
    if place:
        yield Evidence("where it waits, it mostly reads from", place, "", "procfs")
    job = window.job
    for name, metric in (
        ("the job reads from storage", m.JOB_DISK_READ),
        ("and by all its calls, caches and pipes too", m.JOB_READ),
        ("page faults that read the disk", m.JOB_MAJOR_FAULTS),
        ("time in which some task waited for I/O", m.HOST_IO_PRESSURE),
        ("cores idle with disk I/O outstanding", m.HOST_IOWAIT),
    ):
        if (measure := job.mean(metric)) is not None and measure.value > 0:
            yield Evidence.of(name, measure)


def _place(window: Window) -> str:
    """Return what most of the samples read from that waited in a read; empty: too few did."""
    found = {k: n for k, n in window.job.read_from.items() if k not in NO_STORAGE}
    place, whole = max(found, key=lambda each: found[each], default=""), sum(found.values())
    return place if whole >= LEAST_POINTS and 2 * found[place] > whole else ""


def _kinds(window: Window, loading: Loading) -> Sequence[Evidence]:
    shares = {kind: loading.share(kind) for kind in LoadKind}
    most = sorted(shares, key=lambda kind: -shares[kind])[:MOST_SHOWN]
    return [
        _share(window, SPENDS.format(LOAD_LOOKS[kind].words), shares[kind])
        for n, kind in enumerate(most)
        if shares[kind] >= (LITTLE if n else Severity.LOW.least)
    ]


def _share(window: Window, name: str, share: float) -> Evidence:
    return Evidence.of(name, window.job.sampled(share))
