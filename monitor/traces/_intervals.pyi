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
def blended(
    time: NDArray[Any],
    label: NDArray[Any],
    other_time: NDArray[Any],
    other_label: NDArray[Any],
    table: NDArray[Any],
    labels: int,
    none: int,
    times: NDArray[Any],
    both: NDArray[Any],
    /,
) -> int: ...
def following(run: NDArray[Any], times: NDArray[Any], rows: NDArray[Any], /) -> None: ...
