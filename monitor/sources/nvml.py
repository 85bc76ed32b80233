"""The only module that imports pynvml; its one call turns every failure into a reason in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from whyidle.monitor.core.errors import NoGpu
from whyidle.monitor.core.reading import HUNG, IDLE, LOST, NO_PERMISSION, UNSUPPORTED

# Called after each call with (function, arguments, seconds, result or error code), to record them.
Tap = Callable[[str, tuple[Any, ...], float, Any], None]

SUCCESS, NOT_FOUND, TIMEOUT = 0, 6, 10
NOT_SUPPORTED, FUNCTION_NOT_FOUND, GPU_IS_LOST, NO_DATA = 3, 13, 15, 21
LIBRARY_NOT_FOUND = 12
_REASONS = {
    SUCCESS: IDLE,
    NOT_SUPPORTED: UNSUPPORTED,
    4: NO_PERMISSION,
    NOT_FOUND: IDLE,
    9: "driver not loaded",
    TIMEOUT: HUNG,
    FUNCTION_NOT_FOUND: "driver too old",
    GPU_IS_LOST: LOST,
    16: "GPU needs a reset",
    NO_DATA: "no data yet",
    25: "driver too old",
    28: LOST,
}
# Answers that cannot change while the driver runs: asking again only costs time.
PERMANENT = frozenset({UNSUPPORTED, "driver too old", NO_PERMISSION})
# NVML's ways to say "no value" that arrive as numbers.
SENTINELS = frozenset({0xFFFFFFFF, 0xFFFFFFFE, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
_UNAVAILABLE = {
    9: (
        "The NVIDIA driver is not loaded, so nothing is known of the GPUs.",
        "Load it with `sudo modprobe nvidia`, then see: nvidia-smi",
    ),
    LIBRARY_NOT_FOUND: (
        "There is no NVIDIA driver library here (libnvidia-ml.so.1), so nothing is known of GPUs.",
        "On a GPU machine install the driver; in a container start it with: --gpus all",
    ),
    18: (
        "The NVIDIA driver and its library have different versions: nothing is known of the GPUs.",
        "After an update restart the machine or reload the kernel modules; then see: nvidia-smi",
    ),
    4: (
        "The NVIDIA driver does not let this user in, so nothing is known of the GPUs.",
        "Look at who may open it: ls -l /dev/nvidiactl",
    ),
}


class Unknown(Exception):  # noqa: N818  an answer, not a defect
    """NVML has no value to give, and this is why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Nvml:
    """NVML, opened once. Every query goes through :meth:`call`."""

    def __init__(self, tap: Tap | None = None) -> None:
        self._tap = tap
        self._module: Any = None

    def open(self) -> None:
        """Load the library and connect to the driver; raise a sentence if that fails."""
        import pynvml  # noqa: PLC0415  8,000 lines: load them only if GPUs are wanted

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            what, next_step = _UNAVAILABLE.get(
                error.value,
                (
                    f"NVML does not start ({error}), so nothing is known of the GPUs.",
                    "Ask the driver itself: nvidia-smi",
                ),
            )
            raise NoGpu(what, next_step) from None
        self._module = pynvml

    def call(self, function: str, *arguments: Any) -> Any:
        """Ask NVML; raise :class:`Unknown` with the reason when it does not answer."""
        started = time.monotonic()
        outcome: Any
        try:
            outcome = getattr(self._module, function)(*arguments)
        except self._module.NVMLError as error:
            outcome = error
        except AttributeError:
            # The binding is too old to have this function.
            raise Unknown(UNSUPPORTED) from None
        if self._tap is not None:
            self._tap(function, arguments, time.monotonic() - started, outcome)
        if isinstance(outcome, self._module.NVMLError):
            raise Unknown(reason_of(outcome.value)) from None
        return outcome

    def get(self, function: str, *arguments: Any) -> Any | None:
        """Ask NVML for a fact; ``None`` if it is missing."""
        try:
            return self.call(function, *arguments)
        except Unknown:
            return None

    def gpm_request(self, metric_ids: tuple[int, ...]) -> Any:
        """Return a reusable request for these GPM metrics, in its first slots."""
        request = self._module.c_nvmlGpmMetricsGet_t()
        request.version = self._module.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(metric_ids)
        for slot, metric_id in enumerate(metric_ids):
            request.metrics[slot].metricId = metric_id
        return request


def reason_of(code: int) -> str:
    """Return an NVML error code in words."""
    return _REASONS.get(code, f"NVML error {code}")


def text(value: bytes | str | None) -> str | None:
    """Return a string from NVML: depending on the version, the binding gives bytes or text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
