"""AMD's own wheels, for GPUs that PyTorch has no wheels for: the targets, and torch in a step of its own."""

import pytest

from accel_tools.setup import builds, formats, plan

#: Targets of rocm-bootstrap that one and the same hardware version stands for.
SAME = {"gfx1250-strict": "gfx1250"}
#: What rocm-bootstrap knows and no wheel is known to have code for, neither PyTorch's nor AMD's.
WITHOUT_WHEELS = {"gfx902", "gfx904", "gfx909", "gfx90c", "gfx1013", "gfx1251"}
RDNA1 = {"pci": ["1002:731f/030000"], "gfx": [0, 100100]}
WINDOWS = {
    "system": "win32",
    "architecture": "AMD64",
    "files": {
        "/Windows/System32/DriverStore/FileRepository/u0402153.inf_amd64_1/x": ""
    },
}


def targets():
    """AMD's own list of targets."""
    return pytest.importorskip("rocm_bootstrap.targets").ALL_TARGETS


def test_rocm_bootstrap_knows_34_targets():
    assert len(targets()) == 34


def test_each_target_has_the_name_that_amd_gives_it(planned_for):
    for target in targets():
        machine = {"pci": RDNA1["pci"], "gfx": [0, target.gfx_target_version]}
        expected = SAME.get(target.name, target.name)
        assert planned_for(machine).hardware.amd_architectures == (expected,)


def test_each_target_gets_pytorchs_wheels_or_amds_own_or_none(planned_for):
    """0 wrong: a command only for what an index is known to have."""
    without = set()
    for target in targets():
        name = SAME.get(target.name, target.name)
        machine = {"pci": RDNA1["pci"], "gfx": [0, target.gfx_target_version]}
        found = planned_for(machine)
        if found.why_no_command:
            without.add(name)
        elif found.torch_backend:
            assert builds.newest_build_for_amd_gpu(name).name == found.torch_backend
        else:
            assert found.torch == f"torch[device-{name}]"
            assert not builds.newest_build_for_amd_gpu(name).name
    assert without == WITHOUT_WHEELS | set(builds.AMD_WRONG)


def test_each_architecture_of_amds_index_is_a_target():
    assert set(builds.AMD_TARGETS) <= {target.name for target in targets()}


def test_pytorchs_index_comes_first(planned_for):
    found = planned_for({"pci": RDNA1["pci"], "gfx": [0, 110000]})
    assert found.torch_backend
    assert not found.torch_index


COMMANDS = {
    "pip": f"pip install 'torch[device-gfx1010]' --index-url {builds.AMD_INDEX} && pip install",
    "uv": f"uv pip install 'torch[device-gfx1010]' --index-url {builds.AMD_INDEX} && uv pip install",
    "conda": "pip install 'torch[device-gfx1010]' --index-url https://repo.amd.com/",
    "dockerfile": "RUN pip install --no-cache-dir 'torch[device-gfx1010]' --index-url https://repo.amd.com/",
    "pyproject": "ignore-error-codes = [403]",
    "requirements": "--index-url https://repo.amd.com/rocm/whl-multi-arch/\ntorch[device-gfx1010]\n# then:",
}
WSL = {
    "files": {
        "/proc/version": "Linux version 6.6.87.2-microsoft-standard-WSL2",
        "/usr/lib/wsl/drivers/u0402153.inf_amd64_1/x": "",
    },
}


@pytest.mark.parametrize("form", formats.FORMATS)
def test_torch_is_a_step_of_its_own(planned_for, form):
    """AMD's index answers 403 for the packages that it lacks."""
    found = plan.add_accel_packages(planned_for(RDNA1), is_new_environment=True)
    assert COMMANDS[form] in formats.format_plan(found, form)


@pytest.mark.parametrize("machine", [WINDOWS, WSL], ids=["windows", "wsl"])
def test_where_no_file_names_the_gpu_the_build_has_code_for_all_of_amds(
    planned_for, machine
):
    found = planned_for(machine)
    assert found.torch == "torch[device-all]"
    assert any(
        "gfx1103" in note and "has code only for" in note for note in found.notes
    )


def test_in_wsl_a_note_says_what_amds_wheels_need(planned_for):
    found = planned_for(WSL)
    assert any("librocdxg" in note and builds.AMD_WSL in note for note in found.notes)
    assert not any("librocdxg" in note for note in planned_for(WINDOWS).notes)
    assert "omit --toolkit" in planned_for(WSL, "rocm", toolkit="6.4").why_no_command


UNFIT = [
    ({"python": "3.10"}, {}, "AMD's wheels are for Python 3.11 to 3.14, but this is Python 3.10"),
    ({}, {"torch": "2.13.0"}, "AMD's wheels are for torch 2.12, not 2.13.0"),
]  # fmt: skip


@pytest.mark.parametrize(
    "machine", [RDNA1, WINDOWS, WSL], ids=["linux", "windows", "wsl"]
)
@pytest.mark.parametrize(("more", "given", "words"), UNFIT)
def test_what_amds_wheels_do_not_fit(planned_for, machine, more, given, words):
    assert words in planned_for({**machine, **more}, **given).why_no_command


def test_a_release_of_torch_is_pinned(planned_for):
    found = planned_for(RDNA1, torch="2.12.0")
    assert found.torch == "torch[device-gfx1010]==2.12.0"


def test_wrong_results_are_a_reason_to_install_nothing(planned_for):
    found = planned_for({"pci": RDNA1["pci"], "gfx": [0, 100303]})
    assert "AMD's wheels are reported to compute wrong results" in found.why_no_command
    assert "unslothai/unsloth/pull/8412" in found.url


def test_rocm_10_is_amds_alone(planned_for):
    machine = {"pci": RDNA1["pci"], "gfx": [0, 120001]}
    found = planned_for(machine, "rocm", toolkit="10.0")
    assert found.torch == "torch[device-gfx1201]"
    assert found.torch_index == "https://stable.repo.amd.com/rocm/whl-next/"


def test_rocm_10_is_unknown_for_gpus_that_nobody_tested(planned_for):
    found = planned_for(RDNA1, "rocm", toolkit="10.0")
    assert "only for gfx950, gfx1151, gfx1201" in found.why_no_command
