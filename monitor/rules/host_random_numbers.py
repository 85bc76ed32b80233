"""The main thread draws random numbers on the host in every step.

## What it sees
Main-thread samples at lines that draw numbers with NumPy, Python or, on a GPU, PyTorch without a
device; also from a `deque`.

## Why it costs
A number takes 30 ns with NumPy, 100 ns to 1 µs with `random`, and must be copied.

## How to fix
Draw samples from a list or array, and overwrite the oldest.

## When it is wrong
Draws while the device is busy cost nothing. On a CPU, NumPy's newer generator is as fast as JAX's,
and half as fast as PyTorch's.

## Documents
Beyond the documents; D4's summary splits the keys outside the step.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.code.batches import is_of_a_deque
from whyidle.monitor.core.amounts import BEYOND_CHANCE
from whyidle.monitor.core.finding import FRAMEWORKS, Confidence, Evidence, Found
from whyidle.monitor.rules import Fix, Need, Rule, Slice, Verdict, Window
from whyidle.monitor.signals.activity import Activity, drawing, one_by_one
from whyidle.monitor.signals.gain import Side, busy, comes_back, idle_slice
from whyidle.monitor.signals.sampling import step_samples

# What comes back on a CPU, by what one number takes (``benchmarks/unit_costs.py``): NumPy 9 to 21
# ns, PyTorch 3 to 5, so that a seventh to a half of NumPy's time stays, and what copies go with it;
BACK_LEAST, BACK_MOST = 0.5, 0.95
# JAX 10 to 19 ns: as much as NumPy's newer generator, at best half as much as its older one;
OF_JAX_LEAST, OF_JAX_MOST = 0.0, 0.5
# Python's own with the loop around it 60 to 450 ns: of these a fifth stays at most, mostly less.
ONE_BY_ONE_LEAST, ONE_BY_ONE_MOST = 0.9, 0.99
# A GPU draws them in no time.
OF_GPU: Final = (ONE_BY_ONE_LEAST, 1.0)
DEQUE: Final = "Samples are drawn from a deque, which is slow to index"
# Of 128 samples of a deque of 10,000 places a list gives 0.26 back, of 100,000 0.58, of a million
# 0.9 (``benchmarks/unit_costs.py``); of fewer places the drawing itself takes the time.
OF_DEQUE_LEAST, OF_DEQUE_MOST = 0.2, 1.0
OF_A_DEQUE: Final = Fix(
    "Keep the samples in a list, and overwrite the oldest. A deque walks through its places to"
    " find each of them.",
    """\
class Memory:
    def __init__(self, most):
        self.items, self.most, self.added = [], most, 0

    def append(self, item):
        if len(self.items) < self.most:
            self.items.append(item)
        else:
            self.items[self.added % self.most] = item
        self.added += 1

    def __len__(self):
        return len(self.items)

    def sample(self, number):
        return random.sample(self.items, number)""",
)


def detect(window: Window) -> Verdict:
    """Judge the lines that draw."""
    doing = window.needed(drawing(window.job), Need.INSIDE)
    share = doing.share.value
    error, trace = step_samples(window.job).error(share), window.trace
    # A look or two at such a line may be chance.
    if share < BEYOND_CHANCE or share <= error:
        return None
    is_deque = any(is_of_a_deque(place.file, place.line) for place in doing.where[:1])
    # Whatever the numbers themselves cost, and wherever they could be drawn.
    least, most = (OF_DEQUE_LEAST, OF_DEQUE_MOST) if is_deque else _back(window, doing)
    gain = comes_back(window, least * (share - error), most * min(1.0, share + error), Side.HOST)
    if gain.high < BEYOND_CHANCE:
        return None
    part = idle_slice(trace)
    if window.device != "gpu":
        # What follows the numbers in PyTorch, as a conversion, counts as work. JAX is not even
        # called.
        part = Slice.IDLE_DISPATCH if window.computes("pytorch") else Slice.IDLE_UNKNOWN
    idle = None if trace is None else trace.measure(1.0 - busy(trace), "ratio")
    return Found(
        gain,
        Evidence.known({"main thread draws random numbers": doing.share, "device idle": idle}),
        doing.where,
        part,
        confidence=Confidence.INFERRED,
        title=DEQUE if is_deque else None,
        fixes=dict.fromkeys(FRAMEWORKS, OF_A_DEQUE) if is_deque else None,
    )


def _back(window: Window, doing: Activity) -> tuple[float, float]:
    """Return what part of the drawing the main thread saves; a CPU draws with the same cores."""
    if window.device == "gpu":
        return OF_GPU
    if one_by_one(doing):
        return ONE_BY_ONE_LEAST, ONE_BY_ONE_MOST
    if window.uses("jax"):
        return OF_JAX_LEAST, OF_JAX_MOST
    return BACK_LEAST, BACK_MOST


rule = Rule(
    title="The main thread draws random numbers on the host",
    documents=("beyond the documents", "D4 summary"),
    fixes={
        "pytorch": Fix(
            "Draw them on the device.",
            "noise = torch.randn(x.shape, device=x.device, dtype=x.dtype)",
        ),
        "jax": Fix(
            "Draw them in the compiled step, with a key derived outside it.",
            """\
@jax.jit
def step(params, x, key):
    kept = jax.random.bernoulli(key, 0.7, x.shape)
    return params - 0.1 * jax.grad(loss)(params, x * kept)

for number in range(steps):
    params = step(params, x, jax.random.fold_in(key, number))""",
        ),
    },
)
