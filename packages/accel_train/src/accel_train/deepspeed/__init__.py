"""DeepSpeed on accel_core's accelerator: call `activate()` before or after `import deepspeed`.

After that, DeepSpeed's `get_accelerator()` returns what `accel_core.get_accelerator()` returns, in this
process and in its child processes. No file of DeepSpeed is changed. Importing this module does not import
DeepSpeed.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

import accel_train_startup as startup
from accel_core import Accelerator, get_accelerator
from accel_core.settings import DS_ACCELERATOR
from accel_train.deepspeed import _children, _installed, _limits, _placing
from accel_train.deepspeed._installed import is_installed
from accel_train.launch.communication import communication_of

__all__ = ["Activation", "activate", "is_installed", "prepare", "prepare_pin"]

_NAME = "deepspeed"
_log = logging.getLogger(__name__)


class Activation(NamedTuple):
    """The result of `activate()`."""

    #: What DeepSpeed's `get_accelerator()` returns now.
    accelerator: Accelerator
    #: The version of DeepSpeed.
    version: str
    #: What DeepSpeed does not do on this device, a sentence each; empty for a device that it favours.
    limits: tuple[str, ...]


def activate(*, force: bool = False, vendor_defaults: bool = True) -> Activation:
    """Make DeepSpeed's `get_accelerator()` return ours, in this process and in its child processes.

    Chooses an accelerator if none is chosen yet. Sets `ACCEL_INTEGRATIONS`, which child processes inherit. It
    may be called again. `force`: replace an accelerator that DeepSpeed has already chosen for another device.
    `vendor_defaults`: set what the vendor wants set (`Backend.environment.set`, Gaudi's deterministic mode)
    and log it once; child processes do the same. If DeepSpeed does not know the device, the features that do
    not work there are logged once, as a warning.

    Raises `IntegrationMissingError`, an `ImportError`, if DeepSpeed is missing or older than 0.16. Raises
    `IntegrationError` if DeepSpeed has already chosen another device, and `LaunchError` if torch has no
    communication backend for the device. Also raises what `get_accelerator()` raises.
    """
    version = _installed.version()
    accelerator = get_accelerator()
    communication_of(
        accelerator
    )  # DeepSpeed starts a process group whatever is trained
    _placing.replace(accelerator, force=force)
    prepare()
    if not vendor_defaults:
        os.environ[_placing.ACCEL_VENDOR_DEFAULTS.name] = "0"
    changed = _placing.set_up(accelerator)
    activation = Activation(accelerator, version, _limits_of(accelerator))
    names = startup.names(os.environ.get(startup.VARIABLE, ""))
    if _NAME not in names:
        os.environ[startup.VARIABLE] = ",".join((*names, _NAME))
        _report(activation)
        _report_defaults(accelerator, changed)
    return activation


def _limits_of(accelerator: Accelerator) -> tuple[str, ...]:
    obstacle = _children.obstacle()
    missing = _placing.missing_members(accelerator)
    return (*_limits.limits(accelerator, missing), *([obstacle] if obstacle else []))


def prepare() -> None:
    """Choose our accelerator and set it when DeepSpeed is imported; child processes call this."""
    _placing.prepare()


def prepare_pin() -> None:
    """Do as `prepare`, but only if DeepSpeed would raise for the pin, because its list lacks that name.

    Called before DeepSpeed is imported in a process that has `DS_ACCELERATOR` and was not activated.
    """
    pin = os.environ.get(
        DS_ACCELERATOR.name
    )  # which the program may have taken away since
    if pin and not _installed.knows(pin):
        _placing.prepare(for_training=False)


def _report_defaults(accelerator: Accelerator, changed: tuple[str, ...]) -> None:
    if changed and os.environ.get("RANK", "0") == "0":
        lines = "".join(f"\n  - {entry}" for entry in changed)
        _log.warning(
            "Set for %s, as its vendor wants it (activate(vendor_defaults=False) leaves it out):%s",
            accelerator.name,
            lines,
        )


#: Devices whose limits DeepSpeed's own users know.
_KNOWN = frozenset(("cuda", "cpu", "xpu", "npu", "mps", "hpu", "mlu", "sdaa", "supa"))


def _report(activation: Activation) -> None:
    """One message; of several ranks that call `activate()` themselves the first one gives it."""
    known = activation.accelerator.device_name() in _KNOWN
    if activation.limits and os.environ.get("RANK", "0") == "0":
        lines = "".join(f"\n  - {sentence}." for sentence in activation.limits)
        _log.log(
            logging.INFO if known else logging.WARNING,
            "DeepSpeed %s runs on %s. It has these features on other devices only:%s",
            activation.version, activation.accelerator.device_name(), lines,
        )  # fmt: skip
