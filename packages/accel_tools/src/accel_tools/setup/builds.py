"""A dated table of PyTorch's builds for NVIDIA, AMD and Intel GPUs.

It contains the builds that uv chooses, for installers other than uv.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

__all__ = [
    "CPU",
    "INDEX",
    "LAST_ON_MACOS_13",
    "LAST_RELEASE",
    "LAST_WITH_VOLTA",
    "OLDEST_GLIBC",
    "RELEASES",
    "TABLE_DATE",
    "THOR",
    "THOR_SOURCE",
    "VOLTA_SOURCE",
    "Build",
    "Release",
    "ToolkitVersion",
    "amd_architectures_of",
    "driver_can_run",
    "has_build",
    "index_url",
    "is_before_first_arm_build",
    "is_retired",
    "is_vega",
    "lacks_code_for_volta",
    "newest_build_for_amd_gpu",
    "newest_build_for_driver",
    "newest_build_for_toolkit",
    "oldest_driver_for_build",
    "oldest_supported_driver",
    "toolkit_versions",
    "why_amd_wheels_do_not_fit",
    "why_no_wheels_for_platform",
    "why_no_wheels_for_python",
]

INDEX = "https://download.pytorch.org/whl"
CPU = "cpu"
#: The date of the choices of uv 0.13.9 below. tests/setup/test_builds.py compares them with uv.
TABLE_DATE = "2026-11-24"


class _CudaBuild(NamedTuple):
    """A CUDA build of PyTorch, and the oldest NVIDIA driver version that can run it."""

    #: The build's name, such as `"cu129"`.
    name: str
    #: The oldest driver version on Linux and in WSL2.
    linux_driver: str
    windows_driver: str

    def oldest_driver(self, system: str) -> str:
        """Return the oldest driver version that can run the build on `system`.

        `system` is a value of `sys.platform`, such as `"linux"` or `"win32"`.
        """
        return self.windows_driver if system == "win32" else self.linux_driver


#: The CUDA builds that uv chooses, in uv's order.
_CUDA_BUILDS = (
    _CudaBuild("cu132", "580", "580"),
    _CudaBuild("cu129", "525.60.13", "528.33"),
    _CudaBuild("cu118", "450.80.02", "452.39"),
    _CudaBuild("cu110", "450.36.06", "451.22"),
    _CudaBuild("cu102", "440.33", "441.22"),
    _CudaBuild("cu101", "418.39", "418.96"),
    _CudaBuild("cu100", "410.48", "411.31"),
    _CudaBuild("cu92", "396.26", "398.26"),
    _CudaBuild("cu91", "390.46", "391.29"),
    _CudaBuild("cu90", "384.81", "385.54"),
    _CudaBuild("cu80", "375.26", "376.51"),
)
#: AMD GPU architectures for which PyTorch has wheels, and the oldest ROCm version of those wheels,
#: according to uv.
_OLDEST_ROCM = {
    **dict.fromkeys(("gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"), "6.0"),
    "gfx1101": "6.1",
    **dict.fromkeys(("gfx1102", "gfx1200", "gfx1201"), "6.2.4"),
    "gfx950": "7.0",
    **dict.fromkeys(("gfx1150", "gfx1151"), "7.2"),
}
#: The ROCm versions of PyTorch's wheels, newest first.
_ROCM_VERSIONS = ("7.2", "7.1", "7.0", "6.4", "6.3", "6.2.4", "6.2", "6.1", "6.0")
#: The builds for Vega GPUs, newest first. uv also names newer builds, but rocBLAS of ROCm 6.4 and
#: newer has no code for Vega: https://github.com/ROCm/legacy-rocm-build/issues/4625
_VEGA = ("gfx900", "gfx906")
_WITH_VEGA = ["rocm6.3", "rocm6.2.4", "rocm6.2", "rocm6.1", "rocm6.0"]
_VEGA_SOURCE = "https://github.com/pytorch/pytorch/issues/179865"
#: AMD's index of wheels for ROCm 7.14, for Linux and Windows. `AMD_TARGETS` are the architectures for
#: which it has code, as of 2026-08-26. Each is an extra of torch, such as `torch[device-gfx1103]`.
AMD_INDEX = "https://repo.amd.com/rocm/whl-multi-arch/"
AMD_SOURCE = "https://github.com/easydiffusion/torchruntime/issues/34"
AMD_TARGETS = (
    "gfx908", "gfx90a", "gfx942", "gfx950",
    "gfx1010", "gfx1011", "gfx1012",
    "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036",
    "gfx1100", "gfx1101", "gfx1102", "gfx1103",
    "gfx1150", "gfx1151", "gfx1152", "gfx1153",
    "gfx1200", "gfx1201", "gfx1250",
)  # fmt: skip
#: AMD's page about WSL2: the wheels of `AMD_INDEX` run there with AMD's driver for Windows and librocdxg.
AMD_WSL = "https://github.com/ROCm/rocm-cli/blob/main/docs/wsl.md"
#: Architectures on which AMD's wheels are reported to compute wrong results, and the report's URL.
AMD_WRONG = {"gfx1033": "https://github.com/unslothai/unsloth/pull/8412"}
#: The release of torch in `AMD_INDEX`, and the oldest and newest Python that it supports:
#: https://rocm.docs.amd.com/projects/ai-ecosystem/en/latest/frameworks/pytorch/install.html
_AMD_TORCH = "2.12"
_AMD_OLDEST_PYTHON, _AMD_NEWEST_PYTHON = "3.11", "3.14"
#: AMD's index of wheels for ROCm 10, and the architectures on which AMD tested the wheels.
AMD_NEXT_INDEX = "https://stable.repo.amd.com/rocm/whl-next/"
AMD_NEXT_SOURCE = "https://github.com/ultralytics/ultralytics/pull/24137"
AMD_NEXT_TARGETS = ("gfx950", "gfx1151", "gfx1201")


class Release(NamedTuple):
    """A torch release: its builds, and the Python versions that it supports."""

    #: The names of the builds: those for CUDA, newest first, those for ROCm, newest first, and `"xpu"`.
    builds: tuple[str, ...]
    oldest_python: str
    newest_python: str


#: The releases of torch by major and minor version. Sources:
#: https://pytorch.org/get-started/previous-versions/ and pytorch/pytorch, RELEASE.md, "Release
#: Compatibility Matrix".
RELEASES = {
    "2.6": Release(
        ("cu126", "cu124", "cu118", "rocm6.2.4", "rocm6.1", "xpu"), "3.9", "3.13"
    ),
    "2.7": Release(
        ("cu128", "cu126", "cu118", "rocm6.3", "rocm6.2.4", "xpu"), "3.9", "3.13"
    ),
    "2.8": Release(
        ("cu129", "cu128", "cu126", "rocm6.4", "rocm6.3", "xpu"), "3.9", "3.13"
    ),
    "2.9": Release(
        ("cu130", "cu128", "cu126", "rocm6.4", "rocm6.3", "xpu"), "3.10", "3.14"
    ),
    "2.10": Release(
        ("cu130", "cu128", "cu126", "rocm7.1", "rocm7.0", "xpu"), "3.10", "3.14"
    ),
    "2.11": Release(
        ("cu130", "cu128", "cu126", "rocm7.2", "rocm7.1", "xpu"), "3.10", "3.14"
    ),
    "2.12": Release(
        ("cu132", "cu130", "cu126", "rocm7.2", "rocm7.1", "xpu"), "3.10", "3.14"
    ),
    "2.13": Release(
        ("cu132", "cu130", "cu129", "cu126", "rocm7.2", "rocm7.1", "xpu"),
        "3.10",
        "3.14",
    ),
    "2.14": Release(("cu132", "cu130", "cu126", "rocm7.14", "xpu"), "3.10", "3.14"),
    "2.15": Release(("cu132", "cu130", "xpu"), "3.11", "3.15"),
}
#: Pairs of a release and a CUDA build that has no wheels for Windows.
_NOT_ON_WINDOWS = {("2.13", "cu129")}
#: The newest CUDA build with code for GPUs from Maxwell to Volta. uv does not consider this limit.
LAST_WITH_VOLTA = "cu126"
VOLTA_SOURCE = "https://github.com/pytorch/pytorch/issues/157517"
#: The CUDA build with code for a Jetson Thor (sm_110), which the builds for CUDA 12 lack.
THOR = "cu130"
THOR_SOURCE = "https://github.com/OpenRAL/openral/pull/168"
#: The last release for macOS 13: libtorch_cpu.dylib of torch 2.8.0 has Metal kernels for macOS 13,
#: and that of torch 2.9.0 has Metal kernels only for macOS 14 and newer.
LAST_ON_MACOS_13 = "2.8.0"
#: The architectures of PyPI's wheels of torch 2.15.0, by system. Wheels for s390x are only in
#: PyTorch's index `cpu`.
_ARCHITECTURES = {
    "darwin": ("arm64",),
    "linux": ("aarch64", "s390x", "x86_64"),
    "win32": ("AMD64", "x86_64"),
}
#: The oldest glibc for PyPI's wheels of torch since 2.7, which have the tag manylinux_2_28.
OLDEST_GLIBC = "2.28"
#: Vendors whose builds exist only for x86_64: in pytorch/pytorch,
#: .github/scripts/generate_binary_build_matrix.py, `linux-aarch64` has only CPU and CUDA builds.
_NOT_ON_ARM = ("AMD", "Intel")
#: The first CUDA build for aarch64: https://github.com/pytorch/pytorch/issues/147953
_FIRST_ON_ARM = "cu126"
#: For each build that PyTorch has dropped, the last release that has it:
#: https://github.com/pytorch/pytorch/issues/190385, https://github.com/pytorch/test-infra/pull/8451 and
#: RELEASE.md.
LAST_RELEASE = {
    build: version
    for version, release in RELEASES.items()
    for build in release.builds
    if build not in RELEASES["2.15"].builds
}
#: The page that lists the builds of each release.
RELEASES_SOURCE = "https://pytorch.org/get-started/previous-versions/"
#: The oldest CUDA build of torch 2.6, the oldest supported torch.
_OLDEST_CUDA_BUILD = "cu118"
#: The newest release, and the release before it, which pip installs for a Python that the newest
#: release does not support. Releases that the table lacks are assumed to support the Pythons of these
#: two releases. Source: PyPI, 2026-11-24.
_NEWEST_RELEASE, _PREVIOUS_RELEASE = "2.15", "2.14"
#: The source of the choices of uv that this module contains.
_TABLE_SOURCE = f"a table of {TABLE_DATE}"


class Build(NamedTuple):
    """A PyTorch build that a search found, and the page or table that lists the build."""

    #: The build's name in the URL of its index and in uv's `--torch-backend`, such as `"cu130"`, or an
    #: empty string if no build fits.
    name: str
    #: The source: a URL, or `"a table of 2026-11-24"`.
    source: str


def index_url(name: str) -> str:
    """Return the URL of the package index for a PyTorch build, such as `"cu130"`."""
    return f"{INDEX}/{name}"


# --- Wheels --------------------------------------------------------------------------


def why_no_wheels_for_platform(
    system: str, architecture: str, target: str = "CPU"
) -> str:
    """Return why PyTorch has no wheels for the system, CPU architecture and hardware.

    Returns an empty string if wheels exist. `target` is the hardware, such as `"AMD GPU"` or `"CPU"`.
    """
    if architecture not in _ARCHITECTURES.get(system, ()):
        return f"PyPI has no torch for {architecture} on {system}"
    if system == "darwin" and not target.startswith(("Apple", "CPU")):
        return f"PyTorch's wheels for the {target} are for Linux and Windows, but this is macOS"
    if architecture == "aarch64" and target.startswith(_NOT_ON_ARM):
        return f"PyTorch's wheels for the {target} are for x86_64, but this is aarch64"
    return ""


def why_no_wheels_for_python(python: str, torch: str = "") -> str:
    """Return why PyTorch has no wheels for the Python version `python`.

    Returns an empty string if wheels exist. `torch` is a release, or an empty string for the newest.
    """
    release = RELEASES.get(_without_patch_version(torch))
    if release is not None:
        oldest, newest = release.oldest_python, release.newest_python
        supported = f"torch {torch} has wheels for Python {oldest} to {newest}"
    else:
        # pip installs the previous release for a Python that the newest release does not support.
        oldest = RELEASES[_PREVIOUS_RELEASE].oldest_python
        newest = RELEASES[_NEWEST_RELEASE].newest_python
        supported = (
            f"torch {_NEWEST_RELEASE} has wheels for Python "
            f"{RELEASES[_NEWEST_RELEASE].oldest_python} to {newest}, "
            f"and torch {_PREVIOUS_RELEASE} has wheels for Python {oldest} and newer"
        )
    if _is_at_least(python, oldest) and _is_at_least(newest, python):
        return ""
    return f"{supported}, but this is Python {python}"


def has_build(torch: str, build: str) -> bool:
    """Return whether the torch release `torch` has the build called `build`, such as `"cu130"`.

    If `torch` is an empty string, any release counts, so the result is True. Releases that are not in
    `RELEASES` are newer, and are assumed to have all builds that PyTorch has not dropped.
    """
    if not torch:
        return True
    release = RELEASES.get(_without_patch_version(torch))
    if release is not None:
        return build in release.builds
    is_dropped = build in LAST_RELEASE
    return not is_dropped


def _builds_of_all_releases(prefix: str) -> set[str]:
    """Return the builds whose names start with `prefix`: `"cu"` for CUDA, `"rocm"` for ROCm."""
    names: set[str] = set()
    for release in RELEASES.values():
        names.update(name for name in release.builds if name.startswith(prefix))
    return names


def _builds_without_wheels(system: str, torch: str) -> list[str]:
    """Return the builds of the release `torch` that have no wheels for the system."""
    if system != "win32":
        return []
    version = _without_patch_version(torch)
    return [build for release, build in _NOT_ON_WINDOWS if release == version]


# --- NVIDIA --------------------------------------------------------------------------


def newest_build_for_driver(
    driver: str, torch: str = "", system: str = "linux"
) -> Build:
    """Return the newest CUDA build that the NVIDIA driver version `driver` can run.

    `torch` is the required release, or an empty string for the newest. If no build fits, the returned
    build's name is an empty string.
    """
    no_build = Build("", _TABLE_SOURCE)
    newest = _newest_cuda_build_for_driver(driver, system)
    if not newest:
        return no_build
    release = RELEASES.get(_without_patch_version(torch))
    if release is not None:
        without_wheels = _builds_without_wheels(system, torch)
        for name in release.builds:  # The newest build comes first.
            is_available = name.startswith("cu") and name not in without_wheels
            # A driver that runs one build runs all builds for the same major version of CUDA.
            if is_available and _cuda_major(name) <= _cuda_major(newest):
                return Build(name, _TABLE_SOURCE)
        return no_build
    # A release that is not in the table is newer, and does not have the builds that PyTorch dropped.
    if torch and newest in LAST_RELEASE:
        return no_build
    return Build(newest, _TABLE_SOURCE)


def _newest_cuda_build_for_driver(driver: str, system: str) -> str:
    """Return the newest CUDA build in uv's list that the driver can run, or an empty string."""
    for build in _CUDA_BUILDS:  # The newest build comes first.
        if _is_at_least(driver, build.oldest_driver(system)):
            return build.name
    return ""


def driver_can_run(driver: str, build: str, system: str = "linux") -> bool:
    """Return whether the NVIDIA driver version `driver` can run a CUDA build.

    A driver that can run one minor version of CUDA can run all minor versions of the same major version,
    and all older versions.
    """
    newest = _newest_cuda_build_for_driver(driver, system)
    if not newest or not build.startswith("cu"):
        return False
    return _cuda_major(build) <= _cuda_major(newest)


def oldest_supported_driver(system: str) -> str:
    """Return the oldest NVIDIA driver version for which a supported torch release has a build."""
    drivers = {build.name: build.oldest_driver(system) for build in _CUDA_BUILDS}
    return drivers[_OLDEST_CUDA_BUILD]


def oldest_driver_for_build(build: str, system: str = "linux") -> str:
    """Return the oldest NVIDIA driver version that can run a CUDA build."""
    drivers = []
    # A driver that runs one build runs all builds for the same or an older major version of CUDA.
    for other_build in _CUDA_BUILDS:
        if _cuda_major(other_build.name) >= _cuda_major(build):
            drivers.append(other_build.oldest_driver(system))
    return min(drivers, key=Version)


def is_retired(build: str) -> bool:
    """Return whether a CUDA build is older than all CUDA builds of the supported torch releases."""
    return _cuda_number(build) < _cuda_number(_OLDEST_CUDA_BUILD)


def lacks_code_for_volta(build: str) -> bool:
    """Return whether a CUDA build has no code for NVIDIA GPUs from Maxwell to Volta."""
    return _cuda_number(build) > _cuda_number(LAST_WITH_VOLTA)


def is_before_first_arm_build(build: str) -> bool:
    """Return whether a CUDA build is older than PyTorch's first CUDA build for aarch64."""
    return _cuda_number(build) < _cuda_number(_FIRST_ON_ARM)


def _cuda_number(build: str) -> int:
    """Return the number in a CUDA build's name, such as 128 for `"cu128"`."""
    return int(build.removeprefix("cu"))


# --- AMD -----------------------------------------------------------------------------


def newest_build_for_amd_gpu(architecture: str, torch: str = "") -> Build:
    """Return the newest ROCm build with code for an AMD GPU architecture, such as `"gfx90a"`.

    `torch` is the required release, or an empty string for the newest. If no build fits, the returned
    build's name is an empty string.
    """
    if is_vega(architecture):
        # Newer builds have no code for Vega.
        return Build(_newest_build_in_release(_WITH_VEGA, torch), _VEGA_SOURCE)
    oldest_rocm = _OLDEST_ROCM.get(architecture)
    if oldest_rocm is None:
        return Build("", _TABLE_SOURCE)
    builds_with_code = []
    for version in _ROCM_VERSIONS:
        if _is_at_least(version, oldest_rocm):
            builds_with_code.append(f"rocm{version}")
    return Build(_newest_build_in_release(builds_with_code, torch), _TABLE_SOURCE)


def why_amd_wheels_do_not_fit(python: str, torch: str = "") -> str:
    """Return why AMD's wheels do not fit the Python and torch versions.

    Returns an empty string if the wheels fit.
    """
    if torch and _without_patch_version(torch) != _AMD_TORCH:
        return f"AMD's wheels are for torch {_AMD_TORCH}, not {torch}"
    oldest, newest = _AMD_OLDEST_PYTHON, _AMD_NEWEST_PYTHON
    if _is_at_least(python, oldest) and _is_at_least(newest, python):
        return ""
    return (
        f"AMD's wheels are for Python {oldest} to {newest}, but this is Python {python}"
    )


def is_vega(architecture: str) -> bool:
    """Return whether an AMD GPU architecture, such as `"gfx906"`, belongs to the Vega generation."""
    return architecture in _VEGA


def _newest_build_in_release(names: Sequence[str], torch: str) -> str:
    """Return the newest of the ROCm builds `names` that the release `torch` has, or an empty string.

    `names` is sorted from the newest to the oldest build.
    """
    release = RELEASES.get(_without_patch_version(torch))
    if release is not None:
        for name in release.builds:  # The newest build comes first.
            if name in names:
                return name
        return ""
    newest_name = names[0]  # The names are sorted, newest first.
    # A release that is not in the table is newer, and does not have the builds that PyTorch dropped.
    if torch and newest_name in LAST_RELEASE:
        return ""
    return newest_name


def amd_architectures_of(build: str) -> tuple[str, ...]:
    """Return the AMD GPU architectures for which a ROCm build has code."""
    version = build.removeprefix("rocm")
    architectures = list(_VEGA) if build in _WITH_VEGA else []
    for architecture, oldest_rocm in _OLDEST_ROCM.items():
        if _is_at_least(version, oldest_rocm):
            architectures.append(architecture)
    return tuple(architectures)


# --- Toolkits ------------------------------------------------------------------------


def newest_build_for_toolkit(
    prefix: str, toolkit: str, torch: str = "", system: str = "linux"
) -> Build:
    """Return the newest build for a requested version of CUDA or ROCm.

    The build has the toolkit's major version, and is not newer than the toolkit. A machine that can run one
    build of a major version can run all builds of this major version. torch can compile extensions with any
    toolkit of this major version (torch/utils/cpp_extension.py).

    Args:
        prefix: The start of the builds' names: `"cu"` for CUDA, `"rocm"` for ROCm.
        toolkit: The toolkit version, such as `"12.8"`.
        torch: The required release, or an empty string for any release.
        system: A value of `sys.platform`, such as `"linux"`.
    """
    limit = _parse_toolkit_version(toolkit)
    without_wheels = _builds_without_wheels(system, torch)
    newest_name, newest_version = "", ToolkitVersion(0, 0)
    for name in _builds_of_all_releases(prefix).difference(without_wheels):
        version = _toolkit_version_of(name)
        is_suitable = version.major == limit.major and version <= limit
        if is_suitable and has_build(torch, name) and version > newest_version:
            newest_name, newest_version = name, version
    return Build(newest_name, RELEASES_SOURCE)


def toolkit_versions(prefix: str) -> str:
    """Return the CUDA or ROCm versions for which PyTorch has builds, such as `"11.8, 12.4"`.

    `prefix` is the start of the builds' names: `"cu"` for CUDA, `"rocm"` for ROCm.
    """
    versions = {_toolkit_version_of(name) for name in _builds_of_all_releases(prefix)}
    return ", ".join(f"{v.major}.{v.minor}" for v in sorted(versions))


# --- Versions ------------------------------------------------------------------------


class ToolkitVersion(NamedTuple):
    """The major and minor version of CUDA or ROCm."""

    major: int
    minor: int


def _toolkit_version_of(build: str) -> ToolkitVersion:
    """Return the toolkit's version in a build's name, such as 12.8 for `"cu128"`."""
    if build.startswith("cu"):
        # The last digit of cu128 is the minor version of CUDA 12.8.
        minor = int(build[-1])
        return ToolkitVersion(_cuda_major(build), minor)
    return _parse_toolkit_version(build.removeprefix("rocm"))


def _cuda_major(build: str) -> int:
    """Return the major version of CUDA in a build's name, such as 12 for `"cu128"`."""
    digits = build.removeprefix("cu")
    return int(digits[:-1])  # The last digit is the minor version.


def _parse_toolkit_version(text: str) -> ToolkitVersion:
    """Return the major and minor version in a text such as `"6.2.4"`.

    The minor version may be missing.
    """
    major, *other_numbers = text.split(".")
    minor = other_numbers[0] if other_numbers else "0"
    return ToolkitVersion(int(major), int(minor))


def _without_patch_version(release: str) -> str:
    """Return the major and minor version of a release, such as `"2.13"` for `"2.13.1"`."""
    return ".".join(release.split(".")[:2])


def _is_at_least(version: str, oldest: str) -> bool:
    """Return whether `version` is not older than `oldest`.

    Returns False if either version is malformed.
    """
    try:
        return Version(version) >= Version(oldest)
    except InvalidVersion:
        return False
