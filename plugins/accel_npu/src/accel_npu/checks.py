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
from accel_npu import cann_script, cann_version, source_cann

__all__ = ["CHECKS", "no_cann", "torch_npu_version", "variables", "version"]

_NO_PACKAGE = CheckResult("ok", "torch_npu is not installed, so CANN is not needed")

#: The version of CANN that torch_npu was built for, by the minor version of torch.
#: Source: Ascend/pytorch, README.md, "Ascend Auxiliary Software", at v2.8.0-7.2.0. Newer
#: releases of torch_npu need the last of these CANN versions or a newer version.
_CANN = {(2, 6): (8, 2), (2, 7): (8, 3), (2, 8): (8, 3)}
_LATEST = max(_CANN)


def variables() -> CheckResult:
    """Check that CANN's set_env.sh was run, because torch_npu needs its variables at
    import.

    torch_npu 2.13.0 fails to import if ASCEND_HOME_PATH is set but ASCEND_OPP_PATH, or
    the folder runtime or compiler, is missing.
    """
    if torch_npu_version() is None:
        return _NO_PACKAGE
    home = os.environ.get("ASCEND_HOME_PATH", "")
    operators = os.environ.get("ASCEND_OPP_PATH", "")
    facts = {
        "ASCEND_HOME_PATH": home or "not set",
        "ASCEND_OPP_PATH": operators or "not set",
    }
    if not home:
        what = no_cann() or "CANN's variables are not set"
        return CheckResult("error", what, source_cann(), facts)
    missing = _missing_folders(home, operators)
    if missing:
        what = f"CANN's variables name folders that do not exist: {', '.join(missing)}"
        return CheckResult("error", what, source_cann(), facts)
    searched = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if not any(folder and Path(folder).is_relative_to(home) for folder in searched):
        what = "LD_LIBRARY_PATH does not contain CANN's folders, so its libraries cannot be loaded"
        return CheckResult("error", what, source_cann(), facts)
    return CheckResult("ok", "CANN's variables are set", facts=facts)


def _missing_folders(home: str, operators: str) -> list[str]:
    """Return the names of CANN's folders that do not exist."""
    folders = {
        "ASCEND_HOME_PATH": home,
        "runtime in ASCEND_HOME_PATH": f"{home}/runtime",
        "compiler in ASCEND_HOME_PATH": f"{home}/compiler",
        "ASCEND_OPP_PATH": operators,
    }
    missing = []
    for name, folder in folders.items():
        if not (folder and Path(folder).is_dir()):
            missing.append(name)
    return missing


def version() -> CheckResult:
    """Check that CANN is at least as new as the CANN that torch_npu was built for."""
    npu = torch_npu_version()
    cann = cann_version()
    if npu is None:
        return _NO_PACKAGE
    facts = {"torch_npu": npu, "CANN": cann or "not found"}
    built = _numbers(npu)
    needed = _CANN.get(built)
    if built > _LATEST:
        needed = _CANN[_LATEST]
    if cann is None or needed is None or _numbers(cann) >= needed:
        return CheckResult("ok", f"CANN {cann or 'was not found'}", facts=facts)
    at_least = ".".join(map(str, needed))
    what = f"CANN {cann} is too old for torch_npu {npu}, which was built for {at_least} or newer"
    return CheckResult("warning", what, "accel setup npu", facts)


def no_cann() -> str:
    """Return a reason such as `"torch_npu 2.13.0 needs CANN, which is not installed"` if
    CANN is missing; otherwise an empty string.
    """
    if os.environ.get("ASCEND_HOME_PATH"):
        return ""
    if cann_script() is not None:
        return ""
    return f"torch_npu {torch_npu_version()} needs CANN, which is not installed"


def torch_npu_version() -> str | None:
    """Return the installed version of torch_npu; `None` if it is not installed."""
    for found in metadata.distributions(name="torch-npu"):
        # A folder without metadata raises importlib_metadata's own error.
        with suppress(Exception):
            if found.version:
                return found.version
    return None


def _numbers(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version, such as `(8, 3)` for `"8.3.RC1"`."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        return (0, 0)
    return int(found[1]), int(found[2])


CHECKS = [
    Check("cann-variables", "CANN's variables", variables),
    Check("cann-version", "CANN's version", version),
]
