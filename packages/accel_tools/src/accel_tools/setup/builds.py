"""A dated table of PyTorch's builds for NVIDIA, AMD and Intel GPUs.

It contains the builds that uv chooses, for installers other than uv.
"""

from __future__ import annotations

from typing import NamedTuple

from packaging.version import InvalidVersion, Version

__all__ = [
    "CPU",
    "FIRST_ON_ARM",
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
    "can_run",
    "for_amd",
    "for_nvidia",
    "for_toolkit",
    "gpus_of",
    "has_build",
    "index_of",
    "is_retired",
    "is_vega",
    "lacks_volta",
    "oldest_driver",
    "oldest_driver_of",
    "toolkits",
    "why_no_platform",
    "why_no_python",
]

INDEX = "https://download.pytorch.org/whl"
CPU = "cpu"
#: The date of the choices of uv 0.13.9 below. tests/setup/test_builds.py compares them with uv.
TABLE_DATE = "2026-11-24"
#: PyTorch's indexes for CUDA in uv's order. Each entry has the oldest driver on Linux (and WSL2),
#: and the oldest driver on Windows.
_NVIDIA = (
    ("cu132", "580", "580"),
    ("cu129", "525.60.13", "528.33"),
    ("cu118", "450.80.02", "452.39"),
    ("cu110", "450.36.06", "451.22"),
    ("cu102", "440.33", "441.22"),
    ("cu101", "418.39", "418.96"),
    ("cu100", "410.48", "411.31"),
    ("cu92", "396.26", "398.26"),
    ("cu91", "390.46", "391.29"),
    ("cu90", "384.81", "385.54"),
    ("cu80", "375.26", "376.51"),
)
#: AMD GPU architectures for which PyTorch has wheels, and the oldest ROCm version of those wheels,
#: according to uv.
_AMD = {
    **dict.fromkeys(("gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"), "6.0"),
    "gfx1101": "6.1",
    **dict.fromkeys(("gfx1102", "gfx1200", "gfx1201"), "6.2.4"),
    "gfx950": "7.0",
    **dict.fromkeys(("gfx1150", "gfx1151"), "7.2"),
}
_ROCM = ("7.2", "7.1", "7.0", "6.4", "6.3", "6.2.4", "6.2", "6.1", "6.0")
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
_AMD_PYTHONS = ("3.11", "3.14")
#: AMD's index of wheels for ROCm 10, and the architectures on which AMD tested the wheels.
AMD_NEXT_INDEX = "https://stable.repo.amd.com/rocm/whl-next/"
AMD_NEXT_SOURCE = "https://github.com/ultralytics/ultralytics/pull/24137"
AMD_NEXT_TARGETS = ("gfx950", "gfx1151", "gfx1201")
#: For each release of torch, its builds, newest first, and the oldest and newest Python that it
#: supports. Sources: https://pytorch.org/get-started/previous-versions/ and pytorch/pytorch,
#: RELEASE.md, "Release Compatibility Matrix".
RELEASES = {
    "2.6": (
        ("cu126", "cu124", "cu118", "rocm6.2.4", "rocm6.1", "xpu"),
        ("3.9", "3.13"),
    ),
    "2.7": (
        ("cu128", "cu126", "cu118", "rocm6.3", "rocm6.2.4", "xpu"),
        ("3.9", "3.13"),
    ),
    "2.8": (("cu129", "cu128", "cu126", "rocm6.4", "rocm6.3", "xpu"), ("3.9", "3.13")),
    "2.9": (("cu130", "cu128", "cu126", "rocm6.4", "rocm6.3", "xpu"), ("3.10", "3.14")),
    "2.10": (
        ("cu130", "cu128", "cu126", "rocm7.1", "rocm7.0", "xpu"),
        ("3.10", "3.14"),
    ),
    "2.11": (
        ("cu130", "cu128", "cu126", "rocm7.2", "rocm7.1", "xpu"),
        ("3.10", "3.14"),
    ),
    "2.12": (
        ("cu132", "cu130", "cu126", "rocm7.2", "rocm7.1", "xpu"),
        ("3.10", "3.14"),
    ),
    "2.13": (
        ("cu132", "cu130", "cu129", "cu126", "rocm7.2", "rocm7.1", "xpu"),
        ("3.10", "3.14"),
    ),
    "2.14": (("cu132", "cu130", "cu126", "rocm7.14", "xpu"), ("3.10", "3.14")),
    "2.15": (("cu132", "cu130", "xpu"), ("3.11", "3.15")),
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
#: Vendors whose builds are only for x86_64: in pytorch/pytorch,
#: .github/scripts/generate_binary_build_matrix.py, `linux-aarch64` has only CPU and CUDA builds.
_NOT_ON_ARM = ("AMD", "Intel")
#: The first CUDA build for aarch64: https://github.com/pytorch/pytorch/issues/147953
FIRST_ON_ARM = "cu126"
#: For each build that PyTorch has dropped, the last release that has it:
#: https://github.com/pytorch/pytorch/issues/190385, https://github.com/pytorch/test-infra/pull/8451 and
#: RELEASE.md.
LAST_RELEASE = {
    name: release
    for release, (names, _) in RELEASES.items()
    for name in names
    if name not in RELEASES["2.15"][0]
}
#: The page that lists the builds of each release.
RELEASES_SOURCE = "https://pytorch.org/get-started/previous-versions/"
#: The oldest CUDA build of torch 2.6, the oldest supported torch.
_OLDEST = "cu118"
#: The newest release, and the release before it, which pip installs for a Python that the newest
#: release does not support. Releases that the table lacks are assumed to support the Pythons of these
#: two releases. Source: PyPI, 2026-11-24.
_NEWEST, _PREVIOUS = "2.15", "2.14"


class Build(NamedTuple):
    """One of PyTorch's builds, and the source of the fact that it fits."""

    #: The build's name in the URL of its index and in uv's `--torch-backend`, such as `"cu130"`; empty
    #: if no build fits.
    name: str
    #: The source: a URL, or `"a table of 2026-11-24"`.
    source: str


def index_of(name: str) -> str:
    """Return the URL of the index with PyTorch's build called `name`, such as `"cu130"`."""
    return f"{INDEX}/{name}"


# --- Wheels --------------------------------------------------------------------------


def why_no_platform(system: str, architecture: str, target: str = "CPU") -> str:
    """Return why PyTorch has no wheels for the system, CPU architecture and hardware.

    The string is empty if wheels exist. `target` is the hardware, such as `"AMD GPU"` or `"CPU"`.
    """
    if architecture not in _ARCHITECTURES.get(system, ()):
        return f"PyPI has no torch for {architecture} on {system}"
    if system == "darwin" and not target.startswith(("Apple", "CPU")):
        return f"PyTorch's wheels for the {target} are for Linux and Windows, but this is macOS"
    if architecture == "aarch64" and target.startswith(_NOT_ON_ARM):
        return f"PyTorch's wheels for the {target} are for x86_64, but this is aarch64"
    return ""


def why_no_python(python: str, torch: str = "") -> str:
    """Return why PyTorch has no wheels for the version `python` of Python.

    `torch` is a release, or an empty string for the newest. The string is empty if wheels exist.
    """
    minor = _minor(torch)
    if minor in RELEASES:
        oldest, newest = RELEASES[minor][1]
        what = f"torch {torch} has wheels for Python {oldest} to {newest}"
    else:
        oldest, _ = RELEASES[_PREVIOUS][1]
        first, newest = RELEASES[_NEWEST][1]
        what = (
            f"torch {_NEWEST} has wheels for Python {first} to {newest}, "
            f"and torch {_PREVIOUS} for Python {oldest} and newer"
        )
    if _is_at_least(python, oldest) and _is_at_least(newest, python):
        return ""
    return f"{what}, but this is Python {python}"


def has_build(torch: str, build: str) -> bool:
    """Return whether the release `torch` has the build called `build`; true for an empty release.

    Releases that the table lacks are newer than the table. They are assumed to have all builds that
    PyTorch has not dropped.
    """
    if not torch:
        return True
    if _minor(torch) in RELEASES:
        return build in RELEASES[_minor(torch)][0]
    return build not in LAST_RELEASE


def _published(kind: str) -> set[str]:
    """Return the builds for CUDA (`kind` is `"cu"`) or ROCm (`"rocm"`) of all releases."""
    names: set[str] = set()
    for builds, _ in RELEASES.values():
        names.update(name for name in builds if name.startswith(kind))
    return names


def _missing_on(system: str, torch: str) -> list[str]:
    """Return the builds of the release `torch` that have no wheels for the system."""
    if system != "win32":
        return []
    return [name for release, name in _NOT_ON_WINDOWS if release == _minor(torch)]


# --- NVIDIA --------------------------------------------------------------------------


def for_nvidia(driver: str, torch: str = "", system: str = "linux") -> Build:
    """Return the build for the version `driver` of NVIDIA's driver.

    `torch` is a release, or an empty string for the newest. The build's name is empty if no
    build fits.
    """
    newest = _newest_run_by(driver, system)
    if not newest:
        return Build("", _TABLE)
    minor = _minor(torch)
    if minor in RELEASES:
        missing = _missing_on(system, torch)
        for name in RELEASES[minor][0]:
            is_cuda = name.startswith("cu") and name not in missing
            if is_cuda and _cuda_major(name) <= _cuda_major(newest):
                return Build(name, _TABLE)
        return Build("", _TABLE)
    # A release that the table lacks is newer, and has no build that PyTorch has dropped.
    if torch and newest in LAST_RELEASE:
        return Build("", _TABLE)
    return Build(newest, _TABLE)


def _newest_run_by(driver: str, system: str) -> str:
    """Return the newest build in uv's list that NVIDIA's driver can run, or an empty string."""
    for name, *oldest in _NVIDIA:
        if _is_at_least(driver, oldest[system == "win32"]):
            return name
    return ""


def can_run(driver: str, build: str, system: str = "linux") -> bool:
    """Return whether the version `driver` of NVIDIA's driver can run a CUDA build.

    A driver that can run one minor version of CUDA can run all minor versions of this major
    version, and all older versions.
    """
    newest = _newest_run_by(driver, system)
    if not newest or not build.startswith("cu"):
        return False
    return _cuda_major(build) <= _cuda_major(newest)


def oldest_driver(system: str) -> str:
    """Return the oldest version of NVIDIA's driver for which a supported torch has a build."""
    drivers = {name: oldest for name, *oldest in _NVIDIA}
    return drivers[_OLDEST][system == "win32"]


def oldest_driver_of(build: str, system: str = "linux") -> str:
    """Return the oldest version of NVIDIA's driver that can run a CUDA build."""
    drivers = []
    for name, *oldest in _NVIDIA:
        if _cuda_major(name) >= _cuda_major(build):
            drivers.append(oldest[system == "win32"])
    return min(drivers, key=Version)


def is_retired(name: str) -> bool:
    """Return whether a CUDA build is older than all builds of supported releases of torch."""
    return int(name[2:]) < int(_OLDEST[2:])


def lacks_volta(name: str) -> bool:
    """Return whether a CUDA build has no code for GPUs from Maxwell to Volta."""
    return int(name[2:]) > int(LAST_WITH_VOLTA[2:])


# --- AMD -----------------------------------------------------------------------------


def for_amd(architecture: str, torch: str = "") -> Build:
    """Return the build for an AMD GPU architecture such as `"gfx90a"`.

    `torch` is a release, or an empty string for the newest. The build's name is empty if no
    build fits.
    """
    if is_vega(architecture):
        return Build(_newest_of_release(_WITH_VEGA, torch), _VEGA_SOURCE)
    oldest = _AMD.get(architecture)
    if oldest is None:
        return Build("", _TABLE)
    names = [f"rocm{version}" for version in _ROCM if _is_at_least(version, oldest)]
    return Build(_newest_of_release(names, torch), _TABLE)


def why_not_from_amd(python: str, torch: str = "") -> str:
    """Return why AMD's wheels do not fit the versions of Python and torch; empty if they fit."""
    if torch and _minor(torch) != _AMD_TORCH:
        return f"AMD's wheels are for torch {_AMD_TORCH}, not {torch}"
    oldest, newest = _AMD_PYTHONS
    if _is_at_least(python, oldest) and _is_at_least(newest, python):
        return ""
    wheels = f"AMD's wheels are for Python {oldest} to {newest}"
    return f"{wheels}, but this is Python {python}"


def is_vega(architecture: str) -> bool:
    """Return whether an AMD GPU architecture is Vega, for which uv also names builds without code."""
    return architecture in _VEGA


def _newest_of_release(names: list[str], torch: str) -> str:
    """Return the newest of the ROCm builds `names` that the release has, or an empty string."""
    minor = _minor(torch)
    if minor in RELEASES:
        for name in RELEASES[minor][0]:
            if name in names:
                return name
        return ""
    # A release that the table lacks is newer, and has no build that PyTorch has dropped.
    if torch and names[0] in LAST_RELEASE:
        return ""
    return names[0]


def gpus_of(build: str) -> tuple[str, ...]:
    """Return the AMD GPU architectures for which a ROCm build has code."""
    version = build.removeprefix("rocm")
    gpus = [gfx for gfx, oldest in _AMD.items() if _is_at_least(version, oldest)]
    if build in _WITH_VEGA:
        return (*_VEGA, *gpus)
    return tuple(gpus)


# --- Toolkits ------------------------------------------------------------------------


def for_toolkit(
    kind: str, toolkit: str, torch: str = "", system: str = "linux"
) -> Build:
    """Return the build for the version `toolkit` of CUDA (`kind` is `"cu"`) or ROCm (`"rocm"`).

    This is the newest build with the toolkit's major version that is not newer than the toolkit. A
    machine that can run one build of a major version can run all builds of this major version, and
    torch compiles extensions with any toolkit of this major version
    (torch/utils/cpp_extension.py).
    """
    limit = _major_minor(toolkit)
    newest, newest_version = "", (0, 0)
    for name in _published(kind).difference(_missing_on(system, torch)):
        version = _version_of(name)
        is_suitable = version[0] == limit[0] and version <= limit
        if is_suitable and has_build(torch, name) and version > newest_version:
            newest, newest_version = name, version
    return Build(newest, RELEASES_SOURCE)


def toolkits(kind: str) -> str:
    """Return the versions of CUDA or ROCm for which PyTorch has builds, separated by commas."""
    versions = {_version_of(name) for name in _published(kind)}
    return ", ".join(f"{major}.{minor}" for major, minor in sorted(versions))


# --- Versions ------------------------------------------------------------------------


_TABLE = f"a table of {TABLE_DATE}"


def _version_of(build: str) -> tuple[int, int]:
    """Return the major and minor version in a build's name, such as (12, 8) for `"cu128"`."""
    if build.startswith("cu"):
        return _cuda_major(build), int(build[-1])
    return _major_minor(build.removeprefix("rocm"))


def _cuda_major(build: str) -> int:
    """Return the major version in a CUDA build's name, such as 12 for `"cu128"`."""
    return int(build[2:-1])


def _major_minor(version: str) -> tuple[int, int]:
    numbers = [int(number) for number in version.split(".")]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def _minor(torch: str) -> str:
    """Return the major and minor version of a release, such as `"2.13"` for `"2.13.1"`."""
    return ".".join(torch.split(".")[:2])


def _is_at_least(version: str, oldest: str) -> bool:
    """Return whether `version` is not older than `oldest`; False if either is malformed."""
    try:
        return Version(version) >= Version(oldest)
    except InvalidVersion:
        return False
