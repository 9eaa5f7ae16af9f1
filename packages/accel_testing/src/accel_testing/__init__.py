"""Tools to test code for accelerators without a device: fake backends, injected faults, child processes.

    from accel_testing import fake, installed

    with installed(fake("acme", devices=2), isolated=True):
        train()          # accel_core.get_accelerator() is acme, which computes on the CPU

A fake is not a real device, and does not show how a vendor's device behaves. This package does not need
pytest, but can be used in tests that pytest runs. Importing this package imports neither torch nor a vendor's
package.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from accel_testing.accelerator import Call, FakeAccelerator
    from accel_testing.children import Ended, run
    from accel_testing.conformance.suite import AcceleratorTests
    from accel_testing.distributions import write_distribution
    from accel_testing.fakes import Fake, fake
    from accel_testing.faults import Fault
    from accel_testing.installing import Installation, installed
    from accel_testing.layers import environment

#: The module that defines each public name, relative to this package.
_MODULES = {
    "AcceleratorTests": "conformance.suite",
    "Call": "accelerator",
    "Ended": "children",
    "Fake": "fakes",
    "FakeAccelerator": "accelerator",
    "Fault": "faults",
    "Installation": "installing",
    "environment": "layers",
    "fake": "fakes",
    "installed": "installing",
    "run": "children",
    "write_distribution": "distributions",
}

__all__ = [
    "AcceleratorTests",
    "Call",
    "Ended",
    "Fake",
    "FakeAccelerator",
    "Fault",
    "Installation",
    "environment",
    "fake",
    "installed",
    "run",
    "write_distribution",
]


# `__getattr__` is hidden from type checkers, which would otherwise accept every misspelled name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
