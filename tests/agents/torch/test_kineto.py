"""Questions to PyTorch's own library at moments in which it cannot answer."""

from __future__ import annotations

from pathlib import Path

from tests.agents.torch.inside import run

# A job that has profiled once, and the memory of the library's profiler.
PROFILED = """
load()
kineto = importlib.import_module("_whyidle_agent.torch.kineto")
import ctypes, threading, torch
from torch.profiler import profile, ProfilerActivity
# It prints there whenever a profile begins or ends.
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
with profile(activities=[ProfilerActivity.CPU]): torch.ones(3) + 1
mine = kineto.Kineto(threading.main_thread().ident)
words = (ctypes.c_void_p * 4).from_address(mine._words[1])
"""


def test_a_first_profile_that_is_getting_ready_is_not_asked(tmp_path: Path) -> None:
    source = """
assert not mine.is_active()
controls, words[3] = words[3], None
assert mine.is_active()
mine._bare_since -= kineto.READY_NS
assert not mine.is_active()
words[3] = controls
assert not mine.is_active()
with profile(activities=[ProfilerActivity.CPU]): assert mine.is_active()
print("done")
"""
    assert run(PROFILED + source, tmp_path).splitlines()[-1] == "done"


def test_a_profiler_of_another_shape_is_not_asked(tmp_path: Path) -> None:
    source = """
reference, words[2] = words[2], 1
try: mine.is_active()
except sys.modules["_whyidle_agent.modules"].Missing as missing: print(missing)
words[2] = reference
"""
    assert "another one than we know" in run(PROFILED + source, tmp_path)
