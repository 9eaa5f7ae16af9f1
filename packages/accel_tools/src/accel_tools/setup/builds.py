"""PyTorch's builds for NVIDIA, AMD and Intel: a dated table of uv's choices, for installers without uv."""

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
#: The date of uv 0.13.9's answers below, which tests/setup/test_builds.py compares with uv's own.
TABLE_DATE = "2026-11-24"
#: Indexes in uv's order, each with the oldest driver for it on Linux, WSL2 included, and on Windows.
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
#: AMD's architectures for which PyTorch has wheels, and the oldest ROCm of those wheels, by uv.
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
#: Releases whose build for that CUDA has no wheels for Windows.
_NOT_ON_WINDOWS = {("2.13", "cu129")}
#: The newest CUDA build with code for GPUs from Maxwell to Volta, which uv does not consider.
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
#: The tag of PyPI's wheels of torch since 2.7: manylinux_2_28.
OLDEST_GLIBC = "2.28"
#: Hardware whose builds are only for x86_64: pytorch/pytorch,
#: .github/scripts/generate_binary_build_matrix.py, where `linux-aarch64` has CPU and CUDA.
_NOT_ON_ARM = ("AMD", "Intel")
#: The first CUDA build for aarch64: https://github.com/pytorch/pytorch/issues/147953
FIRST_ON_ARM = "cu126"
#: The last release of each build that the newest release lacks. PyTorch has dropped these builds:
#: https://github.com/pytorch/pytorch/issues/190385, https://github.com/pytorch/test-infra/pull/8451 and
#: RELEASE.md.
LAST_RELEASE = {
    name: release
    for release, (names, _) in RELEASES.items()
    for name in names
    if name not in RELEASES["2.15"][0]
}
#: Where each release's builds are listed.
RELEASES_SOURCE = "https://pytorch.org/get-started/previous-versions/"
#: The oldest CUDA build of torch 2.6, the oldest supported torch.
_OLDEST = "cu118"
#: The newest release, and the one before it, which pip takes for a Python that the newest does not support.
#: Releases that the table lacks are assumed to have wheels for the Pythons of these two. PyPI, 2026-11-24.
_NEWEST, _BEFORE = "2.15", "2.14"


class Build(NamedTuple):
    """One of PyTorch's indexes, and the source that states that it fits."""

    #: Its name in the address, which is uv's `--torch-backend`: `"cu130"`; empty if none fits.
    name: str
    #: An address, or `"a table of 2026-11-24"`.
    source: str


def index_of(name: str) -> str:
    """Return the address of one of PyTorch's indexes."""
    return f"{INDEX}/{name}"


# --- Wheels --------------------------------------------------------------------------


def why_no_platform(system: str, architecture: str, target: str = "CPU") -> str:
    """Return why there is no torch for that architecture and hardware; empty if there is one."""
    if architecture not in _ARCHITECTURES.get(system, ()):
        return f"PyPI has no torch for {architecture} on {system}"
    if system == "darwin" and not target.startswith(("Apple", "CPU")):
        return f"PyTorch's wheels for the {target} are for Linux and Windows, but this is macOS"
    if architecture == "aarch64" and target.startswith(_NOT_ON_ARM):
        return f"PyTorch's wheels for the {target} are for x86_64, but this is aarch64"
    return ""


def why_no_python(python: str, torch: str = "") -> str:
    """Return why PyTorch has no wheels for that Python; empty if it has, or if that is unknown."""
    minor = _minor(torch)
    if minor in RELEASES:
        oldest, newest = RELEASES[minor][1]
        what = f"torch {torch} has wheels for Python {oldest} to {newest}"
    else:
        oldest, _ = RELEASES[_BEFORE][1]
        first, newest = RELEASES[_NEWEST][1]
        what = (
            f"torch {_NEWEST} has wheels for Python {first} to {newest}, "
            f"torch {_BEFORE} from {oldest} on"
        )
    if _is_at_least(python, oldest) and _is_at_least(newest, python):
        return ""
    return f"{what}, but this is Python {python}"


def has_build(torch: str, build: str) -> bool:
    """Return whether that release of torch has that build.

    Releases missing in the table are newer, and are assumed to have the builds of the newest release in it.
    """
    if not torch:
        return True
    if _minor(torch) in RELEASES:
        return build in RELEASES[_minor(torch)][0]
    return build not in LAST_RELEASE


def _published(kind: str) -> set[str]:
    """Return all builds of CUDA (kind `"cu"`) or ROCm (`"rocm"`), of any release."""
    names: set[str] = set()
    for builds, _ in RELEASES.values():
        names.update(name for name in builds if name.startswith(kind))
    return names


def _missing_on(system: str, torch: str) -> list[str]:
    """Return the builds of that release that have no wheels for the system."""
    if system != "win32":
        return []
    return [name for release, name in _NOT_ON_WINDOWS if release == _minor(torch)]


# --- NVIDIA --------------------------------------------------------------------------


def for_nvidia(driver: str, torch: str = "", system: str = "linux") -> Build:
    """Return the build for NVIDIA's driver of that version; `torch`: a release, or empty for the newest."""
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
    """Return the newest build of uv's list that NVIDIA's driver of that version runs; else empty."""
    for name, *oldest in _NVIDIA:
        if _is_at_least(driver, oldest[system == "win32"]):
            return name
    return ""


def can_run(driver: str, build: str, system: str = "linux") -> bool:
    """Return whether NVIDIA's driver runs that build: all minor releases of a CUDA, and older ones."""
    newest = _newest_run_by(driver, system)
    if not newest or not build.startswith("cu"):
        return False
    return _cuda_major(build) <= _cuda_major(newest)


def oldest_driver(system: str) -> str:
    """Return the oldest NVIDIA driver for which a supported torch has a build."""
    drivers = {name: oldest for name, *oldest in _NVIDIA}
    return drivers[_OLDEST][system == "win32"]


def oldest_driver_of(build: str, system: str = "linux") -> str:
    """Return the oldest NVIDIA driver that runs that CUDA build."""
    drivers = []
    for name, *oldest in _NVIDIA:
        if _cuda_major(name) >= _cuda_major(build):
            drivers.append(oldest[system == "win32"])
    return min(drivers, key=Version)


def is_retired(name: str) -> bool:
    """Return whether no supported torch has that CUDA build."""
    return int(name[2:]) < int(_OLDEST[2:])


def lacks_volta(name: str) -> bool:
    """Return whether that CUDA build has no code for GPUs from Maxwell to Volta."""
    return int(name[2:]) > int(LAST_WITH_VOLTA[2:])


# --- AMD -----------------------------------------------------------------------------


def for_amd(architecture: str, torch: str = "") -> Build:
    """Return the build for an AMD GPU of that architecture, `"gfx90a"`; `torch`: as for NVIDIA."""
    if is_vega(architecture):
        return Build(_newest_of_release(_WITH_VEGA, torch), _VEGA_SOURCE)
    oldest = _AMD.get(architecture)
    if oldest is None:
        return Build("", _TABLE)
    names = [f"rocm{version}" for version in _ROCM if _is_at_least(version, oldest)]
    return Build(_newest_of_release(names, torch), _TABLE)


def is_vega(architecture: str) -> bool:
    """Return whether an AMD GPU is a Vega, for which uv names builds that have no code for it."""
    return architecture in _VEGA


def _newest_of_release(names: list[str], torch: str) -> str:
    """Return the newest of these ROCm builds that the release of torch has; else empty."""
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
    """Return AMD's architectures for which that build of ROCm has code."""
    version = build.removeprefix("rocm")
    gpus = [gfx for gfx, oldest in _AMD.items() if _is_at_least(version, oldest)]
    if build in _WITH_VEGA:
        return (*_VEGA, *gpus)
    return tuple(gpus)


# --- Toolkits ------------------------------------------------------------------------


def for_toolkit(
    kind: str, toolkit: str, torch: str = "", system: str = "linux"
) -> Build:
    """Return the build for that version of CUDA (kind `"cu"`) or ROCm (`"rocm"`).

    It is the newest build of the same major version that is not newer than the toolkit. A
    machine that runs one build of a major version runs the others, and torch compiles
    extensions with any toolkit of that major version (torch/utils/cpp_extension.py).
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
    """Return the versions of CUDA or ROCm that PyTorch has builds for, as text."""
    versions = {_version_of(name) for name in _published(kind)}
    return ", ".join(f"{major}.{minor}" for major, minor in sorted(versions))


# --- Versions ------------------------------------------------------------------------


_TABLE = f"a table of {TABLE_DATE}"


def _version_of(build: str) -> tuple[int, int]:
    """Return the version in a build's name: 12 and 8 of `"cu128"`, 6 and 2 of `"rocm6.2.4"`."""
    if build.startswith("cu"):
        return _cuda_major(build), int(build[-1])
    return _major_minor(build.removeprefix("rocm"))


def _cuda_major(build: str) -> int:
    """Return the major version in a CUDA build's name: 12 of `"cu128"`."""
    return int(build[2:-1])


def _major_minor(version: str) -> tuple[int, int]:
    numbers = [int(number) for number in version.split(".")]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def _minor(torch: str) -> str:
    """Return a release's minor version: `"2.13"` of `"2.13.1"`."""
    return ".".join(torch.split(".")[:2])


def _is_at_least(version: str, oldest: str) -> bool:
    """Return whether a version is not older than another; False if one is malformed."""
    try:
        return Version(version) >= Version(oldest)
    except InvalidVersion:
        return False
