"""Traces of jobs of PyTorch that have no optimizer: they begin and end where a batch arrives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.pythons import Client
from tests.agents.traced import TORCH, UNTIL_TOLD, Tracing, job
from tests.longer import LONG

BEGIN = """
start(); until(reachable)
sys.modules["_whyidle_agent.tracing"].LEAST_PAUSE_NS = 1
sys.modules["_whyidle_agent.torch.tracing"].WITHOUT_STEPS_NS = 100_000_000
sys.modules["_whyidle_agent.trace_window"].TraceWindow.late = lambda *a: None
items = torch.utils.data.TensorDataset(torch.randn(4096, 8))
def infer(workers=0):
    for batch, in torch.utils.data.DataLoader(items, batch_size=8, num_workers=workers):
        if told.is_set(): return
        yield batch
"""
JOBS = {
    "inference": """
ready()
with torch.inference_mode():
    while not told.is_set():
        for batch in infer(): model(batch)
""",
    "an update by hand": """
ready()
while not told.is_set():
    for batch in infer():
        model(batch).pow(2).mean().backward()
        with torch.no_grad():
            for p in model.parameters(): p -= 0.01 * p.grad; p.grad = None
""",
    "blocks around": """
ready()
with torch.no_grad(), torch.profiler.record_function("all of it"):
    while not told.is_set():
        for i, batch in enumerate(infer()):
            with torch.profiler.record_function(f"batch {i}"): model(batch)
""",
    "signals": """
import signal
class Told(Exception): pass
caught = 0
def raises(*a): raise Told
signal.signal(signal.SIGALRM, raises)
ready()
while not told.is_set():
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
        try:
            for batch in infer(): model(batch)
        finally: signal.setitimer(signal.ITIMER_REAL, 0)
    except Told: caught += 1
assert caught
""",
}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_without_an_optimizer_is_traced(name: str, tmp_path: Path) -> None:
    with job(TORCH + UNTIL_TOLD + BEGIN + JOBS[name], tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            tracing = Tracing(client)
            for _ in range(3 if LONG else 1):
                record = tracing.take(seconds=0.05)
                assert record[3] == "done", record
                text = (client.home / record[4]["file"]).read_text()
                names = {e.get("name") for e in json.loads(text)["traceEvents"]}
                assert "aten::addmm" in names
        process.ends_well()


def test_a_batch_that_another_thread_takes_is_no_moment_for_a_trace(tmp_path: Path) -> None:
    body = """
sys.modules["_whyidle_agent.tracing"].PATIENCE_NS = 3_000_000_000
ready()
def other():
    while not told.is_set():
        for batch in infer(): model(batch)
thread = threading.Thread(target=other); thread.start()
while not told.is_set(): model(data)
thread.join()
"""
    with job(TORCH + UNTIL_TOLD + BEGIN + body, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            record = Tracing(client).take(seconds=0.05)
            assert record[3] == "failed"
            assert "nor came a batch" in record[4]["why"]
        process.ends_well()
