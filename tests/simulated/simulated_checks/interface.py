"""Every member of accel_core's interface, called once on a simulated device with a sensible argument."""

from __future__ import annotations

import importlib

import accel_core
from accel_core import Accelerator, Backend
from accel_core.accelerators.torch_device import TorchAccelerator
from accel_simulated import VENDORS
from simulated_checks import torchs_names
from simulated_checks.interface_calls import CALLS as WITH_CODE
from simulated_checks.interface_table import CALLS as IN_TABLE


def of_torch_accelerator(vendor: str) -> dict[str, str]:
    """The problem of each member of `TorchAccelerator` alone: what it makes of the vendor's module."""
    found = VENDORS[vendor]
    importlib.import_module(found.package)
    backend = Backend(
        name=vendor,
        priority=1,
        device_type=vendor,
        vendor_import=found.package,
        communication_backend=found.collective or "gloo",
        visible_devices=found.visible,
        private_use1=found.kind == "PrivateUse1",
    )
    accelerator = TorchAccelerator(backend)
    found = run_all(accelerator)
    # torch.accelerator speaks of one device a process: PrivateUse1 with an allocator and streams.
    return {**found, **torchs_names.problems(accelerator)}


def of_plugin(pin: str) -> dict[str, str]:
    """The same of the accelerator that the installed plugins give for a value of `DS_ACCELERATOR`."""
    return run_all(accel_core.accelerator(pin))


def run_all(accelerator: Accelerator) -> dict[str, str]:
    """The problem of each member of the interface; a member without a call has one."""
    members = {name for name in dir(Accelerator) if not name.startswith("_")} | {"name", "backend"}
    known = {**IN_TABLE.run(accelerator), **WITH_CODE.run(accelerator)}
    return {**dict.fromkeys(members, "no call is written for this member"), **known}
