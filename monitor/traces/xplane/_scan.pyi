from typing import Any

from numpy.typing import NDArray

def walk(
    data: bytearray, at: int, end: int, bodies: NDArray[Any], ends: NDArray[Any], row: int, /
) -> tuple[int, int]: ...
def decode(
    data: bytearray,
    bodies: NDArray[Any],
    ends: NDArray[Any],
    numbers: tuple[int, ...],
    texts: tuple[int, ...],
    name: NDArray[Any],
    start: NDArray[Any],
    duration: NDArray[Any],
    stats: NDArray[Any],
    odd: NDArray[Any],
    /,
) -> int: ...
