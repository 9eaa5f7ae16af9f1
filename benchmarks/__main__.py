"""`python -m benchmarks`: all rows that need no other framework."""

from __future__ import annotations

import sys

from benchmarks import calling, commands, finding
from benchmarks.harness import show

if __name__ == "__main__":
    sys.exit(
        show(
            "core",
            "What the interface costs",
            [*finding.rows(), *calling.rows(), *commands.rows()],
        )
    )
