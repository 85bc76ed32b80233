"""The device waits for the next batch.

## What it sees
The device is idle while the main thread waits for the data loader, or makes batches. On a CPU also
loading that takes cores from the step.

The finding names the kind of work, such as storage, decoding, collating, starting workers each
epoch, or one slow worker. A serial tf.data pipeline without a trace is only a hint.

## Why it costs
Loading takes longer than a step, or happens between steps.

## How to fix
Use threads if the time goes into reading and not into Python. Use no more workers than cores,
unless they mostly wait. Then cache the samples, or store them smaller: a copy on a local disk,
decoding and tokenizing once, `persistent_workers` for workers that start again.

## When it is wrong
Data may arrive over time. In a program that computes nothing, a wait counts as in `host_code`.
Workers take cores and memory, and divide the work at best by their number: judge by the step time.

## Documents
D2 §4 (batch iterators) and D5 (input pipeline). D2's loader moves nothing to the device by itself;
D5's `.map().batch().shuffle()` shuffles batches, not samples.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import MOST_SHOWN, MOSTLY
from whyidle.monitor.core.finding import MOST_LOST, Confidence, Evidence, Found, Gain, Knows, Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.measure import SAMPLES, Measure
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.activity import Activity, loading
from whyidle.monitor.signals.cores import Runner
from whyidle.monitor.signals.gain import BACK_LEAST, HANDING_OVER, UNRECORDED, Side, comes_back
from whyidle.monitor.signals.loading import Loader
from whyidle.monitor.signals.loading_cause import (
    HAS_WORKERS,
    MOST_LINES,
    OVERLAPS,
    WAITS_FOR_INPUT,
    Cause,
    cause_of,
)
from whyidle.monitor.signals.loading_kinds import LoadKind
from whyidle.monitor.signals.phases import Phase, phase_of
from whyidle.monitor.signals.pipelines import IN_ORDER, Pipeline, in_python, pipeline_of
from whyidle.monitor.signals.recorded import Helper
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.serving import others_run, trains
from whyidle.monitor.signals.user_lines import asking, fetches, of_main, of_slice, own, seen

# Of stack samples: at five a second their error is as large.
LEAST_OF_LOOKS: Final = 0.05
# A graph that is waited for less has no input worth a hint.
LEAST_OF_GRAPH: Final = 0.15
# Where all cores work no more workers help.
CHEAPER: Final = both(
    "Do less per sample: keep what does not change between epochs. Store it in the form that is"
    " needed, and do in the step what can be done for a whole batch.",
    """\
@functools.cache
def prepared(index):
    return prepare(read(index))""",
)
COMPETES: Final = "Data loading takes the cores that the step computes on"
_GENERATES: Final = re.compile(r"\bfrom_generator\(")


def detect(window: Window) -> Verdict:
    """Judge the waits for the data loader, or for data that the main thread reads itself."""
    if window.serves:
        # What it reads and decodes is a request, and no batch.
        return None
    verdict = _loading(window)
    # A loader of PyTorch's feeds other frameworks as well, and is what has to change.
    waits = window.job.means.get(m.JOB_LOADER_WAIT, 0.0) >= Severity.MEDIUM.least
    if isinstance(verdict, Found) and not verdict.frameworks and window.loaders and waits:
        return replace(verdict, frameworks=("pytorch",))
    return verdict


def _loading(window: Window) -> Verdict:
    waits = _waits(window)
    verdict = _judge(window, waits)
    if (pipeline := pipeline_of(window)) is not None:
        if isinstance(verdict, Found):
            return _of_pipeline(window, verdict, pipeline, waits)
        return verdict if waits is not None else _of_graph(window, pipeline) or verdict
    cause = cause_of(window) if isinstance(verdict, Found) else None
    if not isinstance(verdict, Found) or cause is None:
        return verdict
    loads = window.loading
    is_mains = cause.kind is not None and loads is not None and loads.who is Loader.MAIN
    if verdict.title == COMPETES and is_mains:
        # Who takes cores from the step is not the main thread.
        return verdict
    return _explained(window, verdict, cause, waits)


def _of_pipeline(window: Window, found: Found, pipeline: Pipeline, waits: Measure | None) -> Found:
    """Name what a pipeline of tf.data does one after the other; what the wait costs stays."""
    gain, stages = found.gain, _stages(window, pipeline)
    if gain is not None and waits is not None:
        # What is done for a batch at a time may take next to nothing of a core.
        is_sampled = waits.source == SAMPLES
        most = waits.value + step_samples(window.job).error(waits.value) * is_sampled
        gain = Gain(gain.low, max(gain.high, min(MOST_LOST, most)))
    # Of one line that with a share.
    each = {(place.file, place.line): place for place in (*stages, *found.where)}
    return replace(
        found,
        gain=gain,
        evidence=(*found.evidence, *pipeline.evidence),
        where=tuple(each.values()) if pipeline.in_python else found.where or stages,
        title=found.title if found.title == COMPETES else pipeline.title or found.title,
        fixes={"tensorflow": pipeline.fix},
        frameworks=("tensorflow",),
    )


def _stages(window: Window, pipeline: Pipeline) -> tuple[Place, ...]:
    """Return the functions of a pipeline.

    A generator has no name, and is seen in threads, or where the pipeline is made of it: what it
    does for one sample may be too short to be seen.
    """
    in_threads = (Place(x.file, x.line, x.function) for x in window.job.threads.lines(MOST_LINES))
    made = asking(window.job, _GENERATES) if pipeline.in_python else ()
    return own(pipeline.where) or made or own(in_threads)


def _of_graph(window: Window, pipeline: Pipeline) -> Found | None:
    """Tell of a pipeline that a graph asks for its batches, as `fit` does: no clock sees it wait.

    A trace of a GPU would; without one the thread that waits for the graph may wait for either.
    """
    host = window.host
    for_graph = 0.0 if host is None else host.share(HostClass.FRAMEWORK_WAIT)
    if for_graph < LEAST_OF_GRAPH:
        return None
    waits = window.job.sampled(for_graph)
    return Found(
        gain=None,
        evidence=(Evidence.of("waits for the graph, or its input", waits), *pipeline.evidence),
        confidence=Confidence.HINTED,
        where=_stages(window, pipeline),
        severity=Severity.INFO,
        title="Batches are made one at a time; the wait is not known",
        fixes={"tensorflow": pipeline.fix},
        frameworks=("tensorflow",),
    )


def _explained(window: Window, found: Found, cause: Cause, waits: Measure | None) -> Found:
    """Name the cause: what it is, its lines, and its cure; what the wait costs stays."""
    gain, severity, fixes = found.gain, found.severity, cause.fixes or found.fixes
    cores, kept = window.cores, window.job.mean(m.JOB_MAIN_THREAD_WAIT)
    # Who loads takes cores meanwhile, which the rest of the step may wait for as well.
    of_all = (0.0 if waits is None else waits.value) + (0.0 if kept is None else kept.value)
    if cause.divides and found.fixes is None and gain is not None:
        fixes = {
            name: Fix(f"{fix.text} {cause.fixes[name].text}", fix.code)
            for name, fix in rule.fixes.items()
            if name in cause.fixes
        }
    if cause.most is not None and waits is not None:
        # More workers would wait for the same one; how far its work can be spread is not known.
        gain, severity = Gain.between(0.0, min(waits.value, cause.most)), None
    elif waits is not None and (
        cause.kind is LoadKind.START or (gain is None and cause.kind in OVERLAPS)
    ):
        # What is left is the first batch of the first epoch, or what is computed on nearer data.
        most = of_all * (1 - cause.left)
        gain, severity = Gain.between(BACK_LEAST * cause.least * waits.value, most), None
    elif gain is not None and waits is not None:
        # What is done once, or not at all, needs no core: then all of it comes back.
        gain = Gain(gain.low, max(gain.high, min(MOST_LOST, of_all)))
    elif gain is not None and cores is not None and cause.kind in OVERLAPS:
        # The main thread waits: as many readers as cores are sure, though more may divide it more.
        surely = 1 - (1 + HANDING_OVER * gain.high) / cores.value
        gain = Gain(min(gain.low, max(0.0, surely)), gain.high)
    return replace(
        found,
        gain=gain,
        evidence=found.evidence + cause.evidence,
        confidence=Confidence.INFERRED,
        where=of_main(window.job, cause.where) or found.where,
        severity=severity,
        # What takes the cores from the step costs in another way than what is waited for.
        title=found.title if found.title == COMPETES else cause.title,
        fixes=fixes,
    )


def _judge(window: Window, waits: Measure | None) -> Verdict:
    if (verdict := _of_competing(window, waits)) is not None:
        return verdict
    if waits is not None and waits.value >= Severity.LOW.least:
        return _of_loader(window, waits)
    # Of a program that computes nothing, what it reads is what it waits for.
    doing = loading(window.job, window.feeding) if trains(window) else None
    if doing is not None and doing.share.value >= LEAST_OF_LOOKS:
        return _of_main_thread(window, doing)
    if waits is None:
        return window.lacks(Need.TRACE if window.job.inside else Need.INSIDE)
    return None


def _waits(window: Window) -> Measure | None:
    """Return the waits for a loader: by trace and agent, or by samples that found it in one."""
    known, host, loading = window.share(Slice.IDLE_INPUT), window.host, window.loading
    # A GPU can have waited in the rest of the time at most: a host may run ahead of it.
    compute = window.share(Slice.COMPUTE) if window.device == "gpu" else None
    used = [gpu.means[m.GPU_UTILISATION] for gpu in window.gpus if m.GPU_UTILISATION in gpu.means]
    idle = 1 - (min(used, default=0.0) if compute is None else compute.value)
    # A queue of the user's own has none, and is known by what fills it.
    fed = 0.0 if loading is None or loading.cause is None else loading.waits
    fed = min(fed, idle, 1.0 if trains(window) else others_run(window))
    if fed >= LEAST_OF_LOOKS and fed > (0.0 if known is None else known.value):
        return window.job.sampled(fed)
    run = in_python(window) if known is None else None
    if run is not None and run[0] - run[1] >= LEAST_OF_LOOKS:
        return window.job.sampled(run[0] - run[1])
    # Loaders of Keras, grain and others have no clock of the agent's.
    seen_there = 0.0 if host is None else host.share(HostClass.LOADER)
    if host is None or seen_there - host.error(seen_there) < LEAST_OF_LOOKS:
        return known
    if known is not None and known.value >= seen_there:
        return known
    return window.job.sampled(seen_there)


def _of_loader(window: Window, waits: Measure) -> Verdict:
    number, cores = next((each.get("workers") for each in window.loaders), None), window.cores
    workers = window.job.measure(number, "count") if isinstance(number, int) else None
    measures = {
        WAITS_FOR_INPUT: waits,
        HAS_WORKERS: workers,
        "cores": None if workers is None else cores,
    }
    evidence = Evidence.known(measures)
    # The lines by the trace, else those at the loader: the others only come after it.
    where = of_slice(window, Slice.IDLE_INPUT) or seen(window.job, fetches)
    if cores is None or workers is None or workers.value < cores.value:
        gain = comes_back(window, waits.value, waits.value, Side.LOADER)
        return Found(gain, evidence, where, Slice.IDLE_INPUT)
    if waits.value < LEAST_OF_LOOKS:
        return None
    # No more workers fit: what a cheaper sample would give back is not known.
    title = "Data loading fills all cores, and the device still waits"
    return Found(None, evidence, where, Slice.IDLE_INPUT, Severity.LOW, title)


def _of_competing(window: Window, waits: Measure | None) -> Found | None:
    """Judge loading that makes nobody wait for it, and takes cores that the step computes on."""
    account, job = window.core_account, window.job
    if account is None or not account.lines:
        return None
    # Processes that step environments load nothing.
    players = [each for each in job.helpers if _plays(each)]
    plays = sum(each.cores for each in players)
    theirs = {(line.file, line.line) for each in players for line in each.lines}
    taken = max(0.0, account.runs[Runner.HELPERS] - job.peers - plays)
    freed = comes_back(window, taken, taken, Side.CORES)
    if freed.low < max(LEAST_OF_LOOKS, 0.0 if waits is None else waits.value):
        return None
    return Found(
        gain=freed,
        evidence=(
            Evidence.of("cores that loading takes", job.measure(taken, "cores", "procfs")),
            Evidence.of("cores", job.measure(account.cores, "cores", "procfs")),
        ),
        confidence=Confidence.INFERRED,
        where=tuple(
            Place(line.file, line.line, line.function, line.share / account.cores)
            for line in [x for x in account.lines if (x.file, x.line) not in theirs][:MOST_SHOWN]
        ),
        title=COMPETES,
        fixes=CHEAPER,
    )


def _plays(helper: Helper) -> bool:
    """Tell whether a process steps environments, or waits for the next action."""
    chains = helper.stacks.chains.items()
    steps = sum(n.samples for chain, n in chains if phase_of(chain).phase is Phase.ENVIRONMENT)
    return steps >= MOSTLY * helper.stacks.samples > 0


def _of_main_thread(window: Window, doing: Activity) -> Verdict:
    trace, cores = window.whole_steps, window.cores
    if trace is None and (window.host is None or window.device is None):
        return window.lacks(Need.TRACE)
    read, error = doing.share.value, step_samples(window.job).error(doing.share.value)
    gain = comes_back(window, read - error, read + error, Side.LOADS)
    if gain.high < LEAST_OF_LOOKS:
        return None
    idle = trace.measure(trace.taken(*UNRECORDED), "ratio") if trace and cores else None
    measures = {
        "main thread loads data": doing.share,
        "device idle": idle,
        "cores": cores if idle else None,
    }
    return Found(
        gain=gain,
        evidence=Evidence.known(measures),
        confidence=Confidence.INFERRED,
        where=own(doing.where),
        slice=max(UNRECORDED, key=trace.taken) if trace and cores else Slice.IDLE_INPUT,
        knows=Knows.CAUSE,
    )


rule = Rule(
    title="The device waits for the next batch",
    documents=("D2 §4", "D5"),
    fixes={
        "pytorch": Fix(
            "Load with worker processes: num_workers=N, persistent_workers=True.",
            """\
workers = {"num_workers": 8, "persistent_workers": True}
loader = DataLoader(dataset, **workers, **as_before)""",
        ),
        "jax": Fix(
            "Read the next batches in threads, and copy them to the device early.",
            """\
def ahead(read, orders, workers=2, size=4):
    def fetch(rows):
        return jax.device_put(read(rows))

    with ThreadPoolExecutor(workers) as pool:
        waiting = collections.deque()
        for rows in orders:
            waiting.append(pool.submit(fetch, rows))
            if len(waiting) > size:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()""",
        ),
        "flux": Fix(
            "Load in parallel, and iterate over CuIterator(loader). Use DataLoader(data;"
            " batchsize, parallel=true), with Julia started with --threads; the loader alone"
            " moves nothing to the device."
        ),
        "tensorflow": IN_ORDER,
    },
)
