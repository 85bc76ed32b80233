"""The part ``precision``: regions of autocast, switches for faster products, threads of them.

The flags are read at their source: their older getters raise or warn once the newer were used.
"""

from __future__ import annotations

from collections import deque
from types import FunctionType, MethodType

from ..framework import Part
from ..modules import Missing, loaded, need
from ..wire import AUTOCASTS
from .patch import copy_names, hide, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Regions entered between two seconds.
CAPACITY = 65_536
MOST_DTYPES = 8
# Our names for what torch keeps: where the newer getter finds it, and the older one.
MULTIPLICATIONS = {
    "matmul_precision": ("matmul", "_get_cublas_allow_tf32"),
    "convolution_precision": ("conv", "_get_cudnn_allow_tf32"),
}
SWITCHES = {
    "cudnn_benchmark": "_get_cudnn_benchmark",
    "cudnn_deterministic": "_get_cudnn_deterministic",
    "deterministic_algorithms": "_get_deterministic_algorithms",
    "float32_matmul_precision": "_get_float32_matmul_precision",
    "num_threads": "get_num_threads",
}


class Autocasts(Part):
    """Counts the regions of reduced precision that are entered."""

    name = "autocast"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._entered: deque[Any] = deque(maxlen=CAPACITY)
        self._total = self._missed = 0
        self._dtypes: set[str] = set()

    def begin(self) -> None:
        """Wrap ``__enter__``."""
        autocast = need("torch.amp.autocast_mode", "autocast")
        original = need("torch.amp.autocast_mode", "autocast", "__enter__")
        if type(original) is not FunctionType:
            raise Missing("torch.amp.autocast_mode.autocast is entered in another way")
        ours = _Entered(original, _enter(original, self._entered.append))
        replace(self.hooks, autocast, "__enter__", ours)

    def second(self, _now: int) -> dict[str, int | None]:
        """Add up the regions."""
        number = len(self._entered)
        if number == CAPACITY:
            self._missed += 1
        for dtype in {self._entered.popleft() for _ in range(number)}:
            if len(self._dtypes) < MOST_DTYPES:
                self._dtypes.add(str(dtype).rpartition(".")[2])
        self._total += number
        return {AUTOCASTS: self._total}

    def facts(self) -> dict[str, Any]:
        """Return the types of the regions."""
        return {"autocast": sorted(self._dtypes)}

    def lost(self) -> int:
        """Return how often there were too many."""
        return self._missed


class Switches(Part):
    """Reads the flags."""

    name = "precision flags"

    def begin(self) -> None:
        """Find the getters that this version has."""
        names = loaded("torch._C") or {}
        newer = names.get("_get_fp32_precision_getter")
        self._getters: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}
        for name, (operation, older) in MULTIPLICATIONS.items():
            if newer is not None:
                self._getters[name] = newer, ("cuda", operation)
            elif older in names:
                self._getters[name] = names[older], ()
        for name, getter in SWITCHES.items():
            if getter in names and (newer is None or getter != "_get_float32_matmul_precision"):
                self._getters[name] = names[getter], ()
        if not self._getters:
            raise Missing("torch._C has none of the flags that we know")

    def facts(self) -> dict[str, Any]:
        """Return the flags' values."""
        found: dict[str, Any] = {}
        for name, (getter, args) in self._getters.items():
            value = getter(*args)
            found[name] = _word(value) if name in MULTIPLICATIONS else value
        found["default_dtype"] = _default_dtype()
        return found


class _Entered:
    """Counts entering by an instance; the class shows the original.

    TorchScript compiles what it finds in the class, and could not compile ours.
    """

    __slots__ = ("_original", "_ours")

    def __init__(self, original: Any, ours: Any) -> None:
        self._original = original
        self._ours = ours
        hide(_Entered.__get__)

    def __get__(self, region: Any, kind: Any = None) -> Any:
        return self._original if region is None else MethodType(self._ours, region)


def _enter(original: Callable[[Any], Any], append: Callable[[Any], None]) -> Callable[[Any], Any]:
    def __enter__(region: Any) -> Any:  # noqa: N807  it takes that one's place
        if getattr(region, "_enabled", False):
            append(getattr(region, "fast_dtype", None))
        return original(region)

    hide(__enter__)
    copy_names(__enter__, original)
    return __enter__


def _word(value: Any) -> str:
    """Return the newer name, also for the older flag."""
    if isinstance(value, bool):
        return "tf32" if value else "ieee"
    return str(value)


def _default_dtype() -> str | None:
    get = (loaded("torch") or {}).get("get_default_dtype")
    return None if get is None else str(get()).rpartition(".")[2]
