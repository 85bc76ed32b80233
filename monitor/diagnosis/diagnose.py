"""What is wrong in a window: all rules, causes before symptoms, the most important first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from msgspec import UNSET

from whyidle.monitor import fixes, rules
from whyidle.monitor.core.contracts.diagnosis import (
    CalledPlaceJson,
    CoresJson,
    DiagnosisJson,
    EvidenceJson,
    FindingJson,
    FixJson,
    HostJson,
    HostRowJson,
    NotCheckedJson,
    PhaseJson,
    ProcessJson,
    ServingJson,
    VerdictJson,
)
from whyidle.monitor.core.finding import (
    Contradiction,
    Fix,
    Found,
    Framework,
    Need,
    NotChecked,
    Severity,
    Verdict,
    at,
)
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.pace import breathe
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.claims import account
from whyidle.monitor.diagnosis.costs import cost_of, overhead
from whyidle.monitor.diagnosis.device_activity import busy
from whyidle.monitor.diagnosis.needs import narrowed_by, needs, why_no_budget
from whyidle.monitor.diagnosis.ranking import EXPLAINS, Finding, arbitrated
from whyidle.monitor.diagnosis.ranks import ranks_json
from whyidle.monitor.diagnosis.verdict import UNJUDGED, Headline, headline, led, within
from whyidle.monitor.runs.stacks import place_json, summed
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.signals.account import HostAccount, HostRow, by_line
from whyidle.monitor.signals.cores import CoreAccount
from whyidle.monitor.signals.opening import of_run
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.window import Window

NO_GPU: Final = (
    "no GPU computes for it, as far as is known, and in no trace operators take most of the time"
)
NOT_SAMPLED: Final = "the main thread was not sampled: no agent was inside"
NO_THREADS: Final = "its main thread only waits, and the threads that work were not sampled"
NO_RANKS: Final = "no two ranks were seen: attach the process that started them"
NO_CORES: Final = "the CPU time of the job's processes was not read"
NO_WAITS: Final = "the samples do not say whether the thread waited"
# Smaller parts of the host's time say nothing; nor do more lines of a phase.
MOST_ROWS: Final = 60
MOST_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that the rules have to say of a window."""

    window: Window
    findings: tuple[Finding, ...]
    not_checked: tuple[tuple[str, NotChecked], ...]
    # A defect of ours in one rule costs that rule alone.
    failed: Mapping[str, str] = field(default_factory=dict)
    # Rules whose finding was dropped: what it rests on cannot all be true.
    contradictions: Mapping[str, str] = field(default_factory=dict)
    # What a person in a hurry reads.
    headline: Headline = UNJUDGED

    @property
    def is_known(self) -> bool:
        """Whether it is known where most of the time goes: only then can nothing be wrong."""
        shares = self.window.shares
        # Who has nothing to do is idle, for a reason that is known.
        return bool(shares) and 2 * (shares[Slice.IDLE_UNKNOWN] - self.window.idles) < 1

    @property
    def unexplained(self) -> dict[str, float]:
        """The slices that are no work, and that no finding is about, with their shares."""
        named = {each.found.slice for each in self.findings if each.found.gain is not None}
        left = {
            str(part): share - (self.window.idles if part is Slice.IDLE_UNKNOWN else 0.0)
            for part, share in self.window.shares.items()
            if part not in named and part is not Slice.COMPUTE
        }
        return {part: n for part, n in summed(left.items()).items() if n >= EXPLAINS}

    @property
    def worst(self) -> Severity | None:
        """The most severe there is."""
        return min((f.severity for f in self.findings), key=lambda s: s.rank, default=None)

    def fixes(self, finding: Finding) -> dict[Framework, Fix]:
        """Return the fixes that concern this job; all, where its framework is not known."""
        each = finding.rule.fixes if finding.found.fixes is None else finding.found.fixes
        wanted = finding.found.frameworks or self.window.frameworks
        return {name: fix for name, fix in each.items() if name in wanted or not wanted}


def diagnose(window: Window, only: Sequence[str] = ()) -> Diagnosis:
    """Ask every rule, or some; the most important finding comes first."""
    verdicts: dict[str, Verdict] = {}
    contradictions: dict[str, str] = {}
    broken = rules.loaded().broken
    failed = {name: why for name, why in broken.items() if not only or name in only}
    loaded = rules.load()
    for name, rule in loaded.items():
        if only and name not in only:
            continue
        breathe()
        try:
            verdicts[name] = rule.judge(window)
        except Contradiction as error:
            contradictions[name] = str(error)
            verdicts[name] = NotChecked(Need.LONGER, f"its signals contradict each other: {error}")
        except Exception as error:  # noqa: BLE001  the other rules can still judge
            failed[name] = f"{type(error).__name__}: {error}"
    rows = account(window)
    found = [
        Finding(loaded[name], verdict, measured(window, verdict))
        for name, verdict in verdicts.items()
        if isinstance(verdict, Found) and verdict.is_worth_a_line
    ]
    judged = Diagnosis(
        window,
        tuple(arbitrated(found, rows)),
        tuple((name, v) for name, v in verdicts.items() if isinstance(v, NotChecked)),
        failed,
        contradictions,
    )
    said = headline(window, rows, judged.findings, is_known=judged.is_known)
    return replace(judged, findings=led(judged.findings, said.finding), headline=said)


def measured(window: Window, found: Found) -> float | None:
    """Return how much of the time the account has of a finding, as no useful work.

    What is of no slice is at most what does not compute, at its lines.
    """
    shares = window.shares
    if not shares or found.slice is Slice.COMPUTE:
        return None
    if found.slice is not None:
        return shares[found.slice]
    return min(1 - shares[Slice.COMPUTE], sum(place.share or 0.0 for place in found.where))


def concluded(path: Path, summary: RunSummary) -> RunSummary:
    """Return the summary of a run with what is wrong with it: a defect here must not cost it."""
    try:
        found = as_json(diagnose(of_run(path, str(summary.run.id))))
    except Exception as error:  # noqa: BLE001  the recording is worth showing without
        return replace(summary, not_diagnosed=f"{type(error).__name__}: {error}")
    return replace(summary, diagnosis=found)


def as_json(diagnosis: Diagnosis) -> DiagnosisJson:
    """Return the answer of ``monitor diagnose --json``."""
    window, host = diagnosis.window, host_json(diagnosis.window)
    findings = findings_json(diagnosis, host)
    return DiagnosisJson(
        target=window.target,
        verdict=verdict_json(diagnosis, findings),
        budget=window.budget,
        budget_source=window.budget_source,
        not_measured={str(part): why for part, why in window.not_measured.items()},
        frameworks=list(window.frameworks),
        is_known=diagnosis.is_known,
        unexplained={part: round(n, 4) for part, n in diagnosis.unexplained.items()},
        warnings=window.warnings,
        host=host,
        # Of a server nothing is known to be a step.
        phases=[] if window.host is None or window.serves else phases_json(window.host),
        ranks=(ranks := ranks_json(window)),
        compute=(works := busy(window)),
        overhead=overhead(window),
        findings=findings,
        not_checked=[
            NotCheckedJson(rule=name, needs=needs(window, verdict))
            for name, verdict in diagnosis.not_checked
        ],
        failed=dict(diagnosis.failed),
        unknown={
            **({} if window.budget else {"budget": why_no_budget(window)}),
            **({} if works else {"compute": NO_GPU}),
            **({} if ranks else {"ranks": NO_RANKS}),
        },
    )


def verdict_json(diagnosis: Diagnosis, findings: Sequence[FindingJson]) -> VerdictJson:
    """Return the verdict of the answer."""
    said = diagnosis.headline
    rule = None if said.finding is None else said.finding.rule.id
    own = (fix for each in findings if each.rule == rule for fix in each.fixes.values())
    place = "".join(f", at {at(each.file, each.line)}" for each in said.where[:1])
    rest = f"; {said.rest}" if said.rest else ""
    job = diagnosis.window.job
    who = None if job.is_named or job.pid is None else _process(job.pid, job.title, job.role)
    whose = "" if who is None else f"Process {who.pid}{f' ({who.title})' * bool(who.title)}: "
    return VerdictJson(
        text=f"{whose}{said.text_alone.rstrip('.')}{place}{rest}.",
        what=f"{whose}{said.text.rstrip('.')}{rest}.",
        process=UNSET if who is None else who,
        share=None if said.share is None else round(said.share, 4),
        where=[
            place_json(place, None if place.share is None else round(place.share, 4))
            for place in (*said.where, *said.rest_at)
        ],
        fix=next(own, None),
        rule=rule,
        within=[
            place_json(place, round(place.share or 0.0, 4))
            for place in within(diagnosis.window, said)
        ],
    )


def _process(pid: int, title: str | None, role: str | None) -> ProcessJson | None:
    """Return which process of a job of several parts it is; ``None``: of one like others."""
    return None if role is None else ProcessJson(pid=pid, title=title, role=role)


def host_json(window: Window) -> HostJson:
    """Return where the time of the threads goes that are judged, and who has the cores."""
    account, cores, serving = window.host, window.core_account, window.job.serving
    said = None
    if serving is not None:
        idle = None if serving.idle is None else round(serving.idle, 4)
        said = ServingJson(
            waits=serving.waits, idle=idle, by_threads=serving.by_threads, trains=serving.trains
        )
    unknown = {} if cores else {"cores": NO_CORES}
    if account is None:
        return HostJson(
            samples=0, rows=[], serving=said, cores=cores_json(cores),
            unknown={"rows": NO_THREADS if said else NOT_SAMPLED, **unknown},
        )  # fmt: skip
    # The largest rows, and what the others take together.
    rest = sum(row.share for row in account.rows[MOST_ROWS:])
    more = [HostRow((), HostClass.UNCLEAR, rest)] if rest else []
    return HostJson(
        samples=int(account.samples),
        rows=[
            HostRowJson(
                doing=str(row.doing),
                share=round(row.share, 4),
                chain=[place_json(line) for line in row.frames],
            )
            for row in (*account.rows[:MOST_ROWS], *more)
        ],
        serving=said,
        cores=cores_json(cores),
        unknown=unknown if account.knows_waits else {"waits": NO_WAITS, **unknown},
    )


def phases_json(account: HostAccount) -> list[PhaseJson]:
    """Return what the steps take, and what a loop does besides, with the lines that begin it."""
    rows: dict[Phase, list[HostRow]] = {phase: [] for phase in account.phases}
    for row in account.rows:
        rows[row.phase if row.phase in rows else Phase.STEP].append(row)
    return [
        PhaseJson(
            name=str(phase),
            share=round(share, 4),
            where=[
                place_json(place, round(place.share or 0.0, 4))
                for place in by_line(rows[phase], lambda row: row.begins or row.innermost)
            ][:MOST_LINES],
        )
        for phase, share in account.phases.items()
    ]


def cores_json(account: CoreAccount | None) -> CoresJson | None:
    """Return who runs on the cores that the job may use."""
    if account is None:
        return None
    return CoresJson(
        total=round(account.cores, 3),
        runs={str(who): round(cores, 3) for who, cores in account.runs.items()},
        lines=[place_json(x, round(x.share, 4)) for x in account.lines[:MOST_ROWS]],
    )


def findings_json(diagnosis: Diagnosis, host: HostJson) -> list[FindingJson]:
    """Return the findings of the answer, with advice for the user's own code."""
    found = [finding_json(diagnosis, each) for each in diagnosis.findings]
    return fixes.advised(found, host.rows, fixes.by_rule(), cores_of(diagnosis.window))


def cores_of(window: Window) -> int:
    """Return how many cores the job may use; where that is not known, how many we may."""
    cores = window.cores
    return len(os.sched_getaffinity(0)) if cores is None else int(cores.value)


def finding_json(diagnosis: Diagnosis, finding: Finding) -> FindingJson:
    """Return one finding, with its rule's advice."""
    found, window = finding.found, diagnosis.window
    host = window.host
    # Of a server it is time of its requests, as long as those are not counted.
    lost = None if window.serves else found.gain
    paced_by = finding.rule.paced_by if window.paced_by == "steps" else "time"
    return FindingJson(
        rule=finding.rule.id,
        severity=str(finding.severity),
        title=found.title or finding.rule.title,
        confidence=str(found.confidence),
        slice=None if found.slice is None else str(found.slice),
        lost_share=None if lost is None else [round(lost.low, 4), round(lost.high, 4)],
        paced_by=paced_by,
        speedup=[round(s, 3) for s in lost.speedup] if lost and window.paced_by else None,
        expected=round(1 / (1 - finding.lost), 3) if lost and window.paced_by else None,
        narrowed_by=(lost and narrowed_by(window, finding.rule.id, lost)) or UNSET,
        evidence=[
            EvidenceJson(
                name=e.name,
                value=e.value,
                unit=e.unit,
                source=e.source,
                age_s=e.age_s,
                window_s=e.window_s,
            )
            for e in found.evidence
        ],
        where=[
            CalledPlaceJson(
                file=place.file,
                line=place.line,
                function=place.function,
                share=place.share,
                chain=[]
                if host is None
                else [place_json(line) for line in host.callers(place.file, place.line)],
            )
            for place in found.where
        ],
        fixes={
            name: FixJson(
                text=fix.text,
                code=fix.example,
                where=UNSET if fix.at is None else place_json(fix.at),
            )
            for name, fix in diagnosis.fixes(finding).items()
        },
        documents=list(finding.rule.documents),
        also_seen=list(finding.also_seen),
        behind=finding.behind,
        energy=cost_of(None if lost is None else finding.lost, window),
    )
