"""A finding in words, made once from its JSON: each screen, page and format is a template of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.monitor.core.contracts.diagnosis import (
    DiagnosisJson,
    EvidenceJson,
    FindingJson,
    FixJson,
    PlaceJson,
)
from whyidle.monitor.core.finding import (
    EXAMPLE,
    FRAMEWORKS,
    Confidence,
    Severity,
    is_uncertain,
    times,
)
from whyidle.monitor.libraries.frames import package_of
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.numbers import amount, money, show

MOST_CALLERS: Final = 3
# The published articles behind some of the rules, by the names that these cite, and whose they are.
DOCUMENTS: Final = {
    "D1": ("GPU use in Flax: causes and cures", {"jax"}),
    "D2": ("GPU memory and performance in Flux.jl", {"flux"}),
    "D3": ("Efficient parallel training with JAX", {"jax"}),
    "D4": ("Seven transformations for fast JAX", {"jax"}),
    "D5": ("90% GPU utilization with PyTorch and TensorFlow", {"pytorch", "tensorflow"}),
}
_FASTER: Final = {
    "steps": "A step gets",
    "samples": "Samples come",
    "time": "The job gets",
}


@dataclass(frozen=True, slots=True)
class EvidenceText:
    """A measured number: its name, its value, and where it comes from; ``aged``: and how old."""

    name: str
    value: str
    origin: str
    aged: str

    @property
    def words(self) -> str:
        """The number alone."""
        return f"{self.name}: {self.value}"


@dataclass(frozen=True, slots=True)
class PlaceText:
    """A line of the user's: where it is, in which function, and its share of the time."""

    json: PlaceJson
    at: str
    function: str
    share: str

    @property
    def words(self) -> str:
        """All of it."""
        return f"{self.at} in {self.function}{self.share and f', {self.share}'}"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to change."""

    # For which frameworks of the job; empty: for all that it has.
    framework: str
    text: str
    code: str

    @property
    def words(self) -> str:
        """All of it but the code."""
        return f"{self.framework}: {self.text}" if self.framework else self.text


@dataclass(frozen=True, slots=True)
class FindingText:
    """One finding, said."""

    rule: str
    severity: str
    title: str
    # How it is known, where it was not measured.
    unsure: str
    # What the fix gives back; ``None``: the lost time is not known.
    gain: str | None
    factor: str
    # The most telling first.
    evidence: tuple[EvidenceText, ...]
    places: tuple[PlaceText, ...]
    # Who called the first of them; empty where that was not seen.
    callers: str
    remedies: tuple[Remedy, ...]
    documents: tuple[str, ...]
    # What they are called, for people; empty where it is our own.
    references: tuple[str, ...]
    also_seen: tuple[str, ...]

    @property
    def more(self) -> str:
        """What to type for the rest."""
        return f"monitor rules {self.rule}"

    def sentences(self) -> Iterator[str]:
        """Yield what was found, on what grounds, and what to change, for code hosts."""
        if self.gain is not None:
            yield self.gain
        yield from (f"{e.words} ({e.origin})" for e in self.evidence)
        for place in self.places:
            yield f"at {place.words}"
            if place is self.places[0] and self.callers:
                yield self.callers
        for remedy in self.remedies:
            yield remedy.words
            yield from remedy.code.splitlines()
        yield f"More: {self.more}"


def of(finding: FindingJson, shown: Callable[[str], str] = str) -> FindingText:
    """Put a finding in words; ``shown`` writes a path as its reader knows it."""
    kind = finding.confidence
    where = finding.where
    return FindingText(
        rule=finding.rule,
        severity=finding.severity,
        title=printable(finding.title),
        unsure="" if kind == Confidence.MEASURED else str(kind),
        gain=gain(finding),
        factor=factor(finding.speedup, finding.expected),
        evidence=tuple(map(_evidence, finding.evidence)),
        places=tuple(place(each, shown) for each in where),
        callers=called_by(where[0].chain) if where else "",
        remedies=_remedies(finding),
        documents=tuple(finding.documents),
        references=tuple(titles(finding.documents, finding.fixes)),
        also_seen=tuple(finding.also_seen),
    )


def _remedies(finding: FindingJson) -> tuple[Remedy, ...]:
    """Return each change once: what is the same for several frameworks is said for all of them."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, fix in finding.fixes.items():
        names.setdefault((fix.text, fix.code), []).append(framework(name))
    several = len(names) > 1
    return tuple(
        Remedy(" and ".join(some) if several else "", printable(text), code)
        for (text, code), some in names.items()
    )


def titles(documents: Sequence[str], frameworks: Collection[str]) -> Iterator[str]:
    """Yield the titles of the documents that a finding cites, each once, of these frameworks."""
    cited = dict.fromkeys(document.split()[0] for document in documents)
    known = (DOCUMENTS[each] for each in cited if each in DOCUMENTS)
    yield from (title for title, whose in known if whose & {*frameworks})


def _evidence(evidence: EvidenceJson) -> EvidenceText:
    """Say where a number comes from; what is kept is read when its age is another."""
    window, age = evidence.window_s, evidence.age_s
    over = "" if window is None else f", over {amount(window, 's')}"
    origin = printable(f"{evidence.source}{over}")
    old = "" if age is None or age < 1 else f", {amount(age, 's')} ago"
    value = printable(amount(evidence.value, evidence.unit))
    return EvidenceText(printable(evidence.name), value, origin, f"{origin}{old}")


def place(said: PlaceJson, shown: Callable[[str], str] = str) -> PlaceText:
    """Put a line in words; of some faults only the file is known."""
    line = f":{said.line}" if said.line else ""
    share = "" if said.share is None else f"{said.share:.0%}"
    at = printable(f"{shown(said.file)}{line}")
    return PlaceText(said, at, printable(said.function), share)


def short(said: PlaceJson) -> str:
    """Return a line by the name of its file, for places with little room."""
    return place(said, lambda file: Path(file).name).at


def in_function(said: PlaceJson) -> str:
    """Return a line by the name of its file, and the function it is in."""
    return f"{short(said)} in {printable(said.function)}"


def called_there(said: PlaceJson) -> str:
    """Return a function of a library, whose it is, and the part of the time it was found in."""
    much = "" if said.share is None else f" {said.share:.0%}"
    whose = package_of(said.file) or Path(said.file).name
    return f"{printable(said.function)} of {printable(whose)}{much}"


def verdict(answer: DiagnosisJson) -> list[str]:
    """Return the verdict in up to four lines: what, where, in what, what to do for what gain."""
    said, by = answer.verdict, of_verdict(answer)
    fix = "" if said.fix is None else to_do(said.fix, said.where)
    gives = "" if by is None else factor(by.speedup, by.expected)
    do = ": ".join(filter(None, [fix, gives]))
    lost = [f.lost_share for f in answer.findings if f.severity != Severity.INFO]
    # Else what stands below reads as the reason of what stands above.
    is_other = by is None and lost and all(x is not None and x[1] < (said.share or 0) for x in lost)
    rest = ["What is found below is about other, smaller parts"] * bool(is_other)
    # The line that computes most is named in the sentence itself.
    what = said.what or said.text
    where = [x for x in said.where[:1] if not re.search(rf" at {re.escape(short(x))}(?!\d)", what)]
    return [
        printable(what),
        *map(in_function, where),
        *(
            [f"the main thread there: {', '.join(map(called_there, said.within))}"]
            * bool(said.within)
        ),
        *([f"→ {do}"] if do else []),
        *rest,
    ]


def of_verdict(answer: DiagnosisJson) -> FindingJson | None:
    """Return the finding that the verdict is about."""
    return next((each for each in answer.findings if each.rule == answer.verdict.rule), None)


def called_by(lines: Sequence[PlaceJson]) -> str:
    """Say who called a line, from the innermost out; empty where that was not seen."""
    chain = [f"{p.function} at {short(p)}" for p in lines]
    return printable(f"called by {', '.join(chain[:MOST_CALLERS])}") if chain else ""


def framework(name: str) -> str:
    """Return how a framework writes its own name."""
    return next((words for each, words in FRAMEWORKS.items() if each == name), name)


def gain(finding: FindingJson) -> str | None:
    """Say what the fix gains; ``None`` if the lost time is unknown."""
    if not finding.lost_share:
        return None
    low, high = finding.lost_share
    if finding.speedup:
        text = f"{_FASTER[finding.paced_by]} {factor(finding.speedup, finding.expected)}"
    else:
        text = f"Costs {_between(f'{low:.0%}', f'{high:.0%}')} of the time"
    lost = cost(finding)
    text = f"{text}. At the power drawn now that is {lost}." if lost else f"{text}."
    # It ends with a command.
    return f"{text} {printable(finding.narrowed_by)}" if finding.narrowed_by else text


def factor(speedup: Sequence[float] | None, expected: float | None) -> str:
    """Say how much faster it is expected to be, with the range; empty where there is none."""
    if speedup is None or expected is None:
        return ""
    between = _between(*map(times, speedup))
    if " " not in between:
        return f"{between} faster"
    unsure = "uncertain: " if is_uncertain(speedup) else ""
    return f"about {times(expected)} faster ({unsure}{between})"


def to_do(fix: FixJson, where: Sequence[PlaceJson]) -> str:
    """Say what to change in one sentence, and at which line where that is another one."""
    what, edited = first_sentence(printable(fix.text)).rstrip("."), fix.where
    seen = [(each.file, each.line) for each in where[:1]]
    if not edited or (edited.file, edited.line) in seen:
        return what
    return f"{what}, at {short(edited)}"


def own_code(code: str) -> str:
    """Return code that is the user's, with the change in it; of examples only a single line."""
    return "" if code.startswith(EXAMPLE) and code.count("\n") > 1 else code


def first_sentence(text: str) -> str:
    """Return what to change in one sentence, for places with room for no more."""
    return f"{text.partition('. ')[0].rstrip('.')}."


def _between(low: str, high: str) -> str:
    """Write a range; ends that read the same are one number."""
    return low if low == high else f"{low} to {high}"


def cost(finding: FindingJson) -> str | None:
    """Say what the lost time costs in energy and money; ``None``: neither is known."""
    energy = finding.energy
    watts, joules = energy.watts_lost, energy.joules_per_step
    hourly, each = energy.money_per_hour, energy.money_per_step
    is_idle = (finding.slice or "").startswith("idle_")
    parts = [] if watts is None else [f"{'up to ' * is_idle}{watts:.0f} W"]
    if joules is not None:
        parts.append(f"{show(joules, 'joules')} a step")
    if hourly is not None:
        parts.append(f"{money(hourly, energy.currency)} an hour")
    if each is not None:
        parts.append(f"{money(each, energy.currency)} a step")
    return ", ".join(parts) or None
