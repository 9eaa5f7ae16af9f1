"""Huawei Ascend NPUs for accel-core: the declaration of the backend `npu`, and the next
steps after known errors.

Importing this module imports neither torch nor torch_npu.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from accel_core import (
    Backend,
    Check,
    Environment,
    Hardware,
    ProbeResult,
    ResourceRequest,
    TorchIntegration,
    Visibility,
    hookimpl,
    torch_build,
)

__all__ = ["BACKEND", "cann_script", "cann_setup_step", "cann_version"]

#: The prefixes of variables to forward: the four that DeepSpeed forwards, and others that
#: torch_npu reads.
_FORWARDED_PREFIXES = (
    "ASCEND",
    "HCCL",
    "TORCH_NPU",
    "TORCH_HCCL",
    "PYTORCH_NPU",
    "TASK_QUEUE",
)

_DRIVER = "install the Ascend driver, and check the driver with `npu-smi info`"
_DEVICES = " ".join(
    f"--device /dev/{n}"
    for n in ("davinci0", "davinci_manager", "devmm_svm", "hisi_hdc")
)
_MOUNTS = " ".join(
    f"-v {folder}:{folder}"
    for folder in ("/usr/local/dcmi", "/usr/local/Ascend/driver")
)

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    (
        "two accelerators",
        (
            "torch_npu needs a torch without another accelerator, such as the CPU "
            "build: run `accel setup npu`"
        ),
    ),
    (
        "privateuse1",
        "another vendor's package was imported first: use a separate process",
    ),
    (
        r"lib(ascend_hal|dcmi|drv\w*)\.so",
        "install the Ascend driver, and in a container mount the host's driver",
    ),
    ("out of memory", "`npu-smi info` shows which processes hold the device's memory"),
    (
        "invalid device id",
        (
            "use an index below device_count(): if ASCEND_RT_VISIBLE_DEVICES is set, it "
            "renumbers the devices from 0"
        ),
    ),
)
#: The template of a hint that is only the step that sets CANN's variables.
_SETUP_STEP_FIELD = "{setup_step}"
#: Next steps that contain the installed versions.
_HINTS_WITH_VERSIONS = (
    ("ascend_(home|opp|runtime|compiler)_path", _SETUP_STEP_FIELD),
    (
        r"lib(hccl|ascend(?!_hal)|acl|ge_|graph|runtime|opapi|nnopbase|msprof)\w*\.so",
        _SETUP_STEP_FIELD,
    ),
    (
        "undefined symbol: (acl|hccl|msprof)",
        "CANN {cann} is incompatible with torch_npu {npu}: run `accel setup npu`",
    ),
    (
        "undefined symbol|_autoload",
        "torch_npu {npu} is incompatible with torch {torch}: run `accel setup npu`",
    ),
)

BACKEND = Backend(
    name="npu",
    priority=700,
    device_type="npu",
    vendor_import="torch_npu",
    accelerator="accel_npu.accelerator:NPUAccelerator",
    description="Huawei Ascend NPUs, through torch_npu and CANN",
    url="https://github.com/Ascend/pytorch",
    install_hint="accel setup npu",
    requires=("torch>=2.6",),
    communication_backend="hccl",
    compile_backend="inductor",
    hardware=Hardware(
        name="Ascend NPU",
        platforms=("linux",),
        # Not davinci_manager, which exists without a card; not all of 19e5, which
        # Kunpeng's ZIP engines also have.
        nodes=("/dev/davinci[0-9]*",),
        pci_ids=("19e5:d801", "19e5:d802", "19e5:d803", "19e5:d500"),
        # hicann/driver,
        # src/sdk_driver/pbl/drv_davinci_intf/drv_davinci_intf_host/davinci_intf_init.c.
        driver_file="/sys/class/devdrv_manager",
        driver_step=_DRIVER,
    ),
    visibility=Visibility(
        variables=("ASCEND_RT_VISIBLE_DEVICES",), grammar="ascending"
    ),
    request=ResourceRequest(
        # Ascend/pytorch, docker/OVERVIEW.md.
        docker=f"{_DEVICES} {_MOUNTS}",
        # Ascend/ascend-device-plugin, its README; Slurm's name as in user guides of
        # clusters with Ascend nodes. Ray 2.60.0, ray/_private/accelerators/npu.py.
        kubernetes="huawei.com/Ascend910",
        slurm="npu",
        ray="NPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES",
    ),
    torch_integration=TorchIntegration(private_use1=True),
    environment=Environment(forward=_FORWARDED_PREFIXES),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `npu`, for Huawei Ascend NPUs."""
    return BACKEND


@hookimpl
def accel_explain(backend: Backend, error: BaseException) -> str | ProbeResult | None:
    """Return the next step for an error whose cause depends on the installed versions."""
    # Imported here to keep discovery fast.
    from accel_core import hint_for
    from accel_npu.checks import explain_missing_cann, torch_npu_version

    # Errors of other backends, and those that `_HINTS` explains, can also contain
    # "undefined symbol".
    if backend.name != BACKEND.name or hint_for(error, _HINTS):
        return None
    hint = hint_for(error, _HINTS_WITH_VERSIONS)
    if hint is None:
        return None
    if hint == _SETUP_STEP_FIELD:
        reason = explain_missing_cann()
        if reason:
            return ProbeResult(False, reason, cann_setup_step())
    torch_version = ""
    build = torch_build()
    if build:
        torch_version, _, _ = build.version.partition("+")
    return hint.format(
        cann=cann_version() or "",
        npu=torch_npu_version() or "",
        torch=torch_version,
        setup_step=cann_setup_step(),
    )


@hookimpl
def accel_checks(backend: Backend) -> list[Check]:
    """Return the checks of `accel doctor` for CANN's variables and CANN's version."""
    from accel_npu.checks import CHECKS  # imported here to keep discovery fast

    return CHECKS


def cann_version() -> str | None:
    """Return CANN's version, such as `"8.3.RC1"`, from the files in `ASCEND_HOME_PATH`.

    The result is `None` if no file contains a version.
    """
    home = os.environ.get("ASCEND_HOME_PATH")
    if not home:
        return None
    files = [
        *Path(home).glob("ascend_*_install.info"),
        *Path(home).glob("*/ascend_*_install.info"),
    ]
    for file in files:
        # For example, the line: version=8.3.RC1
        match = re.search(r"(?m)^version=(\S+)", file.read_text(errors="replace"))
        if match:
            return match[1]
    return None


def cann_setup_step() -> str:
    """Return the next step that sets CANN's variables.

    The step runs CANN's script set_env.sh, or installs CANN if there is no script.
    """
    script = cann_script()
    if script is None:
        return "accel setup npu"
    return f"in the shell that starts Python, run `source {script}`"


def cann_script() -> Path | None:
    """Return the path of CANN's script set_env.sh, or `None` if no script is found."""
    scripts = []
    home = os.environ.get("ASCEND_HOME_PATH")
    if home is not None:
        scripts.append(Path(home).parent / "set_env.sh")
    scripts += sorted(Path("/usr/local/Ascend").glob("*/set_env.sh"))
    for script in scripts:
        if script.exists():
            return script
    return None
