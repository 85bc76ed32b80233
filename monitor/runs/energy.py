"""What the job's GPUs used over a whole recording, in energy and money."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.summary import RunEnergyJson
from whyidle.monitor.core.prices import Prices
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.store import Gpu

NO_GPU: Final = "no GPU of the job was read"
NO_POWER: Final = "neither energy nor power of each GPU was read"
NO_STEPS: Final = "its steps are not known"


def energy_of(summary: RunSummary) -> RunEnergyJson:
    """Return the energy of the job's GPUs, idle or not, and what it cost at the prices set."""
    gpus = [gpu for gpu in summary.gpus if gpu.idx in summary.owned]
    each = [_joules(summary, gpu) for gpu in gpus]
    known = [joules for joules in each if joules is not None]
    joules = sum(known) if known and len(known) == len(each) else None
    steps, hours = summary.trained.steps, len(gpus) * summary.seconds / 3600
    prices = Prices.here()
    money, why = prices.of(joules, hours) if gpus else (None, NO_GPU)
    reasons = {
        "joules": None if joules is not None else NO_POWER if gpus else NO_GPU,
        "joules_per_step": None if joules and steps else NO_STEPS if joules else NO_POWER,
        "money": why,
    }
    return RunEnergyJson(
        joules=joules,
        joules_per_step=joules / steps if joules and steps else None,
        gpu_hours=round(hours, 6),
        money=money,
        currency=prices.currency,
        unknown={name: reason for name, reason in reasons.items() if reason is not None},
    )


def _joules(summary: RunSummary, gpu: Gpu) -> float | None:
    """Return the energy of one GPU: by its counter, else by the power that it drew on average."""
    counted, drawn = summary.of(m.GPU_ENERGY, gpu.id), summary.of(m.GPU_POWER, gpu.id)
    if counted is not None:
        return counted.most
    return None if drawn is None else drawn.mean * summary.seconds
