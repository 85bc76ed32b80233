"""The rule slowing_down."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.rules.phases import LIB, TORCH, of_rows, written
from tests.rules.windows import cannot_judge, found, is_silent, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LEAST_POINTS
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.signals.drift import Drift, drift_of
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import Point

NAME = "slowing_down"
_BEFORE = "import collections\nbatches, train_step = range(300), float\n"
FIXES = dict.fromkeys(("pytorch", "jax"), (_BEFORE, "assert len(recent) == 100"))
SEARCH = SourceLine("/job/train.py", 12, "seen_before", 0.1)
STEP = SourceLine("/job/train.py", 30, "fit", 0.9)
# Samples of each third: more and more of a step is the search.
SEARCHES = [
    stacks((SEARCH, (), part), (STEP, (), 100 - part)).packed(10_000) for part in (10, 10, 55)
]
# What a step takes by the second, as it happens to people.
GROWS = {
    "a list that is searched": [0.1 + 0.004 * n for n in range(40)],
    "an array that is copied to append": [0.05 * 1.02**n for n in range(40)],
    "in leaps, as by doubling": [0.1 * 2 ** (n // 15) for n in range(45)],
}
HEALTHY = {
    "even": [0.1] * 40,
    "noise": [0.1 + random.Random(n).uniform(-0.04, 0.04) for n in range(60)],
    "a warm start": [0.3, 0.2, 0.15, *([0.1] * 40)],
    "one slow minute": [0.1] * 25 + [0.2] * 8 + [0.1] * 25,
    "a little": [0.1 + 0.0002 * n for n in range(40)],
}


def points(values: list[float]) -> list[Point]:
    return [Point(1000 * n, value, value, value) for n, value in enumerate(values)]


def of(values: list[float]) -> Window:
    return window(drift=drift_of(points(values), SEARCHES), inside=True)


@pytest.mark.parametrize("how", GROWS)
def test_steps_that_take_longer_and_longer(how: str) -> None:
    values = GROWS[how]
    finding = found(NAME, of(values))
    assert finding.gain is not None
    back = 1 - values[0] / values[-1]
    assert finding.gain.low < back < finding.gain.high + 0.1
    assert finding.evidence[0].value < finding.evidence[1].value  # type: ignore[operator]


@pytest.mark.parametrize("how", HEALTHY)
def test_healthy_jobs(how: str) -> None:
    assert is_silent(NAME, of(HEALTHY[how]))


def test_a_long_and_a_short_step_in_turns() -> None:
    # A checkpoint after every second step: the median of a second is the one or the other.
    medians = points([0.013] * 14 + [0.027] * 14)
    steady = drift_of(medians, SEARCHES, (), points([50.0] * 28))
    assert is_silent(NAME, window(drift=steady, inside=True))
    slower = drift_of(medians, SEARCHES, (), points([75.0] * 14 + [36.0] * 14))
    found(NAME, window(drift=slower, inside=True))


def test_a_pace_that_goes_up_and_down_is_no_rise() -> None:
    paces = [10.0 if n % 3 else 5.0 for n in range(20)] + [8.0 if n % 3 else 4.0 for n in range(20)]
    drift = drift_of(points(GROWS["a list that is searched"]), SEARCHES, (), points(paces))
    assert is_silent(NAME, window(drift=drift, inside=True))


def test_while_other_programs_take_the_cores_nothing_is_said_of_it() -> None:
    rising = drift_of(points(GROWS["a list that is searched"]), SEARCHES)
    cores = {
        m.HOST_CORES: 2.0, m.HOST_CPU: 1.0, m.JOB_CPU: 0.5, m.PROCESS_CPU: 0.5,
        m.JOB_MAIN_THREAD: 0.3,
    }  # fmt: skip
    assert cannot_judge(NAME, window(drift=rising, inside=True, means=cores))
    found(NAME, window(drift=rising, inside=True, means=cores | {m.JOB_CPU: 1.9}))


@pytest.mark.parametrize(("cores", "is_own"), [(1.5, True), (1.3, True), (0.8, False)])
def test_steps_that_only_wait_longer_do_no_more(cores: float, *, is_own: bool) -> None:
    # A step takes 0.26 s in the end, and 0.1 in the beginning; the job had 1.5 cores then.
    values = GROWS["a list that is searched"]
    used = [1.5 + (cores - 1.5) * n / len(values) for n in range(len(values))]
    drift = drift_of(points(values), SEARCHES, points(used))
    on_cpu = window(drift=drift, inside=True, facts={"torch": {"backend": "cpu"}})
    assert cannot_judge(NAME, on_cpu) != is_own
    on_gpu = window(drift=drift, inside=True, facts={"torch": {"backend": "cuda"}})
    assert found(NAME, on_gpu).gain is not None


@pytest.mark.parametrize(("share", "is_own"), [(0.1, True), (0.8, False)])
def test_steps_that_wait_for_input_may_do_no_more(
    share: float, *, is_own: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("for x in loader:\n    step(x)\n")
    loads = (f"{LIB}/torch/utils/data/dataloader.py", "__next__")
    rows = [(1, loads, 1000 * share), (2, TORCH, 1000 * (1 - share))]
    job = of_rows(script, rows)
    job = window(
        drift=drift_of(points(GROWS["a list that is searched"]), SEARCHES),
        stacks=job.job.stacks,
        inside=True,
    )
    assert cannot_judge(NAME, job) != is_own


def test_its_lines_are_those_that_take_more_of_a_step() -> None:
    drift = drift_of(points([0.1 + 0.0025 * n for n in range(41)]), SEARCHES)
    assert drift is not None
    assert (drift.lines[0].line, drift.lines[0].function) == (12, "seen_before")
    assert drift.lines[0].share == pytest.approx(1, abs=0.1)
    finding = found(NAME, window(drift=drift, inside=True))
    assert [place.line for place in finding.where] == [12]


# What is registered again and again, and where the main thread is then found at it.
REGISTERS = {
    "in the loop": """
for x in data:
    for m in net.modules():
        m.register_forward_hook(f)
""",
    "in a function of it": """
def probe(net, keep):
    for m in net.modules():
        keep.append(m.register_full_backward_hook(f))
""",
    "in the model": """
class Net(Module):
    def forward(self, x):
        self.body.register_forward_pre_hook(self.seen)
        return self.body(x)
""",
    "handlers of a log": """
while True:
    log = logging.getLogger("run")
    log.addHandler(StreamHandler())
""",
}
STAYS_AS_IT_WAS = {
    "it is taken back": """
def look(net, x):
    handle = net.register_forward_hook(f)
    net(x)
    handle.remove()
""",
    "once, before the loop": """
net.register_forward_hook(f)
for x in data:
    net(x)
""",
    "of a tensor, which goes with it": """
for x in data:
    net(x).register_hook(f)
""",
}


def growing_beside(script: Path, text: str) -> tuple[str, ...]:
    """Return the lines named where steps grow at the last, and all others take a little, too."""
    script.write_text(text + "net(y)\n")
    lines = script.read_text().splitlines()
    *others, step = (SourceLine(str(script), n, "f", 0.1) for n in range(1, len(lines) + 1))
    early, late = (
        stacks((step, (), n), *((each, (), 1) for each in others)).packed(10_000) for n in (50, 100)
    )
    drift = drift_of(points([0.1 + 0.0025 * n for n in range(41)]), [early, early, late])
    finding = found(NAME, window(drift=drift, inside=True, lines=(step, *others)))
    return tuple(lines[place.line - 1] for place in finding.where)


@pytest.mark.parametrize("how", REGISTERS)
def test_what_is_registered_again_and_again_is_named_first(how: str, tmp_path: Path) -> None:
    first, second, *_ = growing_beside(tmp_path / "train.py", REGISTERS[how])
    assert re.search(r"\.(register|add)", first)
    assert second == "net(y)"


@pytest.mark.parametrize("how", STAYS_AS_IT_WAS)
def test_what_is_taken_back_does_not_pile_up(how: str, tmp_path: Path) -> None:
    assert growing_beside(tmp_path / "train.py", STAYS_AS_IT_WAS[how])[0] == "net(y)"


# Longer and longer, but not each than the one before: in an order of about 0.7.
WOBBLES = [0.1 + 0.002 * n + 0.02 * (-1) ** n for n in range(40)]
FORWARD = SourceLine("/job/train.py", 20, "forward", 0.5)


@pytest.mark.parametrize(
    ("late", "values", "is_thin"),
    [
        (50, WOBBLES, True),
        (46, WOBBLES, True),
        (90, WOBBLES, False),
        (50, GROWS["a list that is searched"], False),
    ],
)
def test_where_all_of_a_step_grew_alike_the_machine_may_be_slower(
    late: int, values: list[float], *, is_thin: bool
) -> None:
    before = stacks((STEP, (), 100), (FORWARD, (), 100)).packed(10_000)
    after = stacks((STEP, (), 2 * late), (FORWARD, (), 200 - 2 * late)).packed(10_000)
    drift = drift_of(points(values), [before, before, after])
    assert drift is not None
    assert (drift.order < 0.9) is (values is WOBBLES)
    severity = found(NAME, window(drift=drift, inside=True)).severity
    assert (severity is Severity.LOW) is is_thin


@pytest.mark.parametrize("values", [WOBBLES, GROWS["a list that is searched"]])
def test_where_no_line_takes_more_of_a_step_it_is_not_known_what_grows(values: list[float]) -> None:
    drift = drift_of(points(values), [{}, {}, {}])
    assert drift is not None
    assert drift.rises
    assert cannot_judge(NAME, window(drift=drift, inside=True))


PLAYS = """
import gymnasium
env = gymnasium.make("CartPole-v1")
while True:
    done = False
    while not done:
        state, reward, done, _, _ = env.step(policy(state).item())
    learn()
"""
LEARNS = """
for batch in loader:
    learn(batch)
    losses.append(loss)
    report(sum(each.item() for each in losses))
"""
WRITES = """
text = prompt
while True:
    logits = model(text)
    text = torch.cat((text, logits[:, -1:].argmax(-1)), dim=1)
"""
GYM = (f"{LIB}/gymnasium/wrappers/common.py", "step")
# Where it is sampled; what a step has in the beginning, and how many times as much in the end; and
# whether that is more to do.
MORE_TO_DO = {
    "episodes that get longer": (PLAYS, {7: GYM, 8: TORCH}, "syncs", (20.0, 2.6), True),
    "episodes as long as before": (PLAYS, {7: GYM, 8: TORCH}, "syncs", (20.0, 1.0), False),
    "a replay batch that grows": (LEARNS, {3: TORCH}, "samples", (64.0, 2.0), True),
    "gradients of more and more batches": (LEARNS, {3: TORCH}, "loader_batches", (1.0, 2.6), True),
    "now and then a batch more": (LEARNS, {3: TORCH}, "loader_batches", (0.1, 2.6), False),
    "a list that is read": (LEARNS, {3: TORCH, 5: None}, "syncs", (20.0, 2.6), False),
    "a text that grows": (WRITES, {4: TORCH}, "syncs", (0.0, 1.0), True),
}


@pytest.mark.parametrize("how", MORE_TO_DO)
def test_steps_that_have_more_to_do_are_no_fault(how: str, tmp_path: Path) -> None:
    source, lines, name, (each, times), is_more = MORE_TO_DO[how]
    rows = [(line, library, 100) for line, library in lines.items()]
    sampled = of_rows(written(tmp_path, source), rows).job.stacks
    values = GROWS["a list that is searched"]
    many = [each * (1 + (times - 1) * n / len(values)) for n in range(len(values))]
    drift = drift_of(points(values), SEARCHES, counts={name: many})
    assert cannot_judge(NAME, window(drift=drift, stacks=sampled, inside=True)) == is_more


def test_what_is_missing() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(inside=True))
    assert drift_of(points([0.1] * (LEAST_POINTS - 1)), ()) is None


def test_falling_steps_have_no_lines() -> None:
    drift = drift_of(points([0.3 - 0.002 * n for n in range(40)]), [{}, {}, {}])
    assert isinstance(drift, Drift)
    assert drift.order == -1
    assert not drift.lines
