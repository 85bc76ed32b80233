"""The phases of a loop, in several people's styles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.code.test_blocks import EVALUATES_BY_PLAYING
from tests.rules.windows import found, is_silent, window
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.account import HostAccount, account_of
from whyidle.monitor.signals.asides import MARKED
from whyidle.monitor.signals.phases import Phase, phase_of

SCRIPT = """
import torch
for step, (x, y) in enumerate(loader):
    loss = loss_of(model(x), y)
    loss.backward()
    if step % 50 == 0:
        with torch.no_grad():
            scores = [model(z) for z in held_out]
    if (step + 1) % 200 == 0:
        torch.save(model.state_dict(), "latest.pt")
    if step % 10 == 9 and is_main:
        print(step, loss.item())
        pictures = grid(model.sample())
"""
LIB = "/venv/lib/python3.11/site-packages"


def line(file: Path | str, number: int, function: str = "<module>") -> CodeLine:
    return CodeLine(str(file), number, function)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    return file


def test_blocks_that_are_due_every_few_steps(script: Path) -> None:
    phases = {number: phase_of(Chain((line(script, number),)))[0] for number in (4, 5, 8, 10, 13)}
    assert phases == {
        4: Phase.STEP,
        5: Phase.STEP,
        8: Phase.VALIDATION,
        10: Phase.CHECKPOINT,
        13: Phase.PERIODIC,
    }


@pytest.mark.parametrize(
    ("functions", "called", "phase"),
    [
        (("forward", "run_validation", "main"), None, Phase.VALIDATION),
        (("score", "evalEpoch", "fit"), None, Phase.VALIDATION),
        (
            ("training_step",),
            ("lightning/pytorch/loops/evaluation_loop.py", "run"),
            Phase.VALIDATION,
        ),
        (("on_epoch_end",), ("torch/serialization.py", "save"), Phase.CHECKPOINT),
        (("write", "save_checkpoint", "main"), None, Phase.CHECKPOINT),
        # A network of values, its arguments being checked, and a step.
        (("value", "act", "main"), None, Phase.STEP),
        (("interval", "main"), None, Phase.STEP),
        (("step", "fit"), ("torch/nn/modules/module.py", "_call_impl"), Phase.STEP),
    ],
)
def test_chains(functions: tuple[str, ...], called: tuple[str, str] | None, phase: Phase) -> None:
    frames = tuple(line("/job/x.py", 5 + n, name) for n, name in enumerate(functions))
    inner = None if called is None else line(f"{LIB}/{called[0]}", 9, called[1])
    found, begins, *_ = phase_of(Chain(frames, inner, inner))
    assert found is phase
    assert (begins is None) == (phase is Phase.STEP)


def account(script: Path, *counts: tuple[CodeLine, str, float]) -> HostAccount:
    samples = StackSamples()
    for frame, called, count in counts:
        inside = line(f"{LIB}/{called}.py", 9, "f")
        samples.samples += count
        samples.count(Chain((frame,), inside, inside), count, count, 0)
    made = account_of(samples)
    assert made is not None
    return made


DUE = """\
def quality(model, batches):
    model.eval()
    with torch.inference_mode():
        return [loss_of(model(x), y) for x, y in batches]

for step in range(1000):
    learn(next(batches))
    if step % 20 == 0:
        print(quality(model, held_out))
    if step % 4 == 3:
        update(model)
"""


@pytest.mark.parametrize(
    ("name", "phase", "begins"),
    [
        # What it is called, or what it does, says more than that it is due.
        ("evaluate", Phase.VALIDATION, 9),
        ("quality", Phase.VALIDATION, 9),
        ("save_everything", Phase.CHECKPOINT, 9),
        ("draw", Phase.PERIODIC, 9),
    ],
)
def test_what_is_due_is_what_is_called_there(
    tmp_path: Path, name: str, phase: Phase, begins: int
) -> None:
    script = tmp_path / "due.py"
    script.write_text(DUE)
    inner = line(script, 4, "quality") if name == "quality" else line("/job/other.py", 7, name)
    found = phase_of(Chain((inner, line(script, begins))))
    assert (found.phase, found.begins) == (phase, line(script, begins))
    assert found.due


@pytest.mark.parametrize(
    ("body", "line_of"),
    [
        # A target network is asked without gradients, and no validation for that.
        (
            """\
        with torch.no_grad():
            aim = target(after)
        loss = ((model(x) - aim) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
            5,
        ),
        # Gradients that are added up over some batches.
        ("        optimizer.step()\n        optimizer.zero_grad()\n", 4),
    ],
)
def test_to_learn_every_few_steps_is_a_step(body: str, line_of: int, tmp_path: Path) -> None:
    script = tmp_path / "learn.py"
    validates = "        if n % 900 == 0:\n            validate(model)\n"
    text = f"import torch\nfor n, x in enumerate(data):\n    if n % 32 == 0:\n{body}{validates}"
    script.write_text(text)
    assert phase_of(Chain((line(script, line_of),))).phase is Phase.STEP
    last = len(text.splitlines())
    assert phase_of(Chain((line(script, last),))).phase is Phase.VALIDATION


def test_what_is_due_may_take_most_of_the_time(tmp_path: Path) -> None:
    script = tmp_path / "due.py"
    script.write_text(DUE)
    evaluates, learns, updates = line(script, 4, "quality"), line(script, 7), line(script, 11)
    samples = StackSamples()
    samples.samples = 100
    for frames, count in (((evaluates, line(script, 9)), 90), ((learns,), 6), ((updates,), 4)):
        inside = line(f"{LIB}/torch/a.py", 9, "f")
        samples.count(Chain(frames, inside, inside), count, count, 0)
    made = account_of(samples)
    assert made is not None
    assert made.phases == pytest.approx({Phase.VALIDATION: 0.9, Phase.STEP: 0.1})
    # An update every few batches is a part of the steps, whatever it takes.
    samples.count(Chain((updates,), inside, inside), 900, 900, 0)
    samples.samples += 900
    again = account_of(samples)
    assert again is not None
    assert again.phases[Phase.STEP] == pytest.approx(0.91)


def test_what_takes_most_of_the_time_are_the_steps(tmp_path: Path) -> None:
    # An evolution strategy evaluates, and does nothing else.
    inner, outer = line("/job/es.py", 5, "evaluate"), line("/job/es.py", 9, "main")
    search = account(tmp_path, (inner, "jax/a", 90), (outer, "jax/a", 10))
    assert search.phases == {Phase.STEP: pytest.approx(1)}


def test_validation_is_named_with_its_share(script: Path) -> None:
    rows = [(line(script, 4), "torch/a", 600), (line(script, 8), "torch/a", 300)]
    rows.append((line(script, 13), "torch/a", 100))
    made = account(script, *rows)
    assert made.phases == pytest.approx(
        {Phase.STEP: 0.6, Phase.VALIDATION: 0.3, Phase.PERIODIC: 0.1}
    )
    assert [row.doing for row in made.rows] == [HostClass.FRAMEWORK] * 3


@pytest.mark.parametrize(("share", "is_fault"), [(0.3, True), (0.02, False)])
def test_validation_that_takes_much(script: Path, share: float, *, is_fault: bool) -> None:
    samples = StackSamples()
    inside = line(f"{LIB}/torch/nn/modules/module.py", 9, "_call_impl")
    samples.samples = 1000
    for number, count in ((4, 1000 * (1 - share)), (8, 1000 * share)):
        samples.count(Chain((line(script, number),), inside, inside), count, count, 0)
    job = window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True)
    if not is_fault:
        assert is_silent("host_code", job)
        return
    finding = found("host_code", job)
    assert finding.title == "Validation takes 30% of the main thread's time"
    assert finding.where[0].line == 8
    assert finding.gain is not None
    assert finding.gain.low < share < finding.gain.high < 0.4


def test_rare_reads_wait_for_the_steps_before_them(script: Path) -> None:
    samples = StackSamples()
    samples.samples = 1000
    step, log = line(script, 4), line(script, 12)
    inside = line(f"{LIB}/torch/nn/modules/module.py", 9, "_call_impl")
    samples.count(Chain((step,), inside, inside), 400, 400, 0)
    samples.count(Chain((log,), log), 600, 600, 300)
    job = window(stacks=samples, facts={"torch": {"backend": "cuda"}}, inside=True)
    assert is_silent("host_code", job)


BLOCKS = {
    # What is due and runs a model, whatever it is called and however it is said.
    "if step % 20 == 19:\n    print(hits(images, labels))": True,
    "if step and not step % self.every:\n    self.look(self.samples)": True,
    "if time.monotonic() - last > 60:\n    pictures = sample(net, noise)": True,
    "if t % 4 == 0:\n    key, sub = jax.random.split(key)\n    show(net(sub))": True,
    "if step % 10 == 0:\n    model.eval()\n    probe(model)\n    model.train()": True,
    "if step % 10 == 0:\n    bar.update(10)": True,
    # What is due and learns.
    "if (i + 1) % 4 == 0:\n    opt.step()\n    opt.zero_grad()": False,
    "if t % 4 == 0:\n    params, state = renew(params, state, batch)": False,
    "if t % 4 == 0:\n    self.params = self.renew(self.params, batch)": False,
    "if t % 4 == 0:\n    agent.learn(memory.sample(64))": False,
    "if t % 4 == 0:\n    improve(memory)": False,
    "if t % 4 == 0:\n    engine.step()": False,
}


@pytest.mark.parametrize(("block", "is_aside"), BLOCKS.items())
def test_what_is_due_and_learns_are_the_steps(block: str, is_aside: bool, tmp_path: Path) -> None:
    helper = "\ndef improve(memory):\n    go(memory)\n\ndef go(x):\n    loss(x).backward()\n"
    file = tmp_path / "train.py"
    file.write_text(block + helper)
    phase = phase_of(Chain((line(file, 2),)))[0]
    assert (phase is not Phase.STEP) == is_aside


def test_the_rest_of_a_function_that_mostly_returns(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "def report(step):\n    if step % 50:\n        return\n    draw(net)\n"
        "def mine(files):\n    for n, file in enumerate(files):\n        if n % world != rank:\n"
        "            continue\n        yield parse(file)\n"
    )
    assert phase_of(Chain((line(file, 4, "report"),)))[0] is Phase.PERIODIC
    assert phase_of(Chain((line(file, 9, "mine"),)))[0] is Phase.STEP


SAVING = line(f"{LIB}/torch/serialization.py", 9, "_save")
WRITING = line(f"{LIB}/wandb/sdk/wandb_run.py", 9, "log")
MODEL = line(f"{LIB}/torch/nn/modules/module.py", 9, "_call_impl")


@pytest.mark.parametrize(
    ("marked", "function", "inside", "phase", "is_marked"),
    [
        # Nothing in the source says so.
        ("validation", "score", MODEL, Phase.VALIDATION, True),
        ("checkpoint", "upload", MODEL, Phase.CHECKPOINT, True),
        ("logging", "train", MODEL, Phase.LOGGING, True),
        # It beats a name, and what the name says gets sure by it.
        ("logging", "run_validation", MODEL, Phase.LOGGING, True),
        ("validation", "run_validation", MODEL, Phase.VALIDATION, True),
        # What is saved or written in a validation is so all the same.
        ("validation", "score", SAVING, Phase.CHECKPOINT, False),
        ("validation", "score", WRITING, Phase.LOGGING, False),
        ("epoch", "train", MODEL, Phase.EPOCH, True),
        ("epoch", "run_validation", MODEL, Phase.VALIDATION, False),
        ("epoch", "train", SAVING, Phase.CHECKPOINT, False),
        # A word that nobody knows, and none.
        ("step", "run_validation", MODEL, Phase.VALIDATION, False),
        (None, "train", MODEL, Phase.STEP, False),
    ],
)
def test_what_the_jobs_own_code_marks_comes_first(
    marked: str | None, function: str, inside: CodeLine, phase: Phase, *, is_marked: bool
) -> None:
    frame = line("/job/nowhere.py", 5, function)
    aside = phase_of(Chain((frame,), inside, inside, marked))
    assert (aside.phase, aside.marked) == (phase, is_marked)
    assert aside.surely or not is_marked


@pytest.mark.parametrize("style", EVALUATES_BY_PLAYING)
def test_environments_that_are_played_now_and_then_evaluate(style: str, tmp_path: Path) -> None:
    """What is learned from stays play; a function of the library's, or of the user's, says less."""
    file = tmp_path / "play.py"
    file.write_text(EVALUATES_BY_PLAYING[style])
    text = list(enumerate(file.read_text().splitlines(), 1))
    calls = [line(str(file), n, "<module>") for n, x in text if x.endswith("evaluate(policy, env)")]
    library = CodeLine("/env/lib/python3.11/site-packages/gymnasium/core.py", 9, "step")
    seen = []
    for n, spelled in text:
        if ".step(" in spelled:
            within = calls if spelled.startswith(" " * 8) else []
            frames = (line(str(file), n, "evaluate" if within else "<module>"), *within)
            seen += [phase_of(Chain(frames, leaf, leaf)) for leaf in (frames[0], library)]
    kinds = [(aside.phase, aside.due) for aside in seen]
    assert sorted(set(kinds)) == [(Phase.ENVIRONMENT, False), (Phase.VALIDATION, True)]
    assert kinds.count((Phase.VALIDATION, True)) == 2


def test_a_marked_phase_is_no_step_however_much_it_takes() -> None:
    samples = StackSamples()
    samples.samples = 100
    frame = line("/job/nowhere.py", 5, "score")
    for mark, count in ((None, 20), ("validation", 80)):
        samples.count(Chain((frame,), MODEL, MODEL, mark), count, count, 0)
    made = account_of(samples)
    assert made is not None
    assert made.phases == pytest.approx({Phase.VALIDATION: 0.8, Phase.STEP: 0.2})


def test_who_only_evaluates_does_so_in_steps_whatever_a_trainer_calls_it() -> None:
    samples = StackSamples()
    samples.samples = 100
    frame = line("/job/nowhere.py", 5, "main")
    for mark, count in ((None, 1), ("validation", 99)):
        samples.count(Chain((frame,), MODEL, MODEL, mark), count, count, 0)
    made = account_of(samples)
    assert made is not None
    assert made.phases == {Phase.STEP: pytest.approx(1)}


@pytest.mark.parametrize(("share", "is_fault"), [(0.3, True), (0.02, False)])
def test_a_marked_validation_that_no_name_shows_is_found(share: float, *, is_fault: bool) -> None:
    samples = StackSamples()
    samples.samples = 1000
    frame = line("/job/nowhere.py", 5, "score")
    for mark, count in ((None, 1000 * (1 - share)), ("validation", 1000 * share)):
        samples.count(Chain((frame,), MODEL, MODEL, mark), count, count, 0)
    job = window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True)
    if not is_fault:
        assert is_silent("validation_too_long", job)
        return
    finding = found("validation_too_long", job)
    first = finding.evidence[0]
    assert (first.name, first.value) == (MARKED, share)
    assert finding.gain is not None
    assert finding.gain.low < share < finding.gain.high < 0.4


@pytest.mark.parametrize(
    ("source", "at", "learns"),
    [
        # An agent evaluates its actions, in a method; a loss is called so; both in one line.
        (
            (
                "def update(self):\n    for _ in range(9):\n"
                "        logs, values, _ = self.policy.evaluate(states, actions)\n"
                "        ratio = exp(logs - old)\n        loss = -ratio * (returns - values)\n"
                "        loss.mean().backward()\n"
            ),
            3,
            True,
        ),
        ("for x in data:\n    loss = evaluate(net, x)\n    loss.backward()\n", 2, True),
        ("for x in data:\n    evaluate(net, x).mean().backward()\n", 2, True),
        # Healthy twins: it is printed, under a name of its own or that of the loss.
        ("for x in data:\n    net(x).backward()\n    score = evaluate(net)\n", 3, False),
        (
            (
                "for x in data:\n    loss = net(x)\n    loss.backward()\n    loss = evaluate(net)\n"
                "    print(loss)\n"
            ),
            4,
            False,
        ),
    ],
)
def test_what_is_learned_from_is_no_validation(
    source: str, at: int, *, learns: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(source + "def evaluate(net, x=None):\n    return net(x)\n")
    inner = line(file, len(source.splitlines()) + 2, "evaluate")
    leaf = line(f"{LIB}/torch/nn/modules/module.py", 9, "forward")
    chain = Chain((inner, line(file, at, "update")), leaf, leaf)
    assert phase_of(chain).phase is (Phase.STEP if learns else Phase.VALIDATION)
