"""Small training programs, each with a fault (``BAD``) and without it."""

from __future__ import annotations

BEGINNING = """
import threading, time, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
stop = []
# Not by sys.stdin: a worker that is forked meanwhile waits for its lock.
def listen():
    os.read(0, 1); stop.append(1)
threading.Thread(target=listen, daemon=True).start()
def mlp(wide=64, deep=3):
    layers = [(nn.Linear(wide, wide), nn.ReLU()) for _ in range(deep)]
    return nn.Sequential(*[layer for pair in layers for layer in pair])
def update(model, optimizer, x, y, **how):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward(**how)
    optimizer.step()
    return loss
x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
model = mlp(); optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""

ENDING = """
step()
start(); until(reachable); ready()
while not stop: step()
"""

PROGRAMS = {
    "slow_loader": """
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.ones(64), 1
ahead = dict(num_workers=2, prefetch_factor=4, persistent_workers=True)
loader = torch.utils.data.DataLoader(Slow(), batch_size=16, **({} if BAD else ahead))
batches = iter(loader)
def step(): update(model, optimizer, *next(batches))
""",
    "item_logging": """
number = 0
many, of_many = torch.randn(1024, 64), torch.zeros(1024).long()
def step():
    global number
    loss = update(model, optimizer, many, of_many); number += 1
    if BAD or number % 100 == 0:
        [loss.item(), [p.grad.norm().item() for p in model.parameters()]]
""",
    "bf16": """
def step():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not BAD):
        update(model, optimizer, x, y)
""",
    "tiny_batch": """
data = torch.utils.data.TensorDataset(torch.randn(1 << 16, 64), torch.zeros(1 << 16).long())
loader = torch.utils.data.DataLoader(data, batch_size=4 if BAD else 256)
batches = iter(())
def step():
    global batches
    got = next(batches, None)
    if got is None: batches = iter(loader)
    else: update(model, optimizer, *got)
""",
    "graph_leak": """
total = torch.zeros(())
many, of_many = torch.randn(256, 64), torch.zeros(256).long()
def step():
    global total
    loss = update(model, optimizer, many, of_many, retain_graph=BAD)
    total = total + (loss if BAD else loss.detach())
""",
    "gc_churn": """
keep = [[i] for i in range(300000)]
class Cycle:
    def __init__(self): self.me = self; self.more = [1]
class Plain:
    __slots__ = ("more",)
    def __init__(self): self.more = 1
def step():
    made = [(Cycle if BAD else Plain)() for _ in range(2000)]
    update(model, optimizer, x, y)
""",
    "unbatched": """
def step():
    optimizer.zero_grad()
    if BAD:
        losses = [nn.functional.cross_entropy(model(a[None]), b[None]) for a, b in zip(x, y)]
        loss = sum(losses) / len(losses)
    else:
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""",
    "reallocation": """
buffer = torch.empty(16, 1 << 20)
def step():
    scratch = torch.zeros(16, 1 << 20) if BAD else buffer.zero_()
    update(model, optimizer, x + scratch[0, 0] * 0, y)
""",
}


def program(name: str, *, bad: bool) -> str:
    """Return the source of a program."""
    return BEGINNING + PROGRAMS[name].replace("BAD", str(bad)) + ENDING
