"""`memory_summary`: an allocator's statistics as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["summary"]

#: What is shown, by torch's key: first amounts of bytes, then counts.
_BYTES = {
    "allocated_bytes": "allocated memory",
    "active_bytes": "active memory",
    "requested_bytes": "requested memory",
    "reserved_bytes": "reserved memory",
    "inactive_split_bytes": "held in pieces",
}
_COUNTS = {
    "allocation": "allocations",
    "active": "active allocations",
    "segment": "reserved segments",
    "inactive_split": "pieces held",
}
_EVENTS = {"num_alloc_retries": "retries after a full device", "num_ooms": "out of memory"}
_POOLS = ("all", "large_pool", "small_pool")
_COLUMNS = {"current": "now", "peak": "peak", "allocated": "ever taken", "freed": "ever freed"}
_FIRST, _WIDTH = 28, 12


class _Summary(str):
    """A text that notebooks show with its line ends, in one width."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self, quote=False)}</pre>"


def summary(device: str, stats: Mapping[str, Any], memory: tuple[int, int] | None, abbreviated: bool) -> str:
    """The table of `stats`, which has torch's keys; `memory` is `(free, total)` bytes if known."""
    pools = _POOLS[:1] if abbreviated else _POOLS
    events = [f"{label}: {stats[key]}" for key, label in _EVENTS.items() if key in stats]
    width = _FIRST + len(_COLUMNS) * (_WIDTH + 3)
    rule = "-" * width
    lines = [f"Memory of {device}".center(width).rstrip(), rule, _line("", _COLUMNS.values())]
    tables = [[*_rows(stats, _BYTES, pools, _bytes)], [*_rows(stats, _COUNTS, pools, str)]]
    if not any(tables):
        tables = [["The device reports no memory statistics."]]
    for rows in filter(None, tables):
        lines += [rule, *rows]
    if memory is not None:
        events.insert(0, f"free for new work: {_bytes(memory[0])} of {_bytes(memory[1])}")
    if events:
        lines += [rule, "; ".join(events)]
    return _Summary("\n".join((*lines, rule)))


def _rows(
    stats: Mapping[str, Any], metrics: Mapping[str, str], pools: tuple[str, ...], shown: Any
) -> Iterator[str]:
    for key, label in metrics.items():
        for pool in pools:
            values = [stats.get(f"{key}.{pool}.{column}") for column in _COLUMNS]
            if any(value is not None for value in values):
                name = label if pool == "all" else f"  {pool.replace('_', ' ')}"
                yield _line(name, ("-" if value is None else shown(value) for value in values))


def _line(first: str, cells: Any) -> str:
    return first.ljust(_FIRST) + "".join(f" | {cell:>{_WIDTH}}" for cell in cells)


def _bytes(amount: int) -> str:
    """`"1536 KiB"`: in the unit that leaves at most five digits."""
    for unit in ("B", "KiB", "MiB"):
        if abs(amount) < 10_000:
            return f"{amount} {unit}"
        amount = round(amount / 1024)
    return f"{amount} GiB"
