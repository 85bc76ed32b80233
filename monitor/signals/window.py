"""A window over a job: typed questions, each answered by the best source that there is.

What is not measured is ``None``; ``lacks`` then says what would bring it. Evidence of one finding
may come from several sources, and each number says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.finding import PROBES, Framework, Lacking, Need, NotChecked, Place
from whyidle.monitor.core.host_class import AWAITS, HostClass
from whyidle.monitor.core.measure import SAMPLES, Measure
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import UNEXPLAINED, Slice
from whyidle.monitor.processes.process import JULIA
from whyidle.monitor.runs.estimate import BACKENDS, ORDER, SEEN, WHOLE, Running
from whyidle.monitor.signals.account import HostAccount, HostRow, account_of
from whyidle.monitor.signals.blended import (
    BESIDE_IDLE_GPU,
    BESIDE_OTHER_THREADS,
    BETWEEN_CALLS,
    ON_A_RANKS_THREAD,
    ON_OTHER_THREADS,
    ON_THIS_THREAD,
    OWN_WORK,
    blended,
    explained,
    together,
    without_work,
)
from whyidle.monitor.signals.cores import CoreAccount, Runner, cores_of, may_use
from whyidle.monitor.signals.feeding import Feeding
from whyidle.monitor.signals.loading import Busy, Loading, busy_workers, loading_of
from whyidle.monitor.signals.ranks import RankAccount, accounts_of, are_one_job
from whyidle.monitor.signals.recorded import Recorded, SeenGpu
from whyidle.monitor.signals.serving import judged, learns
from whyidle.monitor.signals.traced import LEAST_STEPS, Traced
from whyidle.monitor.signals.trust import Believed, believed

if TYPE_CHECKING:
    from whyidle.monitor.core.ranks import Ranks

# The agent sees these whole; where there is no trace they stand for the slice.
_WAITS: Final[dict[Slice, Metric]] = {part: ORDER[part] for part in SEEN}
# Of Julia whichever of its packages trains.
_FRAMEWORKS: Final[dict[str, Framework]] = {**PROBES, JULIA: "flux"}
_OF_PYTHON: Final = frozenset(
    {Need.INSIDE, Need.TRACE, Need.LONGER_TRACE, Need.GPU_TRACE, Need.FRAMES, Need.COMPILING}
)
# Names of calls that only one framework makes.
_MARKS: Final[tuple[tuple[Framework, str], ...]] = (
    ("pytorch", r"aten::.*|Optimizer\.step#.*|.*_MultiProcessingDataLoaderIter.*|ProfilerStep#.*"),
    ("tensorflow", r"ExecutorState::Process|EagerLocalExecute.*|tensorflow::.*"),
    ("jax", r"PjitFunction\(.*|PjRt.*|.*jax\.Array.*|ParseArguments|XlaModule:.*"),
)

# A shorter trace may lie within one part of a step, where it is not known how long steps are.
A_MOMENT_S: Final = 0.5
ONLY_A_TRACE: Final = "an estimate by counters does not tell it apart"

Target = Literal["file", "run"]
Device = Literal["cpu", "gpu"]
T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """All that is known of a job over some time."""

    target: str
    kind: Target = "run"
    # The newest first.
    traces: Sequence[Traced] = ()
    job: Recorded = field(default_factory=Recorded)
    # Where the time goes by the counters alone.
    estimate: Running | None = None
    # A recording that has ended: nothing more can be asked of the job.
    is_over: bool = False

    def __post_init__(self) -> None:
        """Put those who work in the place of a main thread that waits for requests."""
        object.__setattr__(self, "job", judged(self.job))

    # Sources -------------------------------------------------------------------------------------
    @cached_property
    def trace(self) -> Traced | None:
        """The newest trace that says something, as far as the counters let it."""
        newest, said = self._newest, self._believed
        return newest if newest is None or said is None else replace(newest, believed=said.account)

    @cached_property
    def _newest(self) -> Traced | None:
        """The same as it was taken."""
        return next((t for t in self.traces if t.is_meaningful and self._has_a_step(t)), None)

    @cached_property
    def _believed(self) -> Believed | None:
        """What is believed of the traces that the account rests on; ``None``: on none."""
        if self._newest is not None:
            return believed((self._newest,), self._newest.account, self.job)
        if not self._parts:
            return None
        return believed(self._parts, together([part.account for part in self._parts]), self.job)

    def _has_a_step(self, trace: Traced) -> bool:
        """Tell whether it is as long as one of the job's steps, where the job counts them."""
        if trace.steps:
            return True
        step = self.job.mean(m.JOB_STEP_P50)
        if step is not None:
            return trace.seconds >= step.value
        # Of a loop whose steps nobody knows a moment says less than the samples of all the time.
        return self.host is None or trace.seconds >= A_MOMENT_S

    @property
    def warnings(self) -> list[str]:
        """What a reader must know of the trace that everything rests on, and of its idle time."""
        # A file that says too little says why.
        alone = self.traces[0] if self.kind == "file" and self.traces else None
        trace = self.trace or alone
        said = [] if trace is None else list(trace.answer.get("warnings", ()))
        if self._blended is not None:
            # What is seen beside the trace explains what nothing in it did.
            said = [text for text in said if not text.startswith(UNEXPLAINED)]
        return said if self._believed is None else [*said, *self._believed.warnings]

    @cached_property
    def gpu_trace(self) -> Traced | None:
        """The same, where it is of a GPU."""
        trace = self.trace
        return trace if trace is not None and "gpu" in trace.kinds else None

    def lacks(self, need: Need, what: str = "") -> NotChecked:
        """Return the verdict of a rule that cannot judge."""
        if self.frameworks == ("flux",) and need in _OF_PYTHON:
            # No agent and no profiler of ours would bring it.
            return NotChecked(Need.IN_JULIA, what)
        return NotChecked(need, what)

    @property
    def sampled(self) -> HostAccount:
        """The account of the main thread's time; raises ``Lacking``."""
        return self.needed(self.host, Need.INSIDE)

    @property
    def whole_steps(self) -> Traced | None:
        """The newest trace of whole steps, whether it says much of them or not."""
        return next((each for each in self.traces if each.steps >= LEAST_STEPS), None)

    def whole_steps_on_gpu(self) -> Traced:
        """Return the trace of a GPU, of whole steps; raises ``Lacking``."""
        trace = self.needed(self.gpu_trace, Need.GPU_TRACE)
        return self.needed(trace if trace.steps >= LEAST_STEPS else None, Need.LONGER_TRACE)

    @property
    def of_steps(self) -> Need:
        """What would bring a number that is counted by the steps."""
        return Need.STEPS if self.job.inside else Need.INSIDE

    def needed(self, signal: T | None, need: Need, what: str = "") -> T:
        """Return a signal that a rule cannot judge without; raises ``Lacking``."""
        if signal is None:
            raise Lacking(self.lacks(need, what))
        return signal

    # The account ---------------------------------------------------------------------------------
    @cached_property
    def budget(self) -> BudgetJson | None:
        """Where the time goes, to be shown: by the trace, and by what the agent saw beside it.

        Without a trace as estimated; ``None``: nothing says so. Rules ask for a ``share``.
        """
        bare = self._bare_budget
        return None if bare is None else self._blended or bare

    @cached_property
    def shares(self) -> Mapping[Slice, float]:
        """The share of the time that it has of each slice; nothing where there is none."""
        slices = {} if self.budget is None else self.budget["slices"]
        total = sum(slices.values())
        return {part: slices.get(part, 0) / total for part in Slice} if total else {}

    @cached_property
    def _bare_budget(self) -> BudgetJson | None:
        """The same by the traces or the counters alone."""
        if self.trace is not None:
            return self.trace.account
        if self._believed is not None:
            return self._believed.account
        estimate = self.estimate
        if estimate is None or not (estimate.slices or self.meaning):
            return None
        slices = estimate.slices or dict.fromkeys(Slice, 0) | {Slice.IDLE_UNKNOWN: WHOLE}
        total = sum(slices.values())
        named = {str(part): ns for part, ns in slices.items()}
        return {"total_ns": total, "steps": 0, "slices": named, "details": {}}

    @cached_property
    def _parts(self) -> tuple[Traced, ...]:
        """Traces that are shorter than a step each: random parts of the loop, if a step in all."""
        step = self.job.mean(m.JOB_STEP_P50)
        if self._newest is not None or step is None:
            return ()
        some = tuple(t for t in self.traces if t.shows_work)
        return some if sum(t.seconds for t in some) >= step.value else ()

    @cached_property
    def _blended(self) -> BudgetJson | None:
        """The budget with what the agent saw beside it; ``None``: nothing more."""
        bare = self._bare_budget
        if bare is None or self.kind != "run":
            return None
        more = blended(bare, self.job, on_gpu=self.device == "gpu") if self._traced else None
        if self.host is None or not self.meaning:
            return more
        host = self.host.within(1.0 - self.idles)
        said = explained(more or bare, host, self.meaning, self._beside or 0.0) or more
        serving = self.job.serving
        return said if serving is None else without_work(said or bare, self.idles, serving.waits)

    @property
    def _traced(self) -> bool:
        return self.trace is not None or bool(self._parts)

    @property
    def works_ahead(self) -> bool:
        """Whether other threads of a CPU compute what the main thread has launched.

        JAX does so, and TensorFlow where it was told to; else the calling thread computes.
        """
        if self.device != "cpu":
            return False
        return self.uses("jax") or self.fact("works_ahead") is True

    @property
    def meaning(self) -> Mapping[HostClass, Slice]:
        """What the main thread keeps the device from, by what it was found at."""
        if self.host is None:
            return {}
        if self._traced:
            return BETWEEN_CALLS
        if self.works_ahead:
            return ON_OTHER_THREADS if self._beside is None else BESIDE_OTHER_THREADS
        if self.device == "cpu":
            return ON_A_RANKS_THREAD if (self.world_size or 1) > 1 else ON_THIS_THREAD
        is_known = self.estimate is not None and Slice.COMPUTE in self.estimate.measured
        return BESIDE_IDLE_GPU if is_known else {}

    @property
    def _beside(self) -> float | None:
        """The part of the main thread's own work in which others compute, without a trace.

        As much as these run, beyond the time in which it waits for them; ``None``: not known.
        """
        if self._traced or self.host is None or self.computing is None:
            return None
        runs = min(1.0, self.computing)
        works = self.host.share(*OWN_WORK)
        waits = self.host.share(*AWAITS, HostClass.COMPILE)
        return min(1.0, max(0.0, runs - waits) / works) if works else 0.0

    @property
    def budget_source(self) -> str | None:
        """Who says where the time goes."""
        if self._traced:
            more = "" if self._blended is None else ", with what the agent saw"
            names = [t.source for t in self._parts] if self.trace is None else [self.trace.source]
            if self.kind == "file" and self.budget is not None and (steps := self.budget["steps"]):
                more = f", its {steps} whole steps" if steps > 1 else ", its one whole step"
            return f"{'parts of a step in ' * bool(self._parts)}{', '.join(names)}{more}"
        return None if self.budget is None else "estimate"

    @cached_property
    def not_measured(self) -> Mapping[Slice, str]:
        """The parts of an estimate that are not measured, and why: their time is in the unknown."""
        budget = self.budget
        if self._traced or self.estimate is None or budget is None:
            return {}
        told = {Slice.IDLE_UNKNOWN, *self.estimate.measured}
        silent = [part for part in Slice if not budget["slices"][part] and part not in told]
        why = {part: self.job.unknown.get(ORDER[part]) for part in silent if part in ORDER}
        return {part: why.get(part) or ONLY_A_TRACE for part in silent}

    def share(self, part: Slice) -> Measure | None:
        """Return the share of the time that a slice takes.

        What the agent measured the whole time counts where it saw more than a short trace did.
        """
        traced = None if self.trace is None else self.trace.share(part)
        waits = self.job.mean(_WAITS[part]) if part in _WAITS else None
        if traced is None or waits is None:
            return traced or waits
        return waits if waits.value > traced.value else traced

    @property
    def not_computing(self) -> float:
        """The most of the time in which no GPU computes: no fix beside it gives back more."""
        compute = self.share(Slice.COMPUTE) if self.device == "gpu" else None
        return 1.0 if compute is None else 1 - compute.value

    @cached_property
    def host(self) -> HostAccount | None:
        """Where the main thread's time goes; ``None``: it was not sampled."""
        job = self.job
        return account_of(job.stacks, by_time=bool(job.warm_s), reads_wait=not job.computes_at_once)

    @property
    def rows(self) -> Sequence[HostRow]:
        """The rows of that; none where it was not sampled."""
        return () if self.host is None else self.host.rows

    @cached_property
    def core_account(self) -> CoreAccount | None:
        """Who runs on the cores that the job may use; ``None``: not measured."""
        return cores_of(self.job)

    @cached_property
    def computing(self) -> float | None:
        """The cores on which other threads of its process compute; ``None``: not measured.

        Who keeps Python's lock from the main thread runs Python meanwhile, and computes nothing.
        """
        if self.core_account is None:
            return None
        locked = 0.0 if self.host is None else self.host.share(HostClass.LOCK)
        return max(0.0, self.core_account.runs[Runner.THREADS] - locked)

    @cached_property
    def loading(self) -> Loading | None:
        """What loading spends its time on; ``None``: nobody was seen at it."""
        return loading_of(self.job, self.feeding)

    @cached_property
    def feeding(self) -> Feeding:
        """Which work of the main thread makes what the steps compute on."""
        return Feeding(self.host)

    @cached_property
    def loader_workers(self) -> tuple[Busy, ...]:
        """How much of its time each process works that the job started, the busiest first."""
        return busy_workers(self.job)

    # Who it is -----------------------------------------------------------------------------------
    @cached_property
    def frameworks(self) -> tuple[Framework, ...]:
        """The frameworks in use, as the agent or the trace says."""
        facts = self.job.facts
        named = [_FRAMEWORKS[probe] for probe in facts if probe in _FRAMEWORKS]
        of_tensorflow = facts.get("tensorflow", {})
        if len(named) > 1 and not (of_tensorflow.get("functions") or of_tensorflow.get("backend")):
            # Jobs of the others often read their data with it, and it computes nothing.
            named = [name for name in named if name != "tensorflow"]
        if len(named) > 1 and facts.get("jax", {}).get("backend") is None:
            # Keras on PyTorch imports it where it is installed, and uses none of its devices.
            named = [name for name in named if name != "jax"]
        return tuple(named) or self._traced_frameworks

    @cached_property
    def _traced_frameworks(self) -> tuple[Framework, ...]:
        """Those that the trace shows at work; none without a trace."""
        trace = self.trace
        if trace is None:
            return ()
        seen = tuple(name for name, like in _MARKS if trace.calls(like))
        # A Kineto file whose names say nothing is PyTorch's all the same.
        return seen or (("pytorch",) if trace.answer["format"] == "kineto" else ())

    def uses(self, framework: Framework) -> bool:
        """Tell whether the job uses a framework."""
        return framework in self.frameworks

    def computes(self, framework: Framework) -> bool:
        """Tell whether it computes with it: of several some often only read its data."""
        at_work = self._traced_frameworks or self.frameworks
        return self.uses(framework) and framework in at_work

    @cached_property
    def device(self) -> Device | None:
        """What it computes on."""
        if self.trace is not None:
            return "gpu" if self.trace.kinds & {"gpu", "tpu"} else "cpu"
        backend = self.job.fact("backend")
        if backend is None and str(self.job.facts.get("torch", {}).get("version")).endswith("+cpu"):
            # Before anything has trained it is known of a build that can do nothing else.
            backend = "cpu"
        return BACKENDS.get(backend) if isinstance(backend, str) else None

    @cached_property
    def gpus(self) -> tuple[SeenGpu, ...]:
        """The GPUs of the job."""
        return tuple(gpu for gpu in self.job.gpus if gpu.owned)

    def fact(self, name: str) -> Any:
        """Return what a framework says of itself; ``None``: it does not say."""
        return self.job.fact(name)

    # Steps ---------------------------------------------------------------------------------------
    @property
    def serves(self) -> bool:
        """Whether it answers requests, or works at orders, and does not train."""
        return self.job.serving is not None and not self.job.serving.trains

    @property
    def idles(self) -> float:
        """The part of the time in which it has nothing to do; the host's account is of the rest."""
        return 0.0 if self.job.serving is None else self.job.serving.idle or 0.0

    @cached_property
    def paced_by(self) -> Literal["steps", "time"] | None:
        """What gets faster: its steps, the job where none were seen; ``None``: neither is known."""
        if self.serves:
            return None
        counted = self.steps_per_s or self.step_s or self.job.steps or self.job.drift
        if counted or any(trace.steps for trace in self.traces):
            return "steps"
        return "time" if learns(self.job.stacks) else None

    @cached_property
    def steps_per_s(self) -> Measure | None:
        """Steps a second, as counted in the job."""
        found = self.job.mean(m.JOB_STEPS)
        return found if found is not None and found.value > 0 else None

    @cached_property
    def step_s(self) -> Measure | None:
        """How long a step takes."""
        counted = self.job.mean(m.JOB_STEP_P50)
        if counted is not None:
            return counted
        return None if self.trace is None else self.trace.step_s

    def per_step(self, metric: Metric) -> Measure | None:
        """Return a metric of the main process that is per second, per step instead."""
        rate, unit = self.job.mean(metric), "1/step"
        if metric.unit == "bytes_per_second":
            unit = "bytes/step"
        return None if rate is None else rate.per(self.steps_per_s or self._traced_pace, unit)

    @cached_property
    def _traced_pace(self) -> Measure | None:
        step = None if self.trace is None else self.trace.step_s
        if self.trace is None or step is None or not step.value:
            return None
        return self.trace.measure(1 / step.value, "per_second")

    @property
    def syncs_per_step(self) -> Measure | None:
        """Values read back from the device in a step, outside of optimizers."""
        return self.per_step(m.PROCESS_SYNCS)

    # Its ranks -----------------------------------------------------------------------------------
    @cached_property
    def rank_accounts(self) -> tuple[RankAccount, ...]:
        """Where each rank's main thread was, where several were sampled."""
        return accounts_of(self.job.ranks_seen)

    @cached_property
    def ranks(self) -> Ranks | None:
        """Who keeps the others waiting; ``None``: no two ranks were seen.

        By the newest trace of several ranks, else by what was seen of them live.
        """
        if self._ranks_traced is not None:
            return self._ranks_traced.ranks
        accounts = self.rank_accounts
        if len(accounts) < 2 or not are_one_job(accounts, self.world_size):
            return None
        # It needs numpy, which takes time to come.
        from whyidle.monitor.signals.late_rank import compared  # noqa: PLC0415

        return compared(accounts, ahead=self.runs_ahead)

    @property
    def ranks_source(self) -> str:
        """Who says so."""
        return SAMPLES if self._ranks_traced is None else self._ranks_traced.source

    def measure_of_ranks(self, value: float, unit: str) -> Measure:
        """Return a number about the ranks, over the time of the trace or of the samples."""
        if self._ranks_traced is not None:
            return self._ranks_traced.measure(value, unit)
        return self.job.measure(value, unit, SAMPLES)

    @property
    def where_late(self) -> tuple[Place, ...]:
        """The line that a trace gives the late rank's lateness to; none where it gives none."""
        answer = None if self._ranks_traced is None else self._ranks_traced.answer.get("ranks")
        late = None if answer is None else answer["straggler"]
        at = None if late is None or late["why"] is None else late["why"]["where"]
        return () if at is None else (Place(at["file"], at["line"], at["function"]),)

    @cached_property
    def _ranks_traced(self) -> Traced | None:
        return next((trace for trace in self.traces if trace.ranks is not None), None)

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has, as it says itself."""
        known = (self.fact("world_size"), self.fact("processes"))
        return max((n for n in known if isinstance(n, int)), default=None)

    @property
    def runs_ahead(self) -> bool:
        """Whether the host launches work before what it launched last is done."""
        return self.device != "cpu" or not self.computes("pytorch")

    @property
    def loaders(self) -> list[Mapping[str, Any]]:
        """The data loaders, as PyTorch's probe describes them."""
        found = self.job.facts.get("torch", {}).get("loaders")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    @property
    def cores(self) -> Measure | None:
        """The cores that the job may use: those of the machine, or fewer by mask or limit."""
        return may_use(self.job)

    # Where ---------------------------------------------------------------------------------------
    def where_read(self, most: int = 20) -> tuple[Place, ...]:
        """Return the lines that read values from the device, with their share of the time."""
        whole = sum(read.ns for read in self.job.reads) or 1
        sync = self.job.mean(m.JOB_SYNC_WAIT)
        return tuple(
            Place(r.file, r.line, r.function, None if sync is None else sync.value * r.ns / whole)
            for r in self.job.reads[:most]
        )

    def where_compiled(self, function: str | None = None, most: int = 3) -> tuple[Place, ...]:
        """Return the lines that had something compiled, of one function if wanted."""
        return tuple(
            Place(c.file, c.line, c.function)
            for c in self.job.compiled
            if c.file and c.line and (function is None or c.function == function)
        )[:most]

    # Power ---------------------------------------------------------------------------------------
    @cached_property
    def watts(self) -> Measure | None:
        """What the job's GPUs draw together."""
        draws = [g.means.get(m.GPU_POWER) for g in self.job.gpus if g.owned]
        known = [draw for draw in draws if draw is not None]
        if not known or len(known) != len(draws):
            return None
        return self.job.measure(sum(known), "W", "nvml")
