"""The simulated devices' own tests: a process for each vendor, whose answers several tests read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from accel_simulated import VENDORS, CannotBuildError, build, run_on  # noqa: E402 - found by the line above


@pytest.fixture(scope="session")
def simulated() -> Callable[..., Any]:
    """`run_on`; a test that uses it is skipped, with the reason, where no device can be built."""

    def run(vendor: str, *arguments: Any, **options: Any) -> Any:
        try:
            build(VENDORS[vendor].kind)
        except CannotBuildError as error:
            pytest.skip(str(error))
        return run_on(vendor, *arguments, **options)

    return run
