"""What ``torch.compile`` has compiled stays compiled, whether the agent comes or goes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agents.test_marks import IMPORT as IMPORT_MARKS
from tests.agents.torch.inside import TRAINING, probe, run
from whyidle.agents import wire
from whyidle.agents.torch import steps as steps_module
from whyidle.agents.torch.stepped_optimizers import stepped

torch = pytest.importorskip("torch")

# Jobs of their own: a process that once compiled a step stays changed.
COMPILING = (
    "import warnings; warnings.simplefilter('ignore')"
    + TRAINING
    + """
import logging
torch._logging.set_logs(all=logging.ERROR)
import torch._dynamo as dynamo
before, after = hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks
x, y = data[:16]
graphs = []
def backend(graph, _inputs):
    graphs.append(graph.code)
    return graph.forward
def compiled(function): return torch.compile(function, backend=backend)
def compiles(): return len(graphs), dynamo.utils.counters["frames"]["ok"]
def breaks(): return sum(dynamo.utils.counters["graph_break"].values())
class Own(torch.optim.Optimizer):
    def __init__(self, parameters): super().__init__(parameters, {"lr": 0.01})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]: p.add_(p.grad, alpha=-group["lr"])
# One breaks the graph around its step, the other is compiled in one with the hooks around it.
adam, own = torch.optim.Adam(model.parameters()), Own(model.parameters())
def with_agent():
    core = start(); until(reachable); until(lambda: "item" in vars(torch.Tensor))
    return core
def gone(core): leave(); until(lambda: not core.alive())
"""
)


def test_a_compiled_model_is_not_compiled_again(tmp_path: Path) -> None:
    source = """
def branchy(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if x.sum() > 0: return x * x.sum().item()
        return x - float(x.max())
branchy, model = compiled(branchy), compiled(model)
def steps():
    values = [branchy(torch.full((3,), sign)).tolist() for sign in (1.0, -1.0, 2.0)]
    train(x, y)
    return values
values = steps(); steps(); count = compiles()
core = with_agent(); until(lambda: after)
assert steps() == values and steps() == values
assert compiles() == count, (compiles(), count)
gone(core)
assert steps() == values
assert compiles() == count and not after
# What is compiled while it is there is the same, too.
def everything():
    dynamo.reset(); dynamo.utils.counters.clear(); graphs.clear()
    values = [steps() for _ in range(3)]
    return values, list(graphs), breaks()
alone = everything()
core = with_agent(); until(lambda: after)
assert everything() == alone
gone(core)
assert everything() == alone
"""
    run(COMPILING + source, tmp_path)


def test_a_compiled_step_is_not_compiled_again(tmp_path: Path) -> None:
    source = """
for optimizer in (adam, own):
    dynamo.reset()
    @compiled
    def update(): optimizer.step()
    def steps():
        for _ in range(3): train(x, y); update()
    steps(); steps(); count = compiles()
    core = with_agent()
    steps()
    assert compiles() == count, (compiles(), count)
    assert not before and not after
    gone(core)
    steps()
    assert compiles() == count
""".replace("train(x, y)", "model(x).sum().backward()")
    run(COMPILING + source, tmp_path)


def test_a_step_compiled_with_the_agent_inside_is_not_compiled_again(tmp_path: Path) -> None:
    source = """
core = with_agent(); until(lambda: after)
@compiled
def update(): adam.step()
@compiled
def update_own(): own.step()
def steps():
    for _ in range(3): model(x).sum().backward(); update(); update_own()
def rests(): return id in [cell.cell_contents for cell in after[-1].__closure__]
steps(); steps(); count = compiles()
for _ in range(2):
    gone(core)
    left = [*before.values(), *after.values()]
    steps()
    assert compiles() == count, (compiles(), count)
    assert rests()
    core = with_agent()
    assert [*before.values(), *after.values()] == left and len(left) == 2
    assert not rests()
    steps()
    assert compiles() == count
gone(core)
"""
    run(COMPILING + source, tmp_path)


def test_a_compiled_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "step_is_compiled", lambda: True)
    with probe() as observed:
        why = "torch.compile has compiled one, and would again for a hook of ours"
        assert observed.said == [f"no optimizer steps: {why}"]


def test_steps_that_a_compiler_swallowed_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with probe() as observed:
        monkeypatch.setattr(steps_module, "step_is_compiled", lambda: True)
        for _ in range(2 * steps_module.SILENT_SECONDS):
            observed.second()
        monkeypatch.undo()
        why = "steps of an optimizer that torch.compile has compiled are not seen"
        assert observed.said == [why]


def test_hooks_that_must_stay_rest_and_work_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (
        vars(sys.modules["torch.optim.optimizer"])[f"_global_optimizer_{when}_hooks"]
        for when in ("pre", "post")
    )
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with probe() as observed:
        monkeypatch.setattr(steps_module, "step_is_compiled", lambda: True)
        optimizer.step()
        assert observed.second()[wire.OPTIMIZER_STEPS] == 1
        (ours,) = after.values()
    try:
        assert list(after.values()) == [ours]
        stepped.clear()
        optimizer.step()
        assert not steps_module.inside
        assert not stepped
        with probe() as observed:
            optimizer.step()
            assert observed.second()[wire.OPTIMIZER_STEPS] == 1
            assert observed.said == []
            assert list(after.values()) == [ours]
    finally:
        before.clear()
        after.clear()


@pytest.mark.parametrize("torch_first", [True, False])
def test_a_step_marked_within_one_whole_graph_does_not_end_the_job(
    torch_first: bool, tmp_path: Path
) -> None:
    source = (
        COMPILING
        + IMPORT_MARKS
        + f"""
marks = bring()
def act(x):
    marks.step()
    return x * 2
act = torch.compile(act, backend=backend, fullgraph=True)
if {torch_first}: act(torch.ones(3))
core = with_agent()
until(lambda: marks.listener is not None)
for _ in range(3): assert act(torch.ones(3)).tolist() == [2.0] * 3
marks.step(); marks.step()
gone(core)
assert marks.listener is None
assert act(torch.ones(3)).tolist() == [2.0] * 3
print("well")
"""
    )
    assert run(source, tmp_path).strip().endswith("well")
