"""The mark on a plugin's hooks is pluggy's own, made without pluggy."""

from __future__ import annotations

import pluggy
import pytest

from accel_core import hookimpl
from accel_core.backend import PROJECT

MARK = f"{PROJECT}_impl"


def made(marker, **options):
    def accel_backends():
        return []

    marked = marker(**options)(accel_backends) if options else marker(accel_backends)
    assert marked is accel_backends
    return getattr(marked, MARK)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tryfirst": True},
        {"trylast": True},
        {"optionalhook": True},
        {"hookwrapper": True},
        {"wrapper": True},
        {"specname": "accel_probe"},
        {"specname": "accel_probe", "tryfirst": True},
    ],
    ids=str,
)
def test_it_leaves_what_pluggys_marker_leaves(options):
    assert made(hookimpl, **options) == made(pluggy.HookimplMarker(PROJECT), **options)


def test_every_option_of_pluggys_marker_is_there():
    assert set(made(hookimpl)) == set(made(pluggy.HookimplMarker(PROJECT)))


def test_a_plugin_that_is_only_read_loads_no_pluggy(world):
    world.backend("npu")
    code = "import json, sys, accel_core\naccel_core.discover()\nprint(json.dumps('pluggy' in sys.modules))"
    assert world.child(code).answer is False
