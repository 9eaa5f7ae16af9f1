"""A test of `plugin` is of each plugin."""

from accel_contracts.plugins import PLUGINS


def pytest_generate_tests(metafunc):
    if "plugin" in metafunc.fixturenames:
        metafunc.parametrize("plugin", PLUGINS, ids=[path.name for path in PLUGINS])
