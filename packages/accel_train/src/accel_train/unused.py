"""Warn that the chosen accelerator was not used, or that each rank trained alone.

If a program lacks one line, it silently trains on the CPU, or each of its ranks trains alone.
`accel_train_startup` calls `warn_if_unused` at the end of a process. Only rank 0 of a job prints a warning.

A device counts as used if a parameter is on the device at the end. If no parameter is left, the device counts
as used if the program had more than 1 KiB allocated there at one time. A barrier allocates only a few bytes,
so it does not count.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
import warnings
from contextlib import suppress
from typing import Any, NamedTuple

import accel_core
from accel_core.errors import AccelError
from accel_core.text import escape_control_chars
from accel_train.integrations.catalogue import FRAMEWORKS, TAKING_A_DEVICE
from accel_train.launch.variables import ACCEL_UNUSED, RANK, WORLD_SIZE
from accel_train.private_names import (
    accelerate_state,
    deepspeed_accelerator,
    had_process_group,
)
from accel_train_startup import INTEGRATIONS_VARIABLE

__all__ = ["warn_if_unused"]


#: Seconds of CPU time after which a process counts as training.
_TRAINING_SECONDS = 60.0
#: Modules that only launchers import.
_LAUNCHERS = (
    "torch.distributed.launcher.api", "accelerate.commands.launch", "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
)  # fmt: skip
_DEVICE_LINE = "device = accel_core.get_accelerator().device()"
#: The number of allocated bytes up to which a device counts as unused. A barrier allocates one or two
#: scalars.
_MAX_UNUSED_BYTES = 1 << 10


def warn_if_unused() -> None:
    """Print a warning to stderr if an accelerator was chosen and the program did not use it.

    A second warning is printed if `accel run` started several ranks and this rank never had a process group.
    Nothing is printed in ranks other than 0, in a launcher, in a child process of multiprocessing, or with
    `ACCEL_UNUSED=ignore`.
    """
    if not _may_warn():
        return
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        device_types = _parameter_device_types()
        has_cpu_parameters = "cpu" in device_types
        # A program that failed before it created a model might have used the device later.
        if has_cpu_parameters or not _has_failed():
            accelerator = _expected_accelerator()
            if accelerator is not None and _is_unused(accelerator, device_types):
                warning = _unused_warning(accelerator, on_cpu=has_cpu_parameters)
                sys.stderr.write(f"accel: {escape_control_chars(warning)}\n")
        has_parameters = bool(device_types)
        if has_parameters and _has_trained_alone():
            sys.stderr.write(f"accel: {_trained_alone_warning()}\n")


def _has_failed() -> bool:
    """Return whether an uncaught exception ends this process."""
    # Python sets this attribute when it prints an uncaught exception.
    return hasattr(sys, "last_type")


def _may_warn() -> bool:
    """Return whether this process may print warnings.

    Only rank 0 of a program that has imported torch may print them, and only without `ACCEL_UNUSED=ignore`.
    """
    is_child = multiprocessing.parent_process() is not None
    if is_child or "torch" not in sys.modules or _is_launcher():
        return False
    with suppress(AccelError):  # A variable may have an invalid value.
        is_ignored = ACCEL_UNUSED.read(os.environ)
        is_rank_0 = RANK.read(os.environ) == 0
        return is_rank_0 and not is_ignored
    return False


def _is_launcher() -> bool:
    """Return whether this process starts ranks (torchrun, `accelerate launch`, `deepspeed`)."""
    # With `python -m NAME`, the module `__main__` has a spec with this name.
    main_spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    main_module = getattr(main_spec, "name", "")
    used_modules = {main_module, *sys.modules}
    return not used_modules.isdisjoint(_LAUNCHERS)


def _expected_accelerator() -> Any:
    """Return the accelerator that the program was expected to use.

    Returns `None` if it was not expected to use one. A program is expected to use an accelerator if `accel
    run` started the program, or if the program chose an accelerator and trained. The CPU does not count as an
    accelerator.
    """
    was_launched = bool(os.environ.get(INTEGRATIONS_VARIABLE))
    has_chosen_and_trained = _has_chosen_accelerator() and _has_probably_trained()
    if not was_launched and not has_chosen_and_trained:
        return None
    accelerator = accel_core.get_accelerator()
    if accelerator.device().type == "cpu":
        return None
    return accelerator


def _has_chosen_accelerator() -> bool:
    """Return whether the program has chosen an accelerator."""
    current = sys.modules.get("accel_core.current")
    return getattr(current, "_chosen", None) is not None


def _has_probably_trained() -> bool:
    """Return whether the program has imported a framework, or used more than 60 seconds of CPU time."""
    if _frameworks_possibly_on_cpu():
        return True
    return time.process_time() > _TRAINING_SECONDS


def _is_unused(accelerator: Any, device_types: set[str]) -> bool:
    """Return whether the program did not use the accelerator's devices.

    `device_types` are the device types of the live parameters. Returns False if the accelerator has been
    initialized and its backend does not report memory.
    """
    if not accelerator.is_initialized():
        return True
    if accelerator.device().type in device_types:
        return False
    for index in range(accelerator.device_count()):
        peak = _peak_bytes(accelerator, index)
        # Without a known peak, the device may have been used.
        if peak is None or peak > _MAX_UNUSED_BYTES:
            return False
    return True


def _peak_bytes(accelerator: Any, index: int) -> int | None:
    """Return the device's peak allocated memory in bytes, or `None` if the backend does not report it."""
    peak = accelerator.memory_stats(index).get("allocated_bytes.all.peak")
    if peak is None:
        return None
    return int(peak)


def _parameter_device_types() -> set[str]:
    """Return the device types of all live parameters, in modules, in optimizers or elsewhere."""
    torch = sys.modules["torch"]
    device_types = set()
    for obj in gc.get_objects():
        # `isinstance` would run code of proxies and lazy objects.
        cls = type(obj)
        if not issubclass(cls, torch.Tensor):
            continue
        is_trainable_leaf = obj.requires_grad and obj.is_leaf
        if issubclass(cls, torch.nn.Parameter) or is_trainable_leaf:
            device_types.add(obj.device.type)
    return device_types


class _ImportedFramework(NamedTuple):
    """A framework that this process has imported."""

    module: str
    name: str
    #: The line of code that makes a program use the device.
    usage: str


def _frameworks_possibly_on_cpu() -> list[_ImportedFramework]:
    """Return the imported frameworks that may have trained on the CPU, with the likeliest first.

    The frameworks in `TAKING_A_DEVICE` come first. Among the others, a framework whose training submodule is
    imported comes before a framework of which only the top-level package is imported, because another
    framework may have imported that package.
    """
    candidates = [
        _ImportedFramework(module, name, usage)
        for module, name, usage in TAKING_A_DEVICE
    ]
    frameworks = [
        _ImportedFramework(framework.module, framework.name, framework.usage)
        for framework in FRAMEWORKS
        if framework.usage
    ]
    # False sorts before True, so the submodules come first.
    candidates += sorted(frameworks, key=_is_top_package)
    modules_not_on_cpu = _modules_not_on_cpu()
    possibly_on_cpu = []
    for framework in candidates:
        is_imported = framework.module in sys.modules
        if is_imported and framework.module not in modules_not_on_cpu:
            possibly_on_cpu.append(framework)
    return possibly_on_cpu


def _is_top_package(framework: _ImportedFramework) -> bool:
    """Return whether the framework's module is a top-level package."""
    return "." not in framework.module


def _modules_not_on_cpu() -> set[str]:
    """Return the modules of frameworks that did not train on the CPU, according to the frameworks' state."""
    modules: set[str] = set()
    partial_state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    device = None
    if partial_state is not None:
        device = accelerate_state(partial_state).get("device")
    # Accelerate is imported but unused if its state contains no device.
    if device is None or device.type != "cpu":
        # Transformers' Trainer uses Accelerate's device.
        modules.update(("accelerate", "transformers.trainer"))
    if isinstance(deepspeed_accelerator(), accel_core.Accelerator):
        modules.add("deepspeed")
    return modules


def _has_trained_alone() -> bool:
    """Return whether `accel run` started several ranks and this rank never had a process group."""
    was_launched = bool(os.environ.get(INTEGRATIONS_VARIABLE))
    if not was_launched or _has_failed():
        return False
    return WORLD_SIZE.read(os.environ) > 1 and not had_process_group()


def _trained_alone_warning() -> str:
    """Return the warning that each rank trained alone."""
    ranks = WORLD_SIZE.read(os.environ)
    return (
        f"{ranks} ranks ran this program without a process group, so each rank trained alone. Next step: to "
        "train with all ranks together, call accel_train.init_process_group(). To start only one process, "
        "use accel run --nproc-per-node 1. To hide this warning, set ACCEL_UNUSED=ignore."
    )


def _unused_warning(accelerator: Any, *, on_cpu: bool) -> str:
    """Return the warning that the accelerator was not used, with the line of code that the program lacks.

    `on_cpu` is True if the program has parameters on the CPU.
    """
    accelerator_name = f"{accelerator.name} ({accelerator.backend.provenance})"
    device_names = {accelerator.name, accelerator.device().type}
    # A framework that supports the device natively needs no further line of code.
    with_native_support = set()
    for framework in FRAMEWORKS:
        if device_names.intersection(framework.native_devices):
            with_native_support.add(framework.name)
    frameworks = []
    for imported_framework in _frameworks_possibly_on_cpu():
        if imported_framework.name not in with_native_support:
            frameworks.append(imported_framework)
    if not frameworks:
        location = " and kept its parameters on the CPU" if on_cpu else ""
        return (
            f"{accelerator_name} was selected, but the program never used it{location}. Next step: move the "
            f"model and the data to the accelerator: {_DEVICE_LINE}. To hide this warning, set "
            "ACCEL_UNUSED=ignore."
        )
    likeliest, *others = frameworks
    also_imported = ""
    if others:
        names = ", ".join(framework.name for framework in others)
        also_imported = f" (also imported: {names})"
    return (
        f"{accelerator_name} was selected, but the program never used it, because {likeliest.name} used the "
        f"CPU{also_imported}. Next step: add {likeliest.usage}. To hide this warning, set "
        "ACCEL_UNUSED=ignore."
    )
