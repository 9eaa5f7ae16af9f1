"""PyTorch's own builds for NVIDIA, AMD and Intel: uv says which, and a dated table where uv is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

__all__ = [
    "CPU",
    "INDEX",
    "LAST_ON_MACOS_13",
    "LAST_RELEASE",
    "LAST_WITH_VOLTA",
    "RELEASES",
    "TABLE_DATE",
    "THOR",
    "THOR_SOURCE",
    "VOLTA_SOURCE",
    "Build",
    "for_amd",
    "for_nvidia",
    "index_of",
    "is_retired",
    "lacks_volta",
    "platform_fits",
    "python_fits",
]

INDEX = "https://download.pytorch.org/whl"
CPU = "cpu"
#: The date of uv 0.13.9's answers below, which tests/setup/test_builds.py compares with uv's own.
TABLE_DATE = "2026-11-24"
#: The oldest Linux driver for each index that uv names first.
_NVIDIA = (
    ("580", "cu132"),
    ("525.60.13", "cu129"),
    ("450.80.02", "cu118"),
    ("450.36.06", "cu110"),
    ("440.33", "cu102"),
    ("418.39", "cu101"),
    ("410.48", "cu100"),
    ("396.26", "cu92"),
    ("390.46", "cu91"),
    ("384.81", "cu90"),
    ("375.26", "cu80"),
)
#: AMD's architectures for which PyTorch has wheels, by uv, and the oldest ROCm of those. Others have none.
_AMD = {
    **dict.fromkeys(("gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"), "6.0"),
    "gfx1101": "6.1",
    **dict.fromkeys(("gfx1102", "gfx1200", "gfx1201"), "6.2.4"),
    "gfx950": "7.0",
    **dict.fromkeys(("gfx1150", "gfx1151"), "7.2"),
}
_ROCM = ("7.2", "7.1", "7.0", "6.4", "6.3", "6.2.4", "6.2", "6.1", "6.0")
#: The builds for Vega cards, newest first. uv names newer ones too, whose rocBLAS (ROCm 6.4 and newer) has no
#: code for them: https://github.com/ROCm/legacy-rocm-build/issues/4625
_VEGA = ("gfx900", "gfx906")
_WITH_VEGA = ["rocm6.3", "rocm6.2.4", "rocm6.2", "rocm6.1", "rocm6.0"]
_VEGA_SOURCE = "https://github.com/pytorch/pytorch/issues/179865"
#: The builds of each release, newest first; Pythons. https://pytorch.org/get-started/previous-versions/ and
#: pytorch/pytorch, RELEASE.md, "Release Compatibility Matrix".
RELEASES = {
    "2.6": (("cu126", "cu124", "cu118", "rocm6.2.4", "rocm6.1", "xpu"), ("3.9", "3.13")),
    "2.7": (("cu128", "cu126", "cu118", "rocm6.3", "rocm6.2.4", "xpu"), ("3.9", "3.13")),
    "2.8": (("cu129", "cu128", "cu126", "rocm6.4", "rocm6.3", "xpu"), ("3.9", "3.13")),
    "2.9": (("cu130", "cu128", "cu126", "rocm6.4", "rocm6.3", "xpu"), ("3.10", "3.14")),
}
#: The newest CUDA build with code for GPUs from Maxwell to Volta, which uv does not ask about.
LAST_WITH_VOLTA = "cu126"
VOLTA_SOURCE = "https://github.com/pytorch/pytorch/issues/157517"
#: The CUDA build with code for a Jetson Thor (sm_110), which those for CUDA 12 lack.
THOR = "cu130"
THOR_SOURCE = "https://github.com/OpenRAL/openral/pull/168"
#: libtorch_cpu.dylib of torch 2.8.0 has kernels for macOS 13, and that of 2.9.0 from macOS 14 on.
LAST_ON_MACOS_13 = "2.8.0"
#: The architectures of PyPI's wheels of torch 2.15.0, by system; s390x: of PyTorch's index `cpu`.
_ARCHITECTURES = {
    "darwin": ("arm64",),
    "linux": ("aarch64", "s390x", "x86_64"),
    "win32": ("AMD64", "x86_64"),
}
#: Hardware whose builds are for x86_64 alone: pytorch/pytorch,
#: .github/scripts/generate_binary_build_matrix.py, where `linux-aarch64` has CPU and CUDA.
_NOT_ON_ARM = ("AMD", "Intel")
#: The last release with a build that PyTorch gave up; it had wheels for x86_64 alone:
#: https://github.com/pytorch/pytorch/issues/134790
LAST_RELEASE = {"cu118": "2.7", "rocm6.3": "2.9"}
#: The oldest CUDA build of torch 2.6, the oldest torch that we support.
_OLDEST = "cu118"
#: Of releases that the table lacks, the Pythons of the newest are assumed to have wheels.
_NEWEST_PYTHONS = ("3.10", "3.14")
#: Where uv looks for torch, in its log: the first address is the one that it takes.
_ASKED = re.compile(rf"{re.escape(INDEX)}/([\w.]+)/torch/")
_PATIENCE = 10.0


class Build(NamedTuple):
    """One of PyTorch's indexes, and who says that it fits."""

    #: Its name in the address, which is uv's `--torch-backend`: `"cu130"`; empty where none fits.
    name: str
    #: `"uv 0.13.9"`, or `"a table of 2026-11-24"`.
    source: str


def index_of(name: str) -> str:
    """The address of one of PyTorch's indexes."""
    return f"{INDEX}/{name}"


def platform_fits(system: str, architecture: str, target: str = "CPU") -> str:
    """Why there is no torch for that architecture and hardware; empty where there is."""
    if architecture not in _ARCHITECTURES.get(system, ()):
        return f"PyPI has no torch for {architecture} on {system}"
    if architecture == "aarch64" and target.startswith(_NOT_ON_ARM):
        return f"PyTorch's wheels for the {target} are for x86_64 alone, and this is aarch64"
    return ""


def python_fits(python: str, torch: str = "") -> str:
    """Why PyTorch has no wheels for that Python; empty where it has, or nobody knows."""
    minor = ".".join(torch.split(".")[:2])
    oldest, newest = RELEASES[minor][1] if minor in RELEASES else _NEWEST_PYTHONS
    try:
        fits = Version(oldest) <= Version(python) <= Version(newest)
    except InvalidVersion:
        fits = False
    what = f"torch {torch}" if torch else "the current torch"
    return "" if fits else f"{what} has wheels for Python {oldest} to {newest}, and this is Python {python}"


def for_nvidia(driver: str, torch: str = "") -> Build:
    """The build for NVIDIA's driver of that version."""
    names, source = _ask_uv(UV_CUDA_DRIVER_VERSION=driver)
    if not names:
        names = [name for oldest, name in _NVIDIA if _at_least(driver, oldest)]
        source = _TABLE
    return Build(_first(names, "cu", torch), source)


def for_amd(architecture: str, torch: str = "") -> Build:
    """The build for an AMD GPU of that architecture, `"gfx90a"`."""
    if architecture in _VEGA:
        return Build(_first(_WITH_VEGA, "rocm", torch), _VEGA_SOURCE)
    names, source = _ask_uv(UV_AMD_GPU_ARCHITECTURE=architecture)
    if not names:
        oldest = _AMD.get(architecture)
        names = [f"rocm{version}" for version in _ROCM if oldest and _at_least(version, oldest)]
        source = _TABLE
    return Build(_first(names, "rocm", torch), source)


def is_retired(name: str) -> bool:
    """Whether that CUDA build has no torch that we support."""
    return int(name[2:]) < int(_OLDEST[2:])


def lacks_volta(name: str) -> bool:
    """Whether that CUDA build has no code for GPUs from Maxwell to Volta."""
    return int(name[2:]) > int(LAST_WITH_VOLTA[2:])


_TABLE = f"a table of {TABLE_DATE}"


def _first(names: list[str], kind: str, torch: str) -> str:
    """The first of uv's list that has that release of torch; of releases that the table lacks, the first.

    Those are newer than the table: builds that PyTorch gave up lack them.
    """
    fitting = [name for name in names if name.startswith(kind)]
    minor = ".".join(torch.split(".")[:2])
    if minor in RELEASES:
        fitting = [name for name in RELEASES[minor][0] if _runs(name, fitting, kind)]
    elif torch and fitting and fitting[0] in LAST_RELEASE:
        return ""
    return fitting[0] if fitting else ""


def _runs(name: str, fitting: list[str], kind: str) -> bool:
    """Whether what runs `fitting` runs that build: a driver runs all minor releases of a CUDA, and older."""
    if not name.startswith(kind) or not fitting:
        return False
    return name in fitting if kind == "rocm" else int(name[2:-1]) <= int(fitting[0][2:-1])


def _at_least(version: str, oldest: str) -> bool:
    try:
        return Version(version) >= Version(oldest)
    except InvalidVersion:
        return False


def _ask_uv(**variables: str) -> tuple[list[str], str]:
    """The indexes that uv would search, in its order, and uv's version; nothing where it cannot say.

    Offline and without its cache it fails to find torch, and its log has the addresses that it asked for.
    """
    program = shutil.which("uv")
    if program is None:
        return [], ""
    command = [
        *(program, "pip", "compile", "-", "--offline", "--no-cache", "--no-config", "-vv"),
        *("--torch-backend=auto", "--python", sys.executable),
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    environ |= {**variables, "NO_COLOR": "1", "RUST_LOG": "uv=trace"}
    try:
        done = subprocess.run(
            command,
            input="torch",
            env=environ,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return [], ""
    version = re.search(r"DEBUG uv (\d\S*)", done.stderr)
    return list(dict.fromkeys(_ASKED.findall(done.stderr))), f"uv {version[1]}" if version else "uv"
