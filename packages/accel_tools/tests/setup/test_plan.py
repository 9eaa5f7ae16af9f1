"""Plans for machines: what is chosen, by whose word, and what is said where nobody knows."""

import pytest

from accel_core import TorchBuild
from accel_tools.setup import formats, plan, planning, pytorch_indexes
from accel_tools.setup.machines import ALPINE, MACOS

H100 = "10de:2330/030200"
V100 = "10de:1db5/030200"
MI300 = "1002:74a1/120000"
ARC = "8086:56a0/030000"
IRIS = "8086:9a49/030000@0000:00:02.0"
LUNAR_LAKE = "8086:64a0/030000@0000:00:02.0"
ASCEND = "19e5:d802/120000"
RBLN = "1eff:1220/120000"
TRAINIUM = "1d0f:7364/120000"
CANN = (
    "/usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info"
)
#: With a driver that runs every build.
HOPPER = {"pci": [H100], "nvidia": "580.65.06"}
VOLTA = {"pci": [V100], "nvidia": "580.65.06"}
#: An A100, and a card that wheels for aarch64 have no code for.
AMPERE = {
    "pci": ["10de:20b0/030200", "10de:2191/030000"],
    "nvidia": "570.86.15",
    "architecture": "aarch64",
}
APPLE = {"system": "darwin", "architecture": "arm64"}


CHOSEN = [
    ({}, "CPU", "cpu", ["torch"]),
    ({"pci": [H100], "nvidia": "550.54.15"}, "NVIDIA GPU", "cu129", ["torch", "accel-cuda"]),
    (VOLTA, "NVIDIA GPU", "cu126", ["torch", "accel-cuda"]),
    (AMPERE, "NVIDIA GPU", "cu129", ["torch", "accel-cuda"]),
    ({"pci": [MI300], "gfx": [0, 90402]}, "AMD GPU", "rocm7.2", ["torch", "accel-cuda"]),
    ({"pci": [ARC]}, "Intel discrete GPU", "xpu", ["torch", "accel-xpu"]),
    ({"pci": [LUNAR_LAKE]}, "Intel integrated GPU", "xpu", ["torch", "accel-xpu"]),
    ({**VOLTA, "pci": [V100, H100]}, "NVIDIA GPU", "cu132", ["torch", "accel-cuda"]),
    ({"pci": [IRIS, ARC]}, "Intel discrete GPU", "xpu", ["torch", "accel-xpu"]),
    ({"pci": [ARC], "gfx": [0, 100306]}, "Intel discrete GPU", "xpu", ["torch", "accel-xpu"]),
    ({**HOPPER, "pci": [IRIS, H100]}, "NVIDIA GPU", "cu132", ["torch", "accel-cuda"]),
    (APPLE, "Apple GPU", "", ["torch", "accel-mps"]),
    ({"system": "win32", "architecture": "AMD64"}, "CPU", "", ["torch"]),
    ({"pci": ["1ae0:0063/088000"]}, "Google TPU", "cpu", ["torch==2.13.0", "torch-tpu==0.2.0", "accel-tpu"]),
    (
        {"pci": [TRAINIUM], "python": "3.12"},
        "AWS Trainium", "cpu", ["torch==2.14.0", "torch-neuronx==2.14.3.0.*", "accel-neuron"],
    ),
    ({"pci": [RBLN]}, "Rebellions NPU", "cpu", ["torch==2.13.0", "torch-rbln==0.12.0", "accel-rbln"]),
    (
        {"pci": [ASCEND], "files": {CANN: "version=8.5.0"}},
        "Ascend NPU", "cpu", ["torch==2.9.0", "torch-npu==2.9.0", "pyyaml", "setuptools", "accel-npu"],
    ),
    (
        {"pci": [ASCEND], "files": {CANN: "version=8.3.RC1"},
         "architecture": "aarch64", "python": "3.11"},
        "Ascend NPU", "cpu", ["torch==2.8.0", "torch-npu==2.8.0", "pyyaml", "setuptools", "accel-npu"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "target", "index", "packages"), CHOSEN)
def test_a_machine_gets_its_target_its_index_and_its_packages(
    planned_for, machine, target, index, packages
):
    found = planned_for(machine)
    assert found.target == target
    assert found.torch_backend == index
    assert [found.torch, *found.packages] == packages
    assert not found.why_no_command
    assert all(part.why for part in found.parts)


#: Most reasons are those of machines of threads, which have the addresses too.
UNKNOWN = [
    ({**HOPPER, "nvidia": "340.108"}, "no build of torch runs on NVIDIA driver 340.108", "nvidia.com"),
    (
        {**HOPPER, "nvidia": "520.61.05", "python": "3.14"},
        "can run: torch 2.7 has wheels for Python 3.9 to 3.13", "nvidia.com",
    ),
    ({**HOPPER, "nvidia": "520.61.05", "architecture": "aarch64"}, "no wheels for aarch64", "nvidia"),
    ({"pci": ["8086:4905/030000"]}, "only since Arc and Core Ultra", "get_start_xpu"),
    ({"pci": ["9999:4001/038000"]}, "torch that MetaX makes for its GPUs", "metax-tech.com"),
    ({"pci": ["1d94:55b7/038000"], "nodes": ["/dev/kfd"]}, "that Hygon makes for its DCUs", "sourcefind"),
    ({"pci": [MI300]}, "amdgpu does not report the GPU architecture", "rocm.docs.amd.com"),
    ({"pci": [ASCEND], "python": "3.15"}, "no row of the vendor's table has Python 3.15", "gitcode.com"),
    ({"glibc": "2.17"}, "since torch 2.7 need glibc 2.28, but this system has 2.17", "pytorch.org"),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "unknown", "address"), UNKNOWN)
def test_what_nobody_knows_is_said_with_an_address(
    planned_for, machine, unknown, address
):
    found = planned_for(machine)
    assert unknown in found.why_no_command
    assert address in found.url


def test_a_makers_torch_that_is_here_is_named_with_what_to_compare(
    described_machine, monkeypatch
):
    monkeypatch.setattr(
        pytorch_indexes, "torch_build", lambda: TorchBuild("2.8.0+metax3.5.3.9")
    )
    machine = described_machine({"pci": ["9999:4001/038000"]})
    assert planning.make_plan(machine).why_no_command.startswith(
        "torch 2.8.0+metax3.5.3.9, the driver and the SDK must be from the same release"
    )


def test_an_accelerator_that_nobody_knows_is_named(planned_for):
    """A GPU whose maker no file names; a network card and a board's VGA chip are none."""
    found = planned_for(
        {"pci": ["ac3e:0323/030200", "1a03:2000/030000", "14e4:1750/020000"]}
    )
    assert found.target == "CPU"
    assert found.torch_backend == "cpu"
    assert [
        note
        for note in found.notes
        if "for which no plugin is known: PCI ac3e:0323 at" in note
    ] == [*found.notes]
    assert planned_for(HOPPER).notes == ()


#: WSL2 with an integrated GPU of Intel's, whose model no file names.
INTEL_IN_WSL = {
    "files": {
        "/proc/version": "microsoft",
        "/usr/lib/wsl/drivers/iigd_dch.inf_amd64_1/x": "",
    }
}


def test_where_no_file_has_the_model_the_command_to_name_it_is_noted(planned_for):
    note = planned_for(INTEL_IN_WSL).notes[0]
    assert note == "If the GPU is an Arc or Core Ultra: accel setup xpu"


def test_where_no_file_has_the_model_the_users_word_counts(planned_for):
    assert planned_for(INTEL_IN_WSL, "xpu").torch_backend == "xpu"


def test_where_a_file_has_the_model_the_users_word_does_not_count(planned_for):
    assert planned_for({"pci": [IRIS]}, "xpu").why_no_command


MACOS_13 = {
    **APPLE,
    "files": {MACOS: "<key>ProductVersion</key>\n\t<string>13.7.4</string>"},
}
THOR = {"files": {"/proc/device-tree/model": "NVIDIA Jetson AGX Thor"}}


INSTALLABLE = [
    (MACOS_13, "2.7.1", ""),
    ({"glibc": "2.17"}, "2.6.0", ""),
    ({"pci": [ASCEND]}, "2.7.1", ""),
    ({"pci": [ASCEND]}, "2.5.0", "has torch 2.5.0, Python 3.12"),
    (VOLTA, "2.14.1", ""),
    (VOLTA, "2.15.0", "no build with code for the GPUs"),
    ({**HOPPER, "architecture": "aarch64"}, "", ""),
    ({**HOPPER, "nvidia": "550.54.15", "python": "3.9"}, "2.8.0", ""),
    (
        {**HOPPER, "nvidia": "550.54.15", "python": "3.15"},
        "",
        "torch 2.13 has wheels for Python 3.10",
    ),
    ({**VOLTA, "python": "3.15"}, "", "torch 2.14 has wheels"),
    (
        {"pci": [MI300], "gfx": [90402], "python": "3.15"},
        "",
        "torch 2.13 has wheels for Python 3.10",
    ),
    ({"python": "3.15"}, "", ""),
    (
        {"pci": [MI300], "gfx": [90402]},
        "2.15.0",
        "no wheels of torch 2.15.0 for gfx942",
    ),
    (
        MACOS_13,
        "2.9.1",
        "torch==2.9.1 needs macOS 14 for Apple's GPU, but this is macOS 13.7.4",
    ),
    (
        {**MACOS_13, "python": "3.14"},
        "",
        "torch 2.8.0 has wheels for Python 3.9 to 3.13",
    ),
    (THOR, "2.13.0", ""),
    (THOR, "2.8.0", "NVIDIA's wheels for its JetPack"),
    (
        {**THOR, "python": "3.8"},
        "",
        "3.11 to 3.15, and torch 2.14 has wheels for Python 3.10 and newer",
    ),
    (
        {"system": "freebsd14", "architecture": "amd64"},
        "",
        "PyPI has no torch for amd64 on freebsd14",
    ),
    ({"pci": [ASCEND], "files": {ALPINE: ""}}, "", "musl"),
]


@pytest.mark.parametrize(("machine", "torch", "unknown"), INSTALLABLE)
def test_what_a_platform_can_install(planned_for, machine, torch, unknown):
    found = planned_for(machine, torch=torch)
    assert unknown in found.why_no_command
    assert found.torch.startswith(f"torch=={torch}" if torch else "torch") is not bool(
        unknown
    )


INSTINCT = {"pci": [MI300], "gfx": [0, 90402]}
VEGA = {"pci": [MI300], "gfx": [0, 90006]}
#: Machines for which uv chooses the index itself, and what it needs for that.
CHOSEN_BY_UV = {
    "NVIDIA's driver in a file": (HOPPER, ""),
    "an AMD GPU": (INSTINCT, "env UV_AMD_GPU_ARCHITECTURE=gfx942 "),
    "an AMD GPU beside an NVIDIA driver": (
        {**INSTINCT, "nvidia": "580.65.06"},
        "env UV_AMD_GPU_ARCHITECTURE=gfx942 ",
    ),
}


@pytest.mark.parametrize(
    ("machine", "variables"), CHOSEN_BY_UV.values(), ids=CHOSEN_BY_UV
)
def test_uv_chooses_the_index_for_hardware_that_it_knows(
    planned_for, machine, variables
):
    found = plan.let_uv_choose_index(planned_for(machine))
    assert found.torch_backend == plan.AUTO
    assert found.parts[0].source == "uv"
    line = formats.format_plan(found, "uv")
    assert line.startswith(f"{variables}uv pip install torch ")
    assert line.endswith(" --torch-backend=auto")


WSL = {
    "files": {
        "/proc/version": "microsoft",
        "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/x": "",
    },
    "nvidia_smi": "560.94",
}
#: What uv does not know, or does not find: the machine, what is asked for, and our answer.
NOT_CHOSEN_BY_UV = {
    "Volta": (VOLTA, "", {}, "cu126"),
    "Vega": (VEGA, "", {}, "rocm6.3"),
    "Jetson Thor": (THOR, "", {}, "cu130"),
    "Intel GPU": ({"pci": [ARC]}, "", {}, "xpu"),
    "no accelerator": ({}, "", {}, "cpu"),
    "the CPU of a machine with a GPU": (HOPPER, "cpu", {}, "cpu"),
    "Ascend NPU": ({"pci": [ASCEND]}, "", {}, "cpu"),
    "a driver that only nvidia-smi names": (WSL, "", {}, "cu129"),
    "a driver of another machine": ({}, "cuda", {"driver": "550.54.15"}, "cu129"),
    "a toolkit": (HOPPER, "cuda", {"toolkit": "12.8"}, "cu128"),
    "a release of torch": (HOPPER, "", {"torch": "2.9.1"}, "cu130"),
}


@pytest.mark.parametrize(
    ("machine", "name", "wanted", "index"),
    NOT_CHOSEN_BY_UV.values(),
    ids=NOT_CHOSEN_BY_UV,
)
def test_our_table_chooses_the_index_where_uv_would_not_find_it(
    planned_for, machine, name, wanted, index
):
    found = plan.let_uv_choose_index(planned_for(machine, name, **wanted))
    assert found.torch_backend == index
    assert formats.format_plan(found, "uv").endswith(f" --torch-backend={index}")


VERSIONS = [
    ("cuda", {"toolkit": "12.8"}, "cu128", ""),
    ("cuda", {"toolkit": "12.7"}, "cu126", ""),
    ("cuda", {"toolkit": "13.1"}, "cu130", ""),
    ("cuda", {"toolkit": "12.8", "torch": "2.12"}, "cu126", ""),
    ("cuda", {"toolkit": "12.8", "driver": "550.54.15"}, "cu128", ""),
    (
        "cuda",
        {"toolkit": "12.3"},
        "",
        "no build for CUDA 12.3. PyTorch has builds for CUDA 11.8, 12.4",
    ),
    ("cuda", {"toolkit": "14"}, "", "no build for CUDA 14. PyTorch has"),
    (
        "cuda",
        {"toolkit": "12.8", "driver": "520.61.05"},
        "",
        "520.61.05 is too old for PyTorch's build",
    ),
    ("cuda", {"driver": "580.65", "torch": "2.9"}, "cu130", ""),
    ("cuda", {"driver": "440.33"}, "", "only for driver 450.80.02 and newer"),
    ("rocm", {"toolkit": "6.4.1"}, "rocm6.4", ""),
    ("rocm", {"toolkit": "7.5"}, "rocm7.2", ""),
    (
        "rocm",
        {"toolkit": "5.7"},
        "",
        "no build for ROCm 5.7. PyTorch has builds for ROCm 6.1",
    ),
    ("npu", {"toolkit": "8.3.RC1"}, "cpu", ""),
    (
        "npu",
        {"toolkit": "7.0"},
        "",
        "CANN 7.0 is requested, but the vendor's table lists only these versions for Python 3.11",
    ),
]


@pytest.mark.parametrize(("name", "given", "index", "unknown"), VERSIONS)
def test_versions_that_are_given(planned_for, name, given, index, unknown):
    """On a machine whose CANN is another one, which does not count."""
    found = planned_for(
        {"files": {CANN: "version=9.1.0\n"}, "python": "3.11"}, name, **given
    )
    assert found.torch_backend == index
    assert bool(found.why_no_command) is bool(unknown)
    assert unknown in found.why_no_command


OLD = {"pci": [H100], "nvidia": "450.80.02"}
ONE_BUILD = (
    "An environment can contain only one build of torch, "
    "so use a separate environment for each accelerator."
)
TWO_MAKERS = {"pci": [H100, MI300], "nvidia": "580.65.06", "gfx": [90402]}
JETSON = {
    "architecture": "aarch64",
    "files": {"/proc/device-tree/model": "NVIDIA Jetson AGX Orin"},
}
#: What is here, what is asked for, and what the plan has where. A driver or a toolkit that is given counts
#: instead of this machine's, whose GPUs count beside it.
ASKED = [
    (OLD, "cuda", {}, "torch_backend", "cu118"),
    (OLD, "cuda", {"driver": "570.86"}, "torch_backend", "cu129"),
    (OLD, "cuda", {"toolkit": "12.8"}, "why_no_command", "450.80.02 is too old"),
    (INSTINCT, "rocm", {"toolkit": "6.4"}, "parts", "has code for gfx942"),
    (
        VEGA,
        "rocm",
        {"toolkit": "6.4"},
        "why_no_command",
        "rocm6.4 has no code for gfx906",
    ),
    ({}, "rocm", {"toolkit": "6.4"}, "notes", "has code only for gfx908, gfx90a"),
    (JETSON, "cpu", {}, "torch_backend", "cpu"),
    (JETSON, "cpu", {}, "target", "CPU"),
    (JETSON, "cuda", {}, "why_no_command", "NVIDIA's wheels for its JetPack"),
    (JETSON, "cuda", {"driver": "580.65.06"}, "torch_backend", "cu132"),
    (
        APPLE,
        "cuda",
        {"driver": "580.65"},
        "why_no_command",
        "for Linux and Windows, but this is macOS",
    ),
    ({}, "cuda", {}, "notes", "accel setup cuda --driver VERSION"),
    ({}, "rocm", {}, "notes", "accel setup rocm --toolkit VERSION"),
    ({}, "npu", {}, "notes", "accel setup npu --toolkit VERSION"),
    ({}, "npu", {}, "target", "Ascend NPU"),
    ({}, "npu", {}, "torch", "torch==2.14.0"),
    (
        {},
        "npu",
        {},
        "parts",
        "(Part(what='CANN 9.1.0', why='not installed. Next step: install CANN first",
    ),
    (HOPPER, "cpu", {}, "torch_backend", "cpu"),
    (TWO_MAKERS, "", {}, "target", "NVIDIA GPU"),
    (TWO_MAKERS, "", {}, "notes", f"('this machine also has: AMD GPU. {ONE_BUILD}',)"),
]


@pytest.mark.parametrize(("machine", "name", "given", "where", "words"), ASKED)
def test_what_is_asked_for_beside_what_is_here(
    planned_for, machine, name, given, where, words
):
    assert words in str(getattr(planned_for(machine, name, **given), where))
