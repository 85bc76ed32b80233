"""Two sides into what is different between them: the one way, for every view."""

from __future__ import annotations

from whyidle.monitor.compare import crowd, faults, parts, setup
from whyidle.monitor.compare.pace import Paces, paces, took, verdict
from whyidle.monitor.compare.parts import SECOND_NS, Work
from whyidle.monitor.compare.result import Comparison, Verdict
from whyidle.monitor.compare.sides import Side


def compare(a: Side, b: Side) -> Comparison:
    """Return everything that is different in B beside A."""
    found = paces(a, b)
    ours, theirs = _works(a, b, found)
    differences = setup.differences(a, b)
    copies, why_no_copies = parts.transfers(ours, theirs)
    judged, why_uncertain = _judged(a, b, found)
    findings = faults.faults(a.window, b.window)
    return Comparison(
        a=a,
        b=b,
        verdict=judged,
        why_uncertain=why_uncertain,
        per=found.per,
        why_per=None if found.per == "step" else found.why,
        steps=found.steps,
        why_no_steps=found.why if found.steps is None else None,
        took_a=None if a.pace is None else took(a.pace),
        took_b=None if b.pace is None else took(b.pace),
        slices=parts.slices(ours, theirs),
        kernels=parts.kernels(ours, theirs),
        memory=parts.memory(a, b),
        transfers=copies,
        why_no_transfers=why_no_copies,
        energy=parts.energy(ours, theirs, found.per),
        faults=findings,
        setup=differences,
        warnings=setup.warnings(a, b, differences, findings.of_neighbours),
    )


def _judged(a: Side, b: Side, found: Paces) -> tuple[Verdict, str | None]:
    """Say what the speed-up means; of a machine that was not the same it means nothing yet."""
    judged = verdict(found.steps)
    if judged is not Verdict.UNKNOWN and crowd.waits(a, b) is not None:
        return Verdict.UNCERTAIN, crowd.NOT_THE_SAME
    return judged, None


def _works(a: Side, b: Side, found: Paces) -> tuple[Work, Work]:
    """Return both with the time of a piece of work."""
    steps = found.steps
    if steps is None:
        return Work(a, SECOND_NS, SECOND_NS), Work(b, SECOND_NS, SECOND_NS)
    mean = steps.mean or steps.median
    in_samples = found.per == "sample"
    one, two = (each.batch if in_samples else 1.0 for each in (a, b))
    return (
        Work(a, steps.a.middle, mean.a.middle, one),
        Work(b, steps.b.middle, mean.b.middle, two),
    )
