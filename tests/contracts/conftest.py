"""Finding the plugins, and the package of this folder that holds them against their vendors' surfaces."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from accel_contracts.plugins import PLUGINS  # noqa: E402


def pytest_generate_tests(metafunc):
    if "plugin" in metafunc.fixturenames:
        metafunc.parametrize("plugin", PLUGINS, ids=[path.name for path in PLUGINS])
