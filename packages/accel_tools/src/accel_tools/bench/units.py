"""Format figures for people."""

from __future__ import annotations

from accel_tools.bench.records import Measurement

__all__ = ["in_words", "scaled"]

_PREFIXES = (
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "u"),
    (1e-9, "n"),
)


def scaled(value: float, unit: str) -> str:
    """Format a value and its unit as text of at most 12 characters, such as `"21.3 GB/s"`.

    The number has three significant digits, and the unit has a prefix for a power of 1000.
    """
    # From 0.9995 on, a number is rounded up to 1.
    fitting = [pair for pair in _PREFIXES if value >= 0.9995 * pair[0]]
    size, prefix = fitting[0] if fitting else _PREFIXES[-1]
    number = value / size
    decimals = 0
    if number < 9.995:
        decimals = 2
    elif number < 99.95:
        decimals = 1
    return f"{number:.{decimals}f} {prefix}{unit}"


def in_words(measurement: Measurement) -> str:
    """Return the measurement's value as text, or a dash if the value is missing."""
    if measurement.value is None:
        return "-"
    return scaled(measurement.value, measurement.unit)
