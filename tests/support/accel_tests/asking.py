"""What several test files ask of accel_core, and two plugins to ask about."""

import os
import warnings
from unittest import mock

import accel_core
from accel_core import current
from accel_core.backend import Provenance
from accel_core.hardware.visible_devices import visible_devices_variables
from accel_core.plugins import find_backends
from accel_core.probe import Prober
from accel_core.select import discover, loader, select
from accel_core.settings import Settings, read
from accel_core.verdict import Reason, Status, Verdict, Why
from accel_tests import plugins


def chosen(**environ):
    """The selection under these variables."""
    with mock.patch.dict(os.environ, environ):
        return select(read())


def error(**environ):
    """The error of a choice that fails under these variables."""
    found = chosen(**environ)
    assert found.error is not None
    assert found.name is None
    assert found.problem == str(found.error)
    return found.error


def fallback_warnings(call=accel_core.get_accelerator):
    """What Python's warnings say while `call` chooses, as in a process that has not chosen yet."""
    accel_core.set_accelerator(None)
    current._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return caught


def statuses(selection):
    return {v.name: v.status.value for v in selection.verdicts}


def names(verdicts):
    return [v.name for v in verdicts]


def discovered(name):
    """The one backend of that name which `discover()` finds."""
    (found,) = [v for v in discover() if v.name == name]
    return found


def judge(name="npu", settings=None, *, isolated=False, **options):
    """The verdict on the one plugin's backend of that name."""
    backends = discover()
    (found,) = [v for v in backends if v.name == name and not v.builtin]
    prober = Prober(settings or Settings(), isolated=isolated)
    return prober.probe(found, backends, **options)


def look(pin=None, settings=None, load=None):
    """What a pin means under these settings."""
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


def verdict_on(backend, **fields):
    """A verdict on a declaration, whose plugin need not be installed."""
    source = backend.provenance or Provenance(f"accel-{backend.name}", "1.0")
    return Verdict(backend.name, source, backend, **fields)


def counts_none(backend, root):
    """The verdict on a device that the vendor counts none of, on a machine of files."""
    environ = visible_devices_variables(backend, os.environ)
    why = Why(Reason.COUNTS_NONE, {"root": root, "environ": environ})
    return verdict_on(backend, status=Status.NO_DEVICE, devices=0, why=why)
