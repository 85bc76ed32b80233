"""Numbers as text; an unknown one is a dash, never a zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from whyidle.monitor.core.metrics import Metric, Unit
from whyidle.monitor.core.reading import Reading

DASH = "–"  # noqa: RUF001  shorter than any value, and no minus
_BARS = "▁▂▃▄▅▆▇█"
# Smaller changes, as a part of the highest value, do not fill the height of a line.
NOISE: Final = 0.1
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", "k", "M", "G", "T", "P")


def of(reading: Reading | None, metric: Metric) -> str:
    """Return a metric of a reading, with its unit."""
    return show(None if reading is None else reading.get(metric), metric.unit)


def show(value: float | None, unit: Unit) -> str:
    """Return a value with its unit."""
    return DASH if value is None else _WRITERS[unit](value)


def _share(value: float) -> str:
    return f"{value * 100:.0f}%" if value >= 0.0995 or value == 0 else f"{value * 100:.1f}%"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def size(value: float) -> str:
    """Return bytes in binary units."""
    step = 0
    while value >= 1024 and step < len(_BINARY) - 1:
        value /= 1024
        step += 1
    return (
        f"{value:.0f} {_BINARY[step]}"
        if step == 0 or value >= 100
        else f"{value:.1f} {_BINARY[step]}"
    )


def out_of(part: float | None, whole: float | None) -> str:
    """Return bytes out of bytes, with one unit if they share it."""
    one, two = show(part, "bytes"), show(whole, "bytes")
    return f"{one.split()[0] if one.split()[-1] == two.split()[-1] else one} of {two}"


def scaled(value: float, unit: str) -> str:
    """Return a value in decimal units."""
    step = 0
    while value >= 1000 and step < len(_DECIMAL) - 1:
        value /= 1000
        step += 1
    digits = 0 if step == 0 or value >= 100 else 1
    return f"{value:.{digits}f} {_DECIMAL[step]}{unit}".replace(" /", "/")


def scaled_tightly(value: float) -> str:
    """Return a value without a unit in decimal units: ``2.6k``."""
    return scaled(value, "").replace(" ", "")


def duration(seconds: float) -> str:
    """Return a duration the way a clock shows it."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock


def amount(value: float | str, unit: str) -> str:
    """Return a measured number in any unit; text stays as it is."""
    if isinstance(value, str):
        return value
    if unit in {"s", "seconds"}:
        return duration(value) if value >= 10 else _seconds(value)
    if unit == "ratio":
        return _share(value)
    if unit.startswith("bytes"):
        return size(value) + unit.removeprefix("bytes").replace("_per_second", "/s")
    plain = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return (
        plain
        if unit in {"", "count"}
        else f"{plain} {unit}".replace(" 1/", " a ").replace("per_", "a ")
    )


def money(value: float, currency: str) -> str:
    """Return a sum of money; a small one to two digits that count."""
    text = f"{value:,.2f}" if value >= 1 else f"{value:.2g}"
    return f"{text} {currency}".rstrip()


def sparkline(values: Sequence[float | None], highest: float) -> str:
    """Return a row of bars; an unknown value is a dot."""
    return _bars(values, 0.0, highest)


def changes(values: Sequence[float | None], room: int) -> str:
    """Return the latest values as bars that show how they change, the newest at the end."""
    latest = values[-room:] if room > 0 else ()
    known = [value for value in latest if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    # What hardly changes is a line in the middle.
    margin = max(0.0, NOISE * high - (high - low)) / 2
    return _bars(latest, low - margin, high + margin)


def _bars(values: Sequence[float | None], lowest: float, highest: float) -> str:
    span = highest - lowest if highest > lowest else 1.0
    return "".join(
        "·" if v is None else _BARS[min(7, max(0, int((v - lowest) / span * 8)))] for v in values
    )


_WRITERS: dict[Unit, Callable[[float], str]] = {
    "ratio": _share,
    "bytes": size,
    "bytes_per_second": lambda v: scaled(v, "B/s"),
    "per_second": lambda v: scaled(v, "/s"),
    "watts": lambda v: f"{v:.0f} W",
    "joules": lambda v: scaled(v, "J"),
    "celsius": lambda v: f"{v:.0f} °C",
    "megahertz": lambda v: f"{v:.0f} MHz",
    "cores": lambda v: f"{v:.2f}" if v < 10 else f"{v:.0f}",
    "seconds": _seconds,
    "count": lambda v: f"{v:.0f}",
    "code": lambda v: f"{v:.0f}",
}
