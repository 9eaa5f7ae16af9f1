"""Ray's names in our declarations, held against the installed Ray (session `integrations`)."""

import sys
from importlib.metadata import entry_points

import pytest

from accel_core import Backend

DECLARED = [
    backend
    for entry in entry_points(group="accel.backends")
    if entry.dist and entry.dist.name.startswith("accel-")
    for backend in vars(entry.load()).values()
    if isinstance(backend, Backend) and backend.request.ray
]


def test_the_plugins_with_a_name_in_ray():
    assert sorted({backend.name for backend in DECLARED}) == [
        "cuda", "hpu", "neuron", "npu", "rbln", "tpu", "xpu", "xpu.external",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "backend", DECLARED, ids=lambda backend: f"{backend.name} {backend.hardware}"
)
def test_ray_has_that_resource_and_reads_that_variable(backend):
    accelerators = pytest.importorskip("ray._private.accelerators")
    managers = [
        manager
        for manager in accelerators.get_all_accelerator_managers()
        if manager.get_resource_name() == backend.request.ray
        and backend.request.ray_noset in vars(sys.modules[manager.__module__]).values()
    ]
    assert managers, f"no manager of Ray's has {backend.request}"
