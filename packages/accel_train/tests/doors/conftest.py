"""Frameworks in folders of their own (session `doors`), on the simulated `acme`, which none of them knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accel_tests.on_simulated import Run, run_on

from accel_simulated import VENDORS, CannotBuildError, build

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def beside() -> Callable[..., Run]:
    """`beside("verl", ...)`: `run_on` on acme with that framework's folder; skips where it is missing."""

    def start(framework: str, script: Path | str, *arguments: Any, **options: Any) -> Run:
        home = os.environ.get(f"ACCEL_DOOR_{framework.upper()}")
        if not home:
            pytest.skip(f"{framework} lies in a folder that the session doors makes: ./dev doors")
        try:
            build(VENDORS["acme"].kind)
        except CannotBuildError as error:
            pytest.skip(str(error))
        environ = {"OMP_NUM_THREADS": "1", **options.pop("environ", {})}
        vendor = options.pop("vendor", "acme")
        return run_on(vendor, script, *arguments, environ=environ, path=[home, HERE], timeout=300, **options)

    return start
