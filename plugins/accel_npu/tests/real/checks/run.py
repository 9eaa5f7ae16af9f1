"""Runs modules of checks on the accelerator and prints what failed.

A check is a function `check_…(acc)`, of what is torch_npu's or the plugin's own: what every accelerator
promises is in accel_testing.conformance, and runs in test_card.py. They share a process and run in their
order, so that the first ones see the device not initialised.
"""

import importlib
import json
import os
import re
import traceback
import warnings
from pathlib import Path

import pytest

#: What holds of torch_npu or of the plugin alone. The first sees the device not started, or not used; the
#: last may leave it capturing.
OWN = (
    "before_use",
    "device",
    "dtypes",
    "streams",
    "memory",
    "compiling",
    "graphs",
)


def names(module):
    """The checks of a module, read from its source: importing it would import torch."""
    text = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    return re.findall(r"^def (check_\w+)", text, re.MULTILINE)


def main(*modules, only=None):
    """Run the checks of these modules in their order, or the one named `only`."""
    import accel_core

    acc = accel_core.get_accelerator()
    import torch

    torch.npu.config.allow_internal_format = (
        False  # else torch_npu warns of it at the first tensor
    )
    # A member of ours must not call what torch or torch_npu calls deprecated.
    warnings.simplefilter("error", FutureWarning)
    warnings.simplefilter("error", DeprecationWarning)
    failures = {}
    for module in modules:
        checks = importlib.import_module(f"checks.{module}")
        for name in names(module):
            if only not in (None, name):
                continue
            try:
                getattr(checks, name)(acc)
            except (Exception, pytest.fail.Exception):
                failures[name] = traceback.format_exc()
    print(json.dumps(failures), flush=True)
    os._exit(0)  # the vendor's shutdown is not what is checked here
