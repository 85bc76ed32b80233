"""What lost time costs in energy and money, and what we cost ourselves."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import EnergyJson, OverheadJson
from whyidle.monitor.core.prices import Prices
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.window import Window
from whyidle.monitor.traces.causes import MEANING, Cause

NO_POWER: Final = "no power is read"
NO_GAIN: Final = "how much time it loses is not known"
NO_STEP: Final = "how long a step takes is not known"
NO_GPU: Final = "no GPU of the job is known"
NOT_RECORDED: Final = "only a recording knows it"
NOT_ENTERED: Final = "no agent was in the job"
NOT_SAID: Final = "the trace does not say it"
_COSTS: Final = ("watts_lost", "joules_per_step", "money_per_step", "money_per_hour")
NO_COST: Final = EnergyJson(
    **dict.fromkeys(_COSTS), currency="", unknown=dict.fromkeys(_COSTS, NO_GAIN)
)
HOUR: Final = 3600.0


def cost_of(lost: float | None, window: Window) -> EnergyJson:
    """Return what the share of the time that is expected back costs, at the power drawn now.

    A GPU that waits draws less than one that works: there it is the most that it can be.
    """
    if lost is None:
        return NO_COST
    prices = Prices.here()
    step_s = None if window.step_s is None else window.step_s.value
    watts = None if window.watts is None else window.watts.value * lost
    gpus = sum(gpu.owned for gpu in window.job.gpus)
    hourly, why = prices.of(None if watts is None else watts * HOUR, gpus * lost)
    if not gpus:
        hourly, why = None, NO_GPU
    values = {
        "watts_lost": (watts, NO_POWER),
        "joules_per_step": _each_step(watts, step_s, NO_POWER),
        "money_per_step": _each_step(None if hourly is None else hourly / HOUR, step_s, why),
        "money_per_hour": (hourly, why),
    }
    return EnergyJson(
        **{name: value for name, (value, _) in values.items()},
        currency=prices.currency,
        unknown={name: str(why) for name, (value, why) in values.items() if value is None},
    )


def _each_step(
    per_second: float | None, step_s: float | None, why: str | None
) -> tuple[float | None, str | None]:
    if per_second is None or step_s is None:
        return None, why if per_second is None else NO_STEP
    return per_second * step_s, None


def overhead(window: Window) -> OverheadJson:
    """Return what we take of the job's time and of its machine."""
    job, file = window.job, window.kind == "file"
    held = [trace.held_s for trace in window.traces if trace.held_s is not None]
    label, trace = MEANING[Cause.PROFILER][1], window.trace
    took = None if trace is None else trace.detail(Slice.IDLE_UNKNOWN, label)
    profiler = (took.value or None) if took else None
    values = {
        "agent_cores": (job.means.get(m.JOB_AGENT_CPU), NOT_RECORDED if file else NOT_ENTERED),
        "monitor_cores": (job.means.get(m.SELF_CPU), NOT_RECORDED),
        "monitor_rss_bytes": (job.means.get(m.SELF_RSS), NOT_RECORDED),
        "entering_s": (job.stopped_s, NOT_RECORDED if file else NOT_ENTERED),
        "traces_held_s": (sum(held) if held else None, NOT_RECORDED if file else NOT_SAID),
        "profiler_share": (profiler, NOT_SAID),
    }
    return OverheadJson(
        **{name: value for name, (value, _) in values.items()},
        traces=0 if file else len(window.traces),
        unknown={name: why for name, (value, why) in values.items() if value is None},
    )
