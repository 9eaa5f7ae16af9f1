"""Make DeepSpeed use accel_core's accelerator: call `activate()` before or after `import deepspeed`.

DeepSpeed's `get_accelerator()` then returns the same accelerator as `accel_core.get_accelerator()`, in this
process and in its child processes. None of DeepSpeed's files are changed. Importing this module does not
import DeepSpeed.
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
    """The result of a call to `accel_train.deepspeed.activate()`."""

    #: The accelerator that DeepSpeed's `get_accelerator()` now returns.
    accelerator: Accelerator
    #: The version of DeepSpeed.
    version: str
    #: A sentence for each limit of DeepSpeed on this device, such as a feature that does not work.
    limits: tuple[str, ...]


def activate(*, force: bool = False, vendor_defaults: bool = True) -> Activation:
    """Make DeepSpeed's `get_accelerator()` return accel_core's accelerator, also in child processes.

    An accelerator is chosen if none has been chosen yet. The function sets `ACCEL_INTEGRATIONS`, which child
    processes inherit. It may be called several times. With `force`, the accelerator is replaced even if
    DeepSpeed has already chosen a different device. With `vendor_defaults`, the default settings that the
    vendor declares (`Backend.environment.defaults`, and Gaudi's deterministic mode) are applied in this
    process and in child processes, and are logged once. If DeepSpeed does not support the device, a warning
    that lists the features that do not work is logged once.

    Raises `IntegrationMissingError`, an `ImportError`, if DeepSpeed is missing or older than 0.16. Raises
    `IntegrationError` if DeepSpeed has already chosen a different device and `force` is False. Raises
    `LaunchError` if torch has no communication backend for the device. Also raises the same errors as
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
    variable = startup.INTEGRATIONS_VARIABLE
    integrations = startup.split_names(os.environ.get(variable, ""))
    is_first_activation = _INTEGRATION not in integrations
    if is_first_activation:
        # Child processes inherit the variable, and so the activation.
        os.environ[variable] = ",".join((*integrations, _INTEGRATION))
        _log_limits(activation)
        _log_vendor_defaults(accelerator, applied_defaults)
    return activation


def _missing_features(accelerator: Accelerator) -> tuple[str, ...]:
    """Return a sentence for each feature that does not work in DeepSpeed or its child processes."""
    missing_members = _install.missing_members(accelerator)
    sentences = list(_limits.missing_features(accelerator, missing_members))
    missing_activation_reason = _child_activation.missing_activation_reason()
    if missing_activation_reason:
        sentences.append(missing_activation_reason)
    return tuple(sentences)


def prepare() -> None:
    """Make DeepSpeed use accel_core's accelerator as soon as DeepSpeed is imported.

    No accelerator is chosen before that. This function is called at `import torch` in the child processes of
    a process that has called `activate()`.
    """
    _install.prepare()


def prepare_pin() -> None:
    """Make DeepSpeed use the backend that `DS_ACCELERATOR` names, if DeepSpeed itself would reject the name.

    This function is called before DeepSpeed is imported, in a process that has `DS_ACCELERATOR` set and has
    not called `activate()`. The vendor's default settings are not applied.
    """
    # The program may have deleted the variable since `import torch`.
    pinned_name = os.environ.get(DS_ACCELERATOR.name)
    if pinned_name and not _release.lists_accelerator(pinned_name):
        # DeepSpeed itself would raise an error, because the name is not in its list.
        _install.prepare(for_training=False)


def _log_vendor_defaults(
    accelerator: Accelerator, applied_defaults: tuple[str, ...]
) -> None:
    """Log the vendor's defaults that were set, on rank 0."""
    is_rank_0 = os.environ.get("RANK", "0") == "0"
    if applied_defaults and is_rank_0:
        lines = "".join(f"\n  - {setting}" for setting in applied_defaults)
        _log.warning(
            "The vendor's default settings for %s were applied in this process. To skip these settings, call "
            "activate(vendor_defaults=False). Applied settings:%s",
            accelerator.name,
            lines,
        )


#: Devices that DeepSpeed itself supports. Missing features on these are logged as information, not as a
#: warning.
_DEVICES_OF_DEEPSPEED = frozenset(
    ("cuda", "cpu", "xpu", "npu", "mps", "hpu", "mlu", "sdaa", "supa")
)


def _log_limits(activation: Activation) -> None:
    """Log the limits of DeepSpeed on this device, in one message on rank 0."""
    level = logging.WARNING
    if activation.accelerator.device_name() in _DEVICES_OF_DEEPSPEED:
        level = logging.INFO
    is_rank_0 = os.environ.get("RANK", "0") == "0"
    if activation.limits and is_rank_0:
        lines = "".join(f"\n  - {sentence}." for sentence in activation.limits)
        _log.log(
            level,
            "DeepSpeed %s runs on %s. On this device, DeepSpeed has the following limits:%s",
            activation.version, activation.accelerator.device_name(), lines,
        )  # fmt: skip
