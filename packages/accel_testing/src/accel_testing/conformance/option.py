"""pytest's options `--accel NAME`, the backend to check, and `--accel-expected FILE`.

pytest imports this in every run where accel-core is installed: it imports nothing else of accel_core until
one of the options is given. With accel-simulated the device that `--accel` names is simulated as well.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_collection_modifyitems"]


def pytest_addoption(parser: Any) -> None:
    """Add `--accel` and `--accel-expected`."""
    group = parser.getgroup("accel")
    accel_help = (
        "The backend that accel_testing.conformance checks. With accel-simulated: the devices to simulate, "
        "such as acme:2; several by comma: one run each, and a table at the end."
    )
    _add(group, "--accel", metavar="NAME[:COUNT],...", help=accel_help)
    expected_help = (
        "A TOML file of the checks of accel_testing.conformance that are skipped "
        "or fail, with reasons."
    )
    _add(group, "--accel-expected", metavar="FILE", help=expected_help)


def _add(group: Any, name: str, **attributes: str) -> None:
    """Add an option, unless the project's own pytest has one of that name."""
    # A project may have an option of that name: its pytest must work, and ours is left out.
    with contextlib.suppress(ValueError):
        group.addoption(name, **attributes)


def pytest_collection_modifyitems(config: Any, items: list[pytest.Item]) -> None:
    """Mark the checks in the file of `--accel-expected` as skipped or expected failures."""
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
