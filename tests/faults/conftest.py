"""The fault matrix's own package, and what every cell of it runs with."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
