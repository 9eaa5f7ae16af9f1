"""Format measured values and sizes as human-readable text."""

from __future__ import annotations

from accel_tools.bench.records import Measurement

__all__ = ["format_bytes", "format_value", "format_with_prefix"]

#: Unit prefixes and their factors, largest first.
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


def format_with_prefix(value: float, unit: str) -> str:
    """Format a value and its unit as text of at most 12 characters, such as `"21.3 GB/s"`.

    The number has three significant digits, and the unit has a prefix for a power of 1000.
    """
    factor, prefix = _PREFIXES[-1]
    for larger_factor, larger_prefix in _PREFIXES:
        if value >= 0.9995 * larger_factor:  # 0.9995 is rounded up to 1.00.
            factor, prefix = larger_factor, larger_prefix
            break
    number = value / factor
    # The number has three significant digits.
    decimals = 0
    if number < 9.995:
        decimals = 2
    elif number < 99.95:
        decimals = 1
    return f"{number:.{decimals}f} {prefix}{unit}"


def format_value(measurement: Measurement) -> str:
    """Return the measurement's value as text, such as `"21.3 GB/s"`.

    Returns a dash if the value is missing.
    """
    if measurement.value is None:
        return "-"
    return format_with_prefix(measurement.value, measurement.unit)


def format_bytes(amount: int) -> str:
    """Return a number of bytes as text, such as `"128 MiB"`, `"512 KiB"` or `"100 B"`.

    A unit is used only if the number is a multiple of a quarter of this unit, so the text is exact.
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        is_multiple_of_a_quarter = amount * 4 % size == 0
        if amount >= size and is_multiple_of_a_quarter:
            return f"{amount / size:.12g} {unit}"
    return f"{amount} B"
