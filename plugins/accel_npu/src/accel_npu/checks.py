"""Checks of `accel doctor` for Ascend NPUs: CANN's variables, and whether CANN is new
enough for torch_npu.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from accel_core import Check, CheckResult
from accel_npu import cann_script, cann_setup_step, cann_version

__all__ = [
    "CHECKS",
    "check_cann_version",
    "check_variables",
    "explain_missing_cann",
    "torch_npu_version",
]

_NOT_INSTALLED = CheckResult("ok", "torch_npu is not installed, so CANN is not needed")
_SIMULATED = CheckResult("ok", "torch_npu is simulated, so CANN is not needed")

#: The version of CANN that torch_npu was built for, by the minor version of torch.
#: Source: Ascend/pytorch, README.md, "Ascend Auxiliary Software", at v2.8.0-7.2.0. Newer
#: releases of torch_npu need the last of these CANN versions or a newer version.
_REQUIRED_CANN = {(2, 6): (8, 2), (2, 7): (8, 3), (2, 8): (8, 3)}
_NEWEST_TORCH = max(_REQUIRED_CANN)


def check_variables() -> CheckResult:
    """Check that CANN's set_env.sh was run: importing torch_npu requires its variables.

    torch_npu 2.13.0 fails to import if ASCEND_HOME_PATH is set but ASCEND_OPP_PATH, or
    the folder runtime or compiler, is missing.
    """
    if torch_npu_version() is None:
        return _NOT_INSTALLED
    if _is_simulated():
        return _SIMULATED
    home = os.environ.get("ASCEND_HOME_PATH", "")
    operators = os.environ.get("ASCEND_OPP_PATH", "")
    facts = {
        "ASCEND_HOME_PATH": home or "not set",
        "ASCEND_OPP_PATH": operators or "not set",
    }
    if not home:
        what = explain_missing_cann() or "CANN's variables are not set"
        return CheckResult("error", what, cann_setup_step(), facts)
    missing = _missing_folders(home, operators)
    if missing:
        what = f"CANN's variables name folders that do not exist: {', '.join(missing)}"
        return CheckResult("error", what, cann_setup_step(), facts)
    if not _is_in_library_path(home):
        what = "LD_LIBRARY_PATH does not contain CANN's folders, so CANN's libraries cannot be loaded"
        return CheckResult("error", what, cann_setup_step(), facts)
    return CheckResult("ok", "CANN's variables are set", facts=facts)


def _is_in_library_path(home: str) -> bool:
    """Return whether `LD_LIBRARY_PATH` contains the folder `home` or a folder in it."""
    library_path = os.environ.get("LD_LIBRARY_PATH", "")
    folders = [folder for folder in library_path.split(os.pathsep) if folder]
    return any(Path(folder).is_relative_to(home) for folder in folders)


def _missing_folders(home: str, operators: str) -> list[str]:
    """Return the names of the variables and folders of CANN that do not exist on disk."""
    folders = {
        "ASCEND_HOME_PATH": home,
        "runtime in ASCEND_HOME_PATH": f"{home}/runtime",
        "compiler in ASCEND_HOME_PATH": f"{home}/compiler",
        "ASCEND_OPP_PATH": operators,
    }
    missing = []
    for name, folder in folders.items():
        exists = folder and Path(folder).is_dir()
        if not exists:
            missing.append(name)
    return missing


def check_cann_version() -> CheckResult:
    """Check that the installed CANN is at least as new as the version for which
    torch_npu was built.
    """
    npu_version = torch_npu_version()
    if npu_version is None:
        return _NOT_INSTALLED
    facts = {"torch_npu": npu_version, "CANN": "not found"}
    installed_cann = cann_version()
    if installed_cann is None:
        return CheckResult("ok", "CANN was not found", facts=facts)
    facts["CANN"] = installed_cann
    # torch_npu has the version of the torch that it was built for.
    torch_version = _parse_version(npu_version)
    required_cann = _REQUIRED_CANN.get(torch_version)
    if torch_version > _NEWEST_TORCH:
        required_cann = _REQUIRED_CANN[_NEWEST_TORCH]
    if required_cann is None or _parse_version(installed_cann) >= required_cann:
        return CheckResult("ok", f"CANN {installed_cann}", facts=facts)
    required_text = ".".join(str(number) for number in required_cann)
    what = (
        f"CANN {installed_cann} is too old for torch_npu {npu_version}, which needs CANN "
        f"{required_text} or newer"
    )
    return CheckResult("warning", what, "accel setup npu", facts)


def explain_missing_cann() -> str:
    """Return the message that CANN is missing, or an empty string if CANN is installed."""
    if os.environ.get("ASCEND_HOME_PATH") or _is_simulated():
        return ""
    if cann_script() is not None:
        return ""
    return f"torch_npu {torch_npu_version()} needs CANN, which is not installed"


def _is_simulated() -> bool:
    """Return whether torch_npu is the package of accel-simulated, such as 2.13.0+simulated."""
    version = torch_npu_version() or ""
    return version.endswith("+simulated")


def torch_npu_version() -> str | None:
    """Return the installed version of torch_npu, or `None` if it is not installed."""
    for distribution in metadata.distributions(name="torch-npu"):
        # A folder without metadata raises an error of importlib_metadata.
        with suppress(Exception):
            if distribution.version:
                return distribution.version
    return None


def _parse_version(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version: `(8, 3)` for `"8.3.RC1"`.

    A text that is not a version results in `(0, 0)`.
    """
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        return (0, 0)  # older than every version
    return int(match[1]), int(match[2])


CHECKS = [
    Check("cann-variables", "CANN's variables", check_variables),
    Check("cann-version", "CANN's version", check_cann_version),
]
