"""Runs beside a simulated device, or on the CPU: asks DeepSpeed's class and ours, gives the answers."""

import contextlib
import gc
import importlib
import sys


def report(vendor):
    """What `answers.compare` says of the vendor."""
    gc.disable()  # a tenth of the time: what is imported here all stays
    # DeepSpeed logs to stdout, whose last line is the answer.
    with contextlib.redirect_stdout(sys.stderr):
        import torch  # noqa: F401 - its file on disk says that it is a CPU build; imported, it has the device

        import accel_core

        ours = accel_core.accelerator(vendor)
        module = importlib.import_module(f"deepspeed.accelerator.{vendor}_accelerator")
        theirs = getattr(module, f"{vendor.upper()}_Accelerator")()
        # Here, because they import torch, which must not be sooner than the vendor's package.
        from accel_tests.deepspeed_classes.answers import compare
        from accel_tests.deepspeed_classes.cases import cases
        from accel_tests.deepspeed_classes.device import Device
        from own_cases import DEVICES, own_cases

        device = Device(**{"type": vendor, **DEVICES.get(vendor, {})})
        return compare(theirs, ours, {**cases(device), **own_cases(vendor)})
