"""How much of a recording is read to judge it, so that an answer takes as long for any run."""

from __future__ import annotations

from typing import Final

# Of a stack; no agent sends deeper chains, but a store may hold anything.
MOST_FRAMES: Final = 30
# Of each series; what a roll-up holds is read whatever the length of the run.
POINTS: Final = 200
# Of each kind of event, the newest. Stacks come every ten seconds at first, later every minute.
MOST_EVENTS: Final = 600
# Of what is only needed of the last minutes: facts that are said again, the stacks of each rank.
NEWEST: Final = 20
# Of a job, on its GPUs, as its ranks. A machine has at most sixteen GPUs.
MOST_PROCESSES: Final = 64
