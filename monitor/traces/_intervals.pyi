from typing import Any

from numpy.typing import NDArray

def sweep(
    start: NDArray[Any],
    end: NDArray[Any],
    label: NDArray[Any],
    rows: NDArray[Any],
    none: int,
    time: NDArray[Any],
    labels: NDArray[Any],
    /,
) -> int: ...
def aligned(runs: tuple[NDArray[Any], ...], times: NDArray[Any], rows: NDArray[Any], /) -> int: ...
def tally(
    start: NDArray[Any],
    end: NDArray[Any],
    label: NDArray[Any],
    begin: int,
    stop: int,
    ticks: NDArray[Any],
    /,
) -> None: ...
