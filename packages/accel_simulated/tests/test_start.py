"""A process before and at its first import of torch, with and without a request for a simulated device."""

import json
from pathlib import Path

import pytest

import accel_core
from accel_simulated import device

#: A torch that says that it was loaded: none of these tests gets so far.
TORCH = "raise AssertionError('torch was loaded')\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    return str(tmp_path)


def test_without_a_request_nothing_of_accel_simulated_is_imported(child):
    code = (
        "import json, sys; import accel_core; accel_core.Backend\n"
        "print(json.dumps([[name for name in sys.modules if name.startswith('accel_simulated')],"
        " [path for path in sys.path if 'runtimes' in path], len(sys.meta_path)]))"
    )
    modules, folders, finders = json.loads(child(code, {"ACCEL_SIMULATE": None}))
    assert (modules, folders) == ([], [])
    asked = child(code, {"ACCEL_SIMULATE": "acme"})
    modules, folders, more = json.loads(asked)
    assert "accel_simulated.at_start" in modules
    assert not [name for name in modules if "detector" in name]
    assert [Path(path).name for path in folders] == ["acme"]
    assert more > finders


def test_an_invalid_request_is_reported_by_each_import_of_torch(child, folder):
    """And by nothing before: Python, pip and editors start as ever."""
    code = (
        "for _ in range(2):\n"
        "    try: import torch\n"
        "    except ValueError as error: print(type(error).__name__, error)"
    )
    said = child(code, {"ACCEL_SIMULATE": "cudda:2", "PYTHONPATH": folder}).splitlines()
    assert said[0] == said[1]
    assert said[0].startswith(
        "SettingError ACCEL_SIMULATE='cudda:2': 'cudda' cannot be simulated; expected NAME"
    )
    assert said[0].endswith("Did you mean cuda:2?")


def test_a_request_that_changes_after_the_start_is_rejected(child):
    code = (
        "import accel_core, os; os.environ['ACCEL_SIMULATE'] = 'mlu:2'\n"
        "try: accel_core.get_accelerator()\n"
        "except ValueError as error: print(error)"
    )
    said = child(code, {"ACCEL_SIMULATE": "acme"})
    assert said.startswith(
        "ACCEL_SIMULATE='mlu:2' was set after this process had started to simulate acme:2. Next step: "
    )


def test_a_device_without_a_request_cannot_be_loaded():
    with pytest.raises(
        accel_core.SettingError,
        match="torch was imported without ACCEL_SIMULATE=acme",
    ):
        device.load("acme")


def test_a_torch_that_is_built_for_cuda_conflicts_with_a_simulated_cuda(child, folder):
    Path(folder, "torch", "version.py").write_text(
        "__version__ = '2.13.0'\ncuda = '12.8'\n"
    )
    code = "try: import torch\nexcept RuntimeError as error: print(type(error).__name__, error)"
    said = child(code, {"ACCEL_SIMULATE": "cuda", "PYTHONPATH": folder})
    assert said.startswith(
        "BackendConflictError ACCEL_SIMULATE='cuda:2': the installed torch contains the real runtime CUDA"
    )
    assert "real runtime CUDA 12.8" in said
    assert "Simulate the fictional device acme, or install" in said


def test_an_installed_real_package_conflicts_with_its_simulation(child, folder):
    """Said by the import of torch, by that of the package, and by whatever chooses."""
    installed = Path(folder, "site-packages")
    (installed / "torch_npu").mkdir(parents=True)
    code = (
        f"import sys; sys.path.append({str(installed)!r}); import accel_core\n"
        "for start in ('import torch', 'import torch_npu', 'accel_core.get_accelerator()'):\n"
        "    try: exec(start)\n"
        "    except RuntimeError as error: print(type(error).__name__, error)"
    )
    said = child(code, {"ACCEL_SIMULATE": "npu", "PYTHONPATH": folder}).splitlines()
    assert len(said) == 3, said
    assert len(set(said)) == 1, said
    assert said[0].startswith(
        "BackendConflictError ACCEL_SIMULATE='npu:2': the vendor's real torch_npu is installed in "
        f"{installed}, "
    )
    assert "Simulate in an environment without this package" in said[0]
