"""Make DeepSpeed use accel_core's accelerator: call `activate()` before or after `import deepspeed`.

DeepSpeed's `get_accelerator()` then returns the same accelerator as `accel_core.get_accelerator()`, in this
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
from accel_train.deepspeed import _child_activation, _install, _limits, _release
from accel_train.deepspeed._release import is_installed
from accel_train.launch.communication import communication_of

__all__ = ["Activation", "activate", "is_installed", "prepare", "prepare_pin"]

_INTEGRATION = "deepspeed"
_log = logging.getLogger(__name__)


class Activation(NamedTuple):
    """The result of `activate()`."""

    #: The accelerator that DeepSpeed's `get_accelerator()` now returns.
    accelerator: Accelerator
    #: The version of DeepSpeed.
    version: str
    #: A sentence for each feature that DeepSpeed does not have on this device.
    limits: tuple[str, ...]


def activate(*, force: bool = False, vendor_defaults: bool = True) -> Activation:
    """Make DeepSpeed's `get_accelerator()` return accel_core's accelerator, also in child processes.

    Chooses an accelerator if none is chosen yet. Sets `ACCEL_INTEGRATIONS`, which child processes inherit.
    May be called several times. With `force`, the accelerator is replaced even if DeepSpeed has already
    chosen a different device. With `vendor_defaults`, the vendor's defaults
    (`Backend.environment.defaults`, Gaudi's deterministic mode) are applied in this process and in child
    processes, and are logged once. If DeepSpeed does not support the device, the features that do not work on
    the device are logged once, as a warning.

    Raises `IntegrationMissingError`, an `ImportError`, if DeepSpeed is missing or older than 0.16. Raises
    `IntegrationError` if DeepSpeed has already chosen a different device and `force` is False. Raises
    `LaunchError` if torch has no communication backend for the device. Also raises the errors of
    `get_accelerator()`.
    """
    version = _release.require_supported_version()
    accelerator = get_accelerator()
    # DeepSpeed always starts a process group. If torch has no backend for it, the error is raised here.
    communication_of(accelerator)
    _install.replace_accelerator(accelerator, force=force)
    prepare()
    if not vendor_defaults:
        os.environ[_install.ACCEL_VENDOR_DEFAULTS.name] = "0"
    applied_defaults = _install.set_up(accelerator)
    activation = Activation(accelerator, version, _missing_features(accelerator))
    names = startup.names(os.environ.get(startup.VARIABLE, ""))
    if _INTEGRATION not in names:
        os.environ[startup.VARIABLE] = ",".join((*names, _INTEGRATION))
        _log_limits(activation)
        _log_vendor_defaults(accelerator, applied_defaults)
    return activation


def _missing_features(accelerator: Accelerator) -> tuple[str, ...]:
    """Return a sentence for each feature that would not work in DeepSpeed, or in its child processes."""
    missing_members = _install.missing_members(accelerator)
    sentences = list(_limits.missing_features(accelerator, missing_members))
    missing_activation_reason = _child_activation.missing_activation_reason()
    if missing_activation_reason:
        sentences.append(missing_activation_reason)
    return tuple(sentences)


def prepare() -> None:
    """Prepare this process so that an accelerator is chosen and set when DeepSpeed is imported.

    Child processes of a process that has called `activate()` call this function at `import torch`.
    """
    _install.prepare()


def prepare_pin() -> None:
    """Prepare this process for DeepSpeed if DeepSpeed would reject the name in `DS_ACCELERATOR` as unknown.

    Called before DeepSpeed is imported, in a process that has `DS_ACCELERATOR` and has not called
    `activate()`. The vendor's defaults are not applied.
    """
    # The program may have deleted the variable since `import torch`.
    pinned_name = os.environ.get(DS_ACCELERATOR.name)
    if pinned_name and not _release.lists_accelerator(pinned_name):
        _install.prepare(for_training=False)


def _log_vendor_defaults(
    accelerator: Accelerator, applied_defaults: tuple[str, ...]
) -> None:
    """Log the vendor's defaults that were set, on rank 0."""
    if applied_defaults and os.environ.get("RANK", "0") == "0":
        lines = "".join(f"\n  - {entry}" for entry in applied_defaults)
        _log.warning(
            "Defaults for %s, set in this process (to skip them, call activate(vendor_defaults=False)):%s",
            accelerator.name,
            lines,
        )


#: Devices that DeepSpeed itself supports. Missing features are logged as information there, not as a warning.
_FAMILIAR_DEVICES = frozenset(
    ("cuda", "cpu", "xpu", "npu", "mps", "hpu", "mlu", "sdaa", "supa")
)


def _log_limits(activation: Activation) -> None:
    """Log the features that DeepSpeed does not have on this device, in one message on rank 0."""
    is_familiar = activation.accelerator.device_name() in _FAMILIAR_DEVICES
    if activation.limits and os.environ.get("RANK", "0") == "0":
        lines = "".join(f"\n  - {sentence}." for sentence in activation.limits)
        _log.log(
            logging.INFO if is_familiar else logging.WARNING,
            "DeepSpeed %s runs on %s. DeepSpeed has these features only on other devices:%s",
            activation.version, activation.accelerator.device_name(), lines,
        )  # fmt: skip
