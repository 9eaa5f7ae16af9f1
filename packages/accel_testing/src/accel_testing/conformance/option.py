"""The pytest options `--accel NAME`, the backend to check, and `--accel-expected FILE`.

pytest imports this module in every run if accel-core is installed. The module imports nothing else from
accel_core unless one of the options is given. With accel-simulated, the device in `--accel` is simulated.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_collection_modifyitems"]


def pytest_addoption(parser: Any) -> None:
    """Add the options `--accel` and `--accel-expected` to pytest."""
    group = parser.getgroup("accel")
    accel_help = (
        "The backend that accel_testing.conformance checks. With accel-simulated: the devices to simulate, "
        "such as acme:2; several devices, separated by commas, are tested in one run each."
    )
    _add(group, "--accel", metavar="NAME[:COUNT],...", help=accel_help)
    expected_help = (
        "A TOML file with the checks of accel_testing.conformance to skip, and "
        "those expected to fail, with reasons."
    )
    _add(group, "--accel-expected", metavar="FILE", help=expected_help)


def _add(group: Any, name: str, **attributes: str) -> None:
    """Add an option, unless the project's pytest already has an option of this name."""
    # A project's option with the same name takes precedence, so that the project's tests still work.
    with contextlib.suppress(ValueError):
        group.addoption(name, **attributes)


def pytest_collection_modifyitems(config: Any, items: list[pytest.Item]) -> None:
    """Mark the checks that the `--accel-expected` file lists as skipped or as expected failures."""
    path = config.getoption("--accel-expected", None)
    if not path:
        return
    from pathlib import Path

    import pytest

    from accel_core.errors import SettingError
    from accel_testing.conformance.catalogue import name_of
    from accel_testing.conformance.expected import read

    try:
        expected = read(Path(path))
    except SettingError as error:
        raise pytest.UsageError(f"--accel-expected: {error}") from error
    for item in items:
        name = name_of(getattr(item, "function", None))
        if name in expected.skip:
            item.add_marker(pytest.mark.skip(reason=expected.skip[name]))
        elif name in expected.fails:
            item.add_marker(pytest.mark.xfail(reason=expected.fails[name], strict=True))
