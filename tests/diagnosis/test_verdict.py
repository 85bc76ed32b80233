"""The verdict: the largest part of the time that is no useful work, with a cure or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import to_builtins

from tests.rules.windows import answer, stacks, window
from whyidle.monitor import rules
from whyidle.monitor.core.finding import Evidence, Fix, Found, Gain, Place, Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.diagnosis.ranking import Finding
from whyidle.monitor.diagnosis.verdict import Headline, within
from whyidle.monitor.rules import Kind, Rule
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

EVIDENCE = (Evidence("something", 1.0, "count", "agent"),)
LINE = Place("/u/train.py", 40, "main", 0.5)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Rule]:
    """Rules of this test's own."""
    made: dict[str, Rule] = {}
    monkeypatch.setattr(rules, "load", lambda: made)
    return made


def add(known: dict[str, Rule], name: str, found: Found, **more: Any) -> None:
    known[name] = Rule(
        title=f"Fault {name}",
        fixes={"pytorch": Fix("Do.", "code")},
        detect=lambda _: found,
        id=name,
        **more,
    )


def gains(low: float, high: float, part: Slice | None = None, **more: Any) -> Found:
    return Found(Gain.between(low, high), EVIDENCE, slice=part, **more)


def spends(**shares: float) -> Window:
    """Return a window in which slices take these shares, and compute the rest."""
    parts = {Slice(name): share for name, share in shares.items()}
    return window(answer({Slice.COMPUTE: 1 - sum(parts.values()), **parts}))


def verdict(seen: Window) -> dict[str, Any]:
    said: dict[str, Any] = to_builtins(as_json(diagnose(seen)).verdict)
    return said


def order(seen: Window) -> Sequence[str]:
    return [each.rule for each in as_json(diagnose(seen)).findings]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("shares", "text", "share"),
    [
        (
            {"idle_dispatch": 0.53},
            "No known cause: 53% of the time is the host preparing work.",
            0.53,
        ),
        (
            {"idle_input": 0.52, "idle_gc": 0.1},
            "No known cause: 52% of the time is waiting",
            0.52,
        ),
        ({"exposed_comm": 0.69}, "No known fix: 69% of the time is communication.", 0.69),
        (
            {"idle_unknown": 0.24},
            "No known cause: 24% of the time is idle, nothing",
            0.24,
        ),
        # No part is large, and yet not all of it computes.
        ({"idle_gc": 0.04, "idle_io": 0.04}, "Nothing stands out: compute takes 92%", None),
        # The healthy twin.
        ({"idle_gc": 0.03}, "Nothing worth fixing above 1% of the time was found.", None),
    ],
)
def test_the_largest_part_has_the_first_word_though_no_cure_is_known(
    shares: dict[str, float], text: str, share: float | None
) -> None:
    said = verdict(spends(**shares))
    assert said["text"].startswith(text)
    assert said["share"] == (None if share is None else pytest.approx(share, abs=1e-3))
    assert (said["fix"], said["rule"]) == (None, None)


@pytest.mark.parametrize("part", [Slice.IDLE_INPUT, Slice.IDLE_DISPATCH, Slice.EXPOSED_COPY])
def test_a_finding_about_that_part_gives_its_title_its_line_and_its_fix(
    known: dict[str, Rule], part: Slice
) -> None:
    add(known, "waits", gains(0.0, 0.5, part, where=(LINE,)))
    # What gains less for sure was said before it: validation 13% before input 52%.
    add(known, "sure", gains(0.08, 0.2))
    seen = spends(**{part: 0.52})
    said = verdict(seen)
    assert said["what"] == "Fault waits."
    assert said["text"] == "Fault waits (a fix saves about 29% of each step), at train.py:40."
    assert said["share"] == pytest.approx(0.52, abs=1e-3)
    assert [(each["file"], each["line"]) for each in said["where"]] == [("/u/train.py", 40)]
    assert said["fix"] == {"text": "Do.", "code": "# An example, not your code:\ncode"}
    assert order(seen) == ["waits", "sure"]


def test_a_finding_that_explains_little_of_the_part_does_not_stand_for_it(
    known: dict[str, Rule],
) -> None:
    add(known, "small", gains(0.02, 0.1, Slice.IDLE_INPUT))
    assert verdict(spends(idle_input=0.52))["text"].startswith(
        "No known cause: 52% of the time is waiting"
    )
    add(known, "hint", Found(None, EVIDENCE, slice=Slice.IDLE_INPUT, severity=Severity.INFO))
    assert verdict(spends(idle_input=0.52))["rule"] is None


def test_what_is_found_in_compute_is_said_where_it_gains_more_than_the_rest_loses(
    known: dict[str, Rule],
) -> None:
    add(known, "double", gains(0.3, 0.5, Slice.COMPUTE))
    said = verdict(spends(idle_dispatch=0.2))
    assert said["text"] == "Fault double (a fix saves about 41% of each step)."
    assert said["rule"] == "double"
    # It may be the cause of that, too, unless that is more than twice what it is expected to gain.
    assert verdict(spends(idle_dispatch=0.6))["rule"] == "double"
    add(known, "double", gains(0.1, 0.2, Slice.COMPUTE))
    assert verdict(spends(idle_dispatch=0.6))["rule"] is None


@pytest.mark.parametrize(
    ("part", "found"),
    [
        # Validation, beside single operations all along the step.
        (Slice.IDLE_DISPATCH, gains(0.05, 0.35, where=(LINE,))),
        # A step whose work can be done in half of the time, beside an exchange.
        (Slice.EXPOSED_COMM, gains(0.06, 0.3, Slice.COMPUTE)),
        # What nothing says how much it costs.
        (Slice.IDLE_GC, Found(None, EVIDENCE, severity=Severity.MEDIUM)),
    ],
)
def test_what_may_give_back_half_of_a_part_is_held_to_what_is_expected_of_it(
    known: dict[str, Rule], part: Slice, found: Found
) -> None:
    add(known, "small", found)
    said = verdict(spends(**{part: 0.5}))
    assert said["rule"] is None
    assert "50% of the time is" in said["text"]
    assert order(spends(**{part: 0.5})) == ["small"]
    # The healthy twin: where no part is large it has the word.
    assert verdict(spends(**{part: 0.04}))["rule"] == "small"


def test_what_is_not_loud_stands_below_the_largest_part(known: dict[str, Rule]) -> None:
    add(known, "slight", gains(0.02, 0.05, Slice.COMPUTE))
    assert verdict(spends(idle_dispatch=0.06))["text"].startswith(
        "94% is compute; 6% is the host preparing work, with no known cause"
    )
    assert verdict(spends(idle_dispatch=0.02))["rule"] == "slight"


@pytest.mark.parametrize("kind", [Kind.ERROR, Kind.MEMORY])
def test_errors_and_risks_that_are_sure_stand_first(known: dict[str, Rule], kind: Kind) -> None:
    add(known, "waits", gains(0.4, 0.5, Slice.IDLE_INPUT))
    add(known, "lost", Found(None, EVIDENCE, severity=Severity.HIGH), kind=kind)
    seen = spends(idle_input=0.5)
    assert verdict(seen)["text"] == "Fault lost."
    assert order(seen) == ["lost", "waits"]
    # What is only to know is none.
    add(known, "lost", Found(None, EVIDENCE, severity=Severity.INFO), kind=kind)
    assert verdict(seen)["rule"] == "waits"


@pytest.mark.usefixtures("known")
def test_without_an_account_nothing_is_called_healthy() -> None:
    assert verdict(window())["text"] == "Too little is known for a verdict."
    assert verdict(spends(idle_unknown=0.7))["text"] == "Too little is known for a verdict."


def spread(dispatch: float, *lines: tuple[str, int, float], backend: str = "cpu") -> Window:
    """Return a window in which operators run at these lines, and a line of Python in between."""
    rows = [
        (CodeLine("/v/site-packages/torch/x.py", 5, "call"), (CodeLine(file, line, "f"),), much)
        for file, line, much in lines
    ]
    python = CodeLine("/u/made.py", 53, "made")
    rows.append((python, (python,), 100 * dispatch))
    seen = answer({Slice.COMPUTE: 1 - dispatch, Slice.IDLE_DISPATCH: dispatch})
    return window(seen, stacks=stacks(*rows), facts={"torch": {"backend": backend}})


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("lines", "at"),
    [
        # One product in a helper; a backward pass; a layer that is called by many.
        ([("/u/helper.py", 62, 66.0), ("/u/train.py", 98, 10.0)], "helper.py:62"),
        ([("/u/train.py", 31, 30.0), ("/u/train.py", 40, 50.0)], "train.py:40"),
        ([("/u/layers/mlp.py", 7, 70.0), ("/u/train.py", 12, 5.0)], "mlp.py:7"),
    ],
)
def test_the_line_that_computes_most_stands_beside_what_is_idle(
    lines: list[tuple[str, int, float]], at: str
) -> None:
    said = verdict(spread(0.22, *lines))
    assert said["text"].startswith("No known cause: 22% of the time is the host preparing work")
    assert f"% is compute, mostly at {at}." in said["text"]
    file, _, line = at.rpartition(":")
    assert said["where"][-1]["file"].endswith(file)
    assert said["where"][-1]["line"] == int(line)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    "seen",
    [
        # No line takes more than what is idle.
        spread(0.4, *[("/u/train.py", n, 6.0) for n in range(10)]),
        # What is launched is computed later: the line is not where the time goes.
        spread(0.22, ("/u/helper.py", 62, 66.0), backend="cuda"),
        # It is named already.
        spread(0.22, ("/u/made.py", 53, 66.0)),
    ],
    ids=["spread", "later", "named"],
)
def test_no_line_is_named_for_compute_where_it_says_nothing(seen: Window) -> None:
    assert "is compute" not in verdict(seen)["text"]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_where_nothing_is_worth_fixing_the_line_that_computes_is_named(backend: str) -> None:
    said = verdict(spread(0.02, ("/u/helper.py", 62, 66.0), backend=backend))
    assert said["text"].startswith("Nothing worth fixing above 1% of the time was found: ")
    assert said["text"].endswith("is compute, at helper.py:62.")
    assert (said["rule"], said["fix"]) == (None, None)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("idle", ["idle_dispatch", "idle_unknown", "idle_sync"])
def test_a_job_that_mostly_computes_is_told_so_first(known: dict[str, Rule], idle: str) -> None:
    seen = spends(**{idle: 0.15})
    assert verdict(seen)["text"].startswith("85% is compute; 15% is ")
    add(known, "slight", Found(Gain.between(0.16, 0.2), EVIDENCE, severity=Severity.LOW))
    assert verdict(seen)["what"] == "85% is compute. Worth a look: Fault slight."
    assert not verdict(spends(**{idle: 0.3}))["text"].startswith("70% is compute")
    # What is loud stands before what computes.
    add(known, "loud", gains(0.2, 0.3))
    assert verdict(seen)["what"] == "Fault loud."


def test_what_is_loud_says_why_where_nothing_else_does(known: dict[str, Rule]) -> None:
    add(known, "others", Found(None, EVIDENCE, severity=Severity.MEDIUM))
    said = verdict(spends(idle_unknown=0.24))
    assert (said["text"], said["share"], said["rule"]) == ("Fault others.", None, "others")
    # The healthy twin: what is not loud does not.
    add(known, "others", Found(None, EVIDENCE, severity=Severity.LOW))
    assert verdict(spends(idle_unknown=0.24))["text"].startswith(
        "No known cause: 24% of the time is idle"
    )


KERAS = "/v/site-packages/keras/src/backend/torch/rnn.py"


@pytest.mark.parametrize("is_known", [False, True])
def test_of_an_unknown_cause_the_functions_that_its_line_is_in_are_named(*, is_known: bool) -> None:
    at, other = CodeLine("/u/train.py", 40, "main"), CodeLine("/u/train.py", 50, "main")
    samples = StackSamples()
    samples.samples = 100
    # Two lines of one function count together; what is seldom, of the user's, or called by another
    # line is not named.
    for user, leaf, number in (
        (at, CodeLine(KERAS, 700, "_fallback_lstm"), 15),
        (at, CodeLine(KERAS, 710, "_fallback_lstm"), 15),
        (at, CodeLine("/v/site-packages/torch/autograd/graph.py", 9, "run"), 20),
        (at, CodeLine(KERAS, 1, "tanh"), 2),
        (at, at, 20),
        (other, CodeLine(KERAS, 2, "sigmoid"), 28),
    ):
        samples.count(Chain((user,), leaf), number, number, 0)
    seen = window(stacks=samples)
    rule = Rule(title="", fixes={}, detect=lambda _: None, id="waits")
    finding = Finding(rule, gains(0.1, 0.2)) if is_known else None
    said = within(seen, Headline("", 0.4, (Place(*at),), finding))
    found = [(each.function, each.share) for each in said]
    assert found == ([] if is_known else [("_fallback_lstm", 0.3), ("run", 0.2)])
