"""The table that ends a session: which training, on which backend, was equal to DeepSpeed's own."""

from __future__ import annotations

from ds_training.configurations import CONFIGURATIONS
from ds_training.runs import PATCHED, RANKS

__all__ = ["PROPERTY", "pytest_terminal_summary"]

#: Under this name a test reports a cell of the table; xdist carries it to the process that prints.
PROPERTY = "deepspeed training"


def pytest_terminal_summary(terminalreporter):
    """The table: configuration, ranks, and whether each backend's run equals DeepSpeed's own CPU's."""
    rows = {}
    for outcome in ("passed", "failed", "xfailed"):
        for report in terminalreporter.getreports(outcome):
            for row, backend, cell in (value for name, value in report.user_properties if name == PROPERTY):
                rows.setdefault(row, {})[backend] = cell
    if not rows:
        return
    terminalreporter.section("trained with DeepSpeed: equal to its own CPU accelerator to the last bit")
    known = [name for name in CONFIGURATIONS if name in rows]
    order = [*known, *sorted(row for row in rows if row not in known)]
    titles = {"reference": "deepspeed cpu", "cpu": "accel_core cpu", "acme": "acme (simulated)"}
    titles["plain"] = "plain (simulated)"
    titles |= {patch: f"acme, {patch}" for patch in PATCHED}
    terminalreporter.line(f"{'':40}{'ranks':>6}" + "".join(f"{title:>20}" for title in titles.values()))
    for row in order:
        cells = "".join(f"{rows[row].get(backend, ''):>20}" for backend in titles)
        terminalreporter.line(f"{row:40}{RANKS:>6}{cells}")
