"""What several test files ask of accel_core, and two plugins to ask about."""

import os
from unittest import mock

from accel_core.plugins import find_backends
from accel_core.probe import Prober
from accel_core.select import discover, loader, select
from accel_core.settings import Settings, read
from accel_tests import plugins


def choose(environ):
    with mock.patch.dict(os.environ, environ):
        return select(read())


def chosen(**environ):
    return choose(environ).selection


def error(**environ):
    found = choose(environ)
    assert found.error is not None
    assert found.selection.name is None
    assert found.selection.problem == str(found.error)
    return found.error


def statuses(selection):
    return {v.name: v.status.value for v in selection.verdicts}


def names(candidates):
    return [c.name for c in candidates]


def only(name):
    (found,) = [c for c in discover() if c.name == name]
    return found


def judge(name="npu", settings=None, **options):
    candidates = discover()
    (found,) = [c for c in candidates if c.name == name and not c.builtin]
    return Prober(settings or Settings()).probe(found, candidates, **options)


def look(pin=None, settings=None, load=None):
    """What `find` gives under these settings."""
    settings = settings or read()
    return find_backends(pin, settings, load or loader(settings))


def vendor(world, source, **fields):
    """A backend whose vendor import is the module `torch_npu` with this source."""
    world.module("torch_npu", source)
    world.backend("npu", vendor_import="torch_npu", **fields)


def counting(world, body, **fields):
    """A backend whose `device_count()` has this body."""
    world.module("npu_device", plugins.ACCELERATOR.format(count=body))
    world.backend("npu", accelerator="npu_device:Simulated", **fields)
