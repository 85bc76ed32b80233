"""A real job with the agent inside: what is reported of it, and that it stays as it was."""

from __future__ import annotations

from pathlib import Path

from tests.agents.torch.inside import TRAINING, run, training
from whyidle.agents import wire

# All of it exists, and runs, before the agent comes.
LIVE = """
import itertools
loader = torch.utils.data.DataLoader(data, sampler=itertools.cycle(range(640)), batch_size=16)
batches = iter(loader)
for _ in range(3): train(*next(batches))
start(); until(reachable); ready()
while not stop:
    x, y = next(batches)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = train(x, y)
    loss.item(); time.sleep(0.002)
"""


def test_a_live_job_reports_its_steps_waits_reads_and_settings(tmp_path: Path) -> None:
    with training(TRAINING + LIVE, tmp_path) as job:
        job.gauges(2)
        first, *_, last = job.gauges(4)
        grown = {name: last[name] - first[name] for name in last if last[name] is not None}
        steps = grown[wire.STEPS]
        assert steps > 10
        for name in (wire.OPTIMIZER_STEPS, wire.LOADER_BATCHES, wire.AUTOCASTS, wire.SYNCS):
            assert abs(grown[name] - steps) <= 2, name
        assert abs(grown[wire.SAMPLES] - 16 * steps) <= 32
        for name in (wire.OPTIMIZER_NS, wire.LOADER_WAIT_NS, wire.SYNC_NS):
            assert 0 < grown[name] < 5_000_000_000, name
        assert last[wire.LOST] == 0
        job.says("model", "Net")
        job.says("parameters", 64 * 64 + 64 + 64 * 10 + 10)
        state = job.of("state")[-1][3]
        assert state["backend"] == "cpu"
        assert state["dtypes"] == {"float32": state["parameters"]}
        assert state["parameter_bytes"] == 4 * state["parameters"]
        assert state["batch_size"] == 16
        assert state["loaders"] == [
            {
                "workers": 0, "pin_memory": False, "persistent_workers": False,
                "prefetch_factor": None, "batch_size": 16, "kind": "map",
                "dataset": "TensorDataset",
            }
        ]  # fmt: skip
        assert state["autocast"] == ["bfloat16"]
        assert state["world_size"] == 1
        assert "parallel" not in state
        source, span, count, durations = job.of("steps")[-1][2:]
        assert source == "optimizer"
        assert 0 < sum(durations) * count // len(durations) < 2 * span
        _, places = job.until("reads", lambda record: record[2] == "item")[2:]
        assert [place[2][2] for place in places] == ["<module>"]
        assert not [r for r in job.of("probe") if r[2] == "torch" and r[4] is not None]


def test_the_users_profiler_says_what_a_step_is(tmp_path: Path) -> None:
    source = """
start(); until(reachable); ready()
from torch.profiler import profile, schedule, ProfilerActivity
x, y = data[:16]
when = schedule(wait=10**9, warmup=1, active=1)
with profile(activities=[ProfilerActivity.CPU], schedule=when) as p:
    while not stop:
        for _ in range(3): train(x, y)
        p.step()
"""
    with training(TRAINING + source, tmp_path) as job:
        job.until("steps", lambda record: record[2] == "ProfilerStep")
        first, *_, last = job.gauges(4)
        steps = last[wire.STEPS] - first[wire.STEPS]
        assert abs(last[wire.OPTIMIZER_STEPS] - first[wire.OPTIMIZER_STEPS] - 3 * steps) <= 6


def test_a_job_that_imports_torch_later_is_reported(tmp_path: Path) -> None:
    source = "start(); until(reachable); ready(); time.sleep(1)\n" + TRAINING
    source += "x, y = data[:16]\nwhile not stop: train(x, y)\n"
    with training(source, tmp_path, anew=True) as job:
        job.until("steps", lambda record: record[4] > 3)


def test_results_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    source = """
if WITH: start(); until(reachable); until(lambda: hooks._global_optimizer_post_hooks)
torch.manual_seed(1)
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
losses = []
for _ in range(3):
    for x, y in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16): losses.append(train(x, y).item())
print(losses, [float(p.detach().sum()) for p in model.parameters()])
"""
    with_it, without = (
        run(TRAINING + source.replace("WITH", each), tmp_path) for each in ("True", "False")
    )
    assert with_it == without
    assert len(with_it) > 1000


def test_all_is_as_before_when_the_agent_has_left(tmp_path: Path) -> None:
    source = """
import torch.profiler, torch.utils.data.dataloader as loading
def state():
    places = (torch.Tensor, loading._BaseDataLoaderIter, torch.amp.autocast_mode.autocast,
              torch.profiler.profiler.profile, torch.cuda.streams.Stream, torch.cuda.streams.Event,
              torch._C, torch.cuda, torch.autograd.profiler.profile)
    return [dict(vars(place)) for place in places] + [
        dict(hooks._global_optimizer_pre_hooks), dict(hooks._global_optimizer_post_hooks)]
def own(*_): pass
handle = hooks.register_optimizer_step_post_hook(own)
x, y = data[:16]
loader = torch.utils.data.DataLoader(data)
train(x, y).item(); next(iter(loader))
before = state()
for _ in range(2):
    core = start(); until(reachable); until(lambda: state() != before)
    for _ in range(10): train(x, y).item(); next(iter(loader))
    held = torch.Tensor.item, x.sum().item
    leave(); until(lambda: not core.alive())
    after = state()
    for one, two in zip(before, after):
        assert one == two, {k for k in {*one, *two} if one.get(k) is not two.get(k)}
        assert list(one) == list(two) or set(one) == set(two)
    # What was taken hold of meanwhile still works.
    assert held[1]() == x.sum().item() == held[0](x.sum())
    train(x, y)
"""
    run(TRAINING + source, tmp_path)


def test_what_somebody_put_over_ours_stays_and_works(tmp_path: Path) -> None:
    source = """
import torch.utils.data.dataloader as loading
iterator = loading._BaseDataLoaderIter
plain = iterator.__next__
core = start(); until(reachable); until(lambda: iterator.__next__ is not plain)
ours = iterator.__next__
calls = []
def theirs(self):
    calls.append(1)
    return ours(self)
iterator.__next__ = theirs
item = torch.Tensor.item
torch.Tensor.item = lambda self: (calls.append(2), item(self))[1]
leave(); until(lambda: not core.alive())
assert iterator.__next__ is theirs
assert len(list(torch.utils.data.DataLoader(data, batch_size=64))) == 10
assert torch.ones(()).item() == 1.0
assert calls.count(1) == 11 and calls.count(2)
"""
    run(TRAINING + source, tmp_path)


def test_an_exception_of_the_jobs_passes_through(tmp_path: Path) -> None:
    source = """
core = start(); until(reachable); until(lambda: hooks._global_optimizer_post_hooks)
class Own(BaseException): pass
class Bad(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): raise Own(i)
class Odd(torch.optim.SGD):
    def step(self, closure=None): raise Own("step")
def fails(do, kind, *args):
    try: do()
    except kind as error: assert not args or error.args == args, error.args
    else: raise AssertionError(do)
for _ in range(3):
    fails(lambda: next(iter(torch.utils.data.DataLoader(Bad()))), Own, 0)
    fails(Odd(model.parameters(), lr=1.0).step, Own, "step")
    fails(torch.ones(3).item, RuntimeError)
    fails(lambda: bool(torch.ones(3)), RuntimeError)
    fails(lambda: torch.ones(3).item(4), TypeError)
    fails(lambda: next(iter([])), StopIteration)
assert len(list(torch.utils.data.DataLoader(data, batch_size=64))) == 10
# A thread of nothing but C.
import _thread
before = tasks()
left = [torch.ones(()) for _ in range(50)]
for one in left: _thread.start_new_thread(one.item, ())
train(*data[:16])
until(lambda: tasks() == before)
"""
    run(TRAINING + source, tmp_path)


def test_threads_that_train_at_once_are_counted(tmp_path: Path) -> None:
    source = """
start(); until(reachable); ready()
until(lambda: hooks._global_optimizer_post_hooks)
def own():
    net = nn.Linear(8, 8); optimizer = torch.optim.Adam(net.parameters())
    for _ in range(200):
        net(torch.ones(2, 8)).sum().backward(); optimizer.step(); optimizer.zero_grad()
threads = [threading.Thread(target=own) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
until(lambda: stop, 60)
"""
    with training(TRAINING + source, tmp_path) as job:
        job.until("gauges", lambda record: record[2].get(wire.OPTIMIZER_STEPS) == 800)
