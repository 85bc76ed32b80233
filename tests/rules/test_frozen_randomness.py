"""The rule frozen_randomness."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import cannot_judge, found, is_silent, judge, recorded, stacks, window
from whyidle.monitor.code import source
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.window import Window

NAME = "frozen_randomness"
FIXES = {
    "jax": (
        """
import jax
import jax.numpy as jnp
seen = []
def update(params, x):
    return x
params, key, x = None, jax.random.key(0), jnp.ones(3)
def given():
    for _ in range(3):
        yield x
        seen.append(params)
batches = given()
""",
        """
assert len(seen) == 3
assert len({float(each[0]) for each in seen}) == 3
""",
    ),
}
STEP = "@jax.jit\ndef step(x):\n    return x + {draws}\n"


def job(folder: Path, text: str, function: str = "step") -> Window:
    """Return the window of a job that compiled a function of such a program."""
    file = folder / "train.py"
    file.write_text(text)
    row = Compiled("jax", function, 1, 10**9, 0, None, str(file), 1)
    return window(facts={"jax": {}}, compiled=(row,), inside=True)


@pytest.mark.parametrize(
    ("imports", "draws"),
    [
        ("import numpy as np", "np.random.randn(3)"),
        ("import numpy", "numpy.random.standard_normal(3)"),
        ("from numpy import random as npr", "npr.rand(3)"),
        ("from numpy.random import rand", "rand(3)"),
        ("import random", "random.gauss(0, 1)"),
        ("import numpy as np", "np.random.default_rng(0).normal()"),
        ("import random", "random.Random(0).random()"),
        ("import numpy as np; rng = np.random.default_rng(0)", "rng.normal(size=3)"),
    ],
)
def test_numbers_of_the_host_in_a_compiled_function(
    tmp_path: Path, imports: str, draws: str
) -> None:
    finding = found(NAME, job(tmp_path, f"{imports}\n{STEP.format(draws=draws)}"))
    assert finding.gain is None
    assert finding.severity is Severity.MEDIUM
    assert (finding.where[0].line, finding.where[0].function) == (4, "step")


def test_in_a_function_that_the_compiled_one_calls(tmp_path: Path) -> None:
    text = "import random\ndef noisy(x):\n    return x + random.random()\n"
    text += (
        "def loss(p, x):\n    return noisy(x)\ndef step(p, x):\n    return jax.grad(loss)(p, x)\n"
    )
    assert found(NAME, job(tmp_path, text)).where[0].function == "noisy"


@pytest.mark.parametrize(
    "text",
    [
        # JAX's own, under the same name; what only sets up; what runs again with each step.
        "from jax import random\n" + STEP.format(draws="random.normal(key, x.shape)"),
        "import jax.random as random\n" + STEP.format(draws="random.normal(key)"),
        "import numpy as np\n" + STEP.format(draws="f(np.random.default_rng(0))"),
        "import numpy as np\n"
        + STEP.format(draws="jax.pure_callback(lambda: np.random.rand(), shape)"),
        # Outside of what was compiled; an argument of that name.
        "import numpy as np\nx = np.random.rand(3)\n" + STEP.format(draws="1"),
        "import numpy as np\ndef batch():\n    return np.random.rand(3)\n" + STEP.format(draws="1"),
        "import random\n" + STEP.format(draws="1"),
        "import numpy as np\nrng = np.random.default_rng(0)\ndef step(rng):\n    rng.normal()\n",
    ],
)
def test_programs_that_draw_again(tmp_path: Path, text: str) -> None:
    assert judge(NAME, job(tmp_path, text)) is None


@pytest.mark.parametrize(
    "facts",
    [
        {"executables_by_name": {"jit_step": 1, "jit__normal": 1}},
        {"largest_executables": [{"name": "jit_step"}]},
    ],
)
def test_a_job_that_had_compiled_before_anybody_came(
    tmp_path: Path, facts: dict[str, object]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"import numpy as np\n{STEP.format(draws='np.random.rand(3)')}step(1)\n")
    line = SourceLine(str(file), 5, "<module>", 1.0)
    late = window(facts={"jax": facts}, inside=True, lines=(line,))
    assert found(NAME, late).where[0].function == "step"
    file.write_text(file.read_text().replace("np.random.rand(3)", "1"))
    for each in (
        source.text_of,
        source.tree_of,
        source.nodes_of,
        source._spans,
        source.nodes_at,
    ):
        each.cache_clear()
    assert judge(NAME, late) is None
    other = window(facts={"jax": {"executables_by_name": {"jit_other": 1}}}, inside=True)
    assert cannot_judge(NAME, other)


def test_what_is_missing() -> None:
    assert cannot_judge(NAME, window())
    row = Compiled("jax", "step", 1, 10**9, 0, None, "/not/there.py", 1)
    assert cannot_judge(NAME, window(facts={"jax": {}}, compiled=(row,), inside=True))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded("frozen_randomness/before_jax"))
    assert finding.where[0].function == "step"
    assert is_silent(NAME, recorded("frozen_randomness/after_jax"))


@pytest.mark.parametrize("other", ["retracing", "unjitted_step", "python_loop_over_batch"])
def test_other_faults(other: str) -> None:
    assert is_silent(NAME, recorded(f"{other}/before_jax"))


def test_a_lambda_is_not_judged(tmp_path: Path) -> None:
    clean = STEP.format(draws="1")
    assert cannot_judge(NAME, job(tmp_path, clean, function="<lambda>"))
    assert judge(NAME, job(tmp_path, clean)) is None


UPDATES = """\
import jax
import numpy as np
class Optimizer:
    @jax.jit
    def update(self, state):
        return state
class Learner:
    def update(self, state):
        return self.optimizer.update(noisy(state))
def noisy(state):
    return state + np.random.randn(3)
def train(learner, state):
    for _ in range(100):
        state = learner.update(state)
"""


def test_what_runs_line_by_line_only_shares_the_name(tmp_path: Path) -> None:
    there = job(tmp_path, UPDATES, "update")
    file = str(tmp_path / "train.py")
    frames = tuple(CodeLine(file, *x) for x in ((11, "noisy"), (9, "update"), (14, "train")))
    seen = stacks((CodeLine(file, 11, "noisy"), frames, 20))
    runs = window(facts={"jax": {}}, compiled=there.job.compiled, inside=True, stacks=seen)
    assert is_silent(NAME, runs)
    # While it compiles, that runs as well.
    compiler = CodeLine("/v/site-packages/jax/_src/compiler.py", 9, "backend_compile")
    compiling = stacks((compiler, frames, 20))
    job_ = window(facts={"jax": {}}, compiled=there.job.compiled, inside=True, stacks=compiling)
    assert found(NAME, job_).where[0].function == "noisy"


@pytest.mark.parametrize("leaf", ["/v/site-packages/jax/_src/lax/lax.py", ""])
def test_a_function_of_one_name_may_be_seen_while_it_is_traced(tmp_path: Path, leaf: str) -> None:
    there = job(tmp_path, "import numpy as np\n" + STEP.format(draws="np.random.randn(3)"))
    inner = CodeLine(str(tmp_path / "train.py"), 4, "step")
    seen = stacks((CodeLine(leaf, 9, "add") if leaf else inner, (inner,), 20))
    again = window(facts={"jax": {}}, compiled=there.job.compiled, inside=True, stacks=seen)
    assert found(NAME, again).where[0].function == "step"
