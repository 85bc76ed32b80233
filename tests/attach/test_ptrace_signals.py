"""What the job's own signals do while it is entered."""

from __future__ import annotations

import os

import pytest

from tests.attach.victims import running

pytestmark = [
    pytest.mark.ptrace,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only"),
]


RAISING = """
import json, select, signal, sys
class Raised(BaseException):
    pass
rang = raised = 0
def count(*_):
    global rang
    rang += 1
    raise Raised
signal.signal(signal.SIGALRM, count)
print("ready", flush=True)
while True:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        while True:
            [n for n in range(50)]
    except Raised:
        raised += 1
    if select.select([sys.stdin], [], [], 0)[0]:
        print(json.dumps({"rang": rang, "raised": raised}))
        break
"""


def test_what_a_handler_of_the_jobs_raises_reaches_the_job() -> None:
    slow = b"pass\n" * 3000
    with running(RAISING) as victim:
        assert all(victim.enter(slow).done for _ in range(20))
        result = victim.end()
        assert result["rang"] == result["raised"] > 0
