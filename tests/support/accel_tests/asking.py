"""What several test files ask of accel_core, and two plugins to ask about."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any
from unittest import mock

from accel_core.detection import Candidate, Choice, Selection, Unloaded, Verdict
from accel_core.detection.discovery import Load, find_candidates
from accel_core.detection.probe import Prober
from accel_core.detection.select import discover, loader, select
from accel_core.errors import AccelError
from accel_core.settings import Pin, Settings, read
from accel_tests import plugins


def choose(environ: dict[str, str]) -> Choice:
    with mock.patch.dict(os.environ, environ):
        return select(read())


def chosen(**environ: str) -> Selection:
    return choose(environ).selection


def error(**environ: str) -> AccelError:
    found = choose(environ)
    assert found.error is not None
    assert found.selection.chosen is None
    assert found.selection.problem == str(found.error)
    return found.error


def statuses(selection: Selection) -> dict[str, str]:
    return {v.name: v.status.value for v in selection.verdicts}


def names(candidates: Iterable[Candidate | Unloaded]) -> list[str]:
    return [c.name for c in candidates]


def only(name: str) -> Candidate | Unloaded:
    (found,) = [c for c in discover() if c.name == name]
    return found


def judge(name: str = "npu", settings: Settings | None = None, **options: bool) -> Verdict:
    candidates = discover()
    (found,) = [c for c in candidates if c.name == name and not c.builtin]
    return Prober(settings or Settings()).probe(found, candidates, **options)


def look(
    pin: Pin | None = None, settings: Settings | None = None, load: Load | None = None
) -> tuple[Candidate | Unloaded, ...]:
    """What `find` gives under these settings."""
    settings = settings or read()
    return find_candidates(pin, settings, load or loader(settings))


def vendor(world: Any, source: str, **fields: object) -> None:
    """A backend whose vendor import is the module `torch_npu` with this source."""
    world.module("torch_npu", source)
    world.backend("npu", vendor_import="torch_npu", **fields)


def counting(world: Any, body: str, **fields: object) -> None:
    """A backend whose `device_count()` has this body."""
    world.module("npu_device", plugins.ACCELERATOR.format(count=body))
    world.backend("npu", accelerator="npu_device:Simulated", **fields)
