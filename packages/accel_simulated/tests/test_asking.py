"""Asking for a simulated device, and not asking: what a process has of it before torch is imported."""

import json
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.plugins import declaring
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import accel_core
from accel_core._support import packages
from accel_core.cli import accel
from accel_core.toolkit import vendors
from accel_simulated import declared, device, faults
from accel_simulated.asked import MOST, read
from accel_simulated.detector import blame
from accel_simulated.vendors import DEVICES
from accel_testing.commands import simulate

#: A torch that says that it was loaded: none of these tests gets so far.
TORCH = "raise AssertionError('torch was loaded')\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    return str(tmp_path)


def test_installed_and_not_asked_for_nothing_of_it_is_there(child):
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


def test_what_cannot_be_followed_is_said_by_each_import_of_torch(child, folder):
    """And by nothing before: Python, pip and editors start as ever."""
    code = (
        "for _ in range(2):\n"
        "    try: import torch\n"
        "    except ValueError as error: print(type(error).__name__, error)"
    )
    said = child(code, {"ACCEL_SIMULATE": "cudda:2", "PYTHONPATH": folder}).splitlines()
    assert said[0] == said[1]
    assert said[0].startswith(
        "SettingError ACCEL_SIMULATE='cudda:2': 'cudda' is not simulated; expected NAME"
    )
    assert said[0].endswith("Did you mean cuda:2?")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tpu", "'tpu' is not simulated; expected NAME or NAME:COUNT, such as acme:2; the names are"),
        ("acme,cuda", "'acme,cuda' is not simulated"),
        (":2", "'' is not simulated"),
        ("acme:0", "'0' is no count of devices; expected from 1 to 64. Write acme:2."),
        ("acme:", "'' is no count"),
        ("acme:-1", "'-1' is no count"),
        ("acme:two", "'two' is no count"),
        ("acme:²", "'²' is no count"),
        (f"acme:{MOST + 1}", "'65' is no count"),
        ("mps:2", "expected 1, as torch knows one such device. Write mps:1."),
    ],
)
def test_bad_values(text, problem):
    with pytest.raises(accel_core.SettingError) as caught:
        read(text)
    assert str(caught.value).startswith(f"ACCEL_SIMULATE={text!r}: ")
    assert problem in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "text", ["oom@0", "oom=3", "slow", "slow=2.", "count@3", "driver@2", "fire", "oom@1;lost"]
)
def test_bad_faults(text):
    with pytest.raises(
        accel_core.SettingError, match=r"is no fault; expected oom@N, .* such as oom@10,slow="
    ):
        faults.read(text)


@pytest.mark.parametrize("text", ["0", "64,x", "64,", "-1", "1048577", "9" * 30, "٣"])
def test_bad_memories(text, monkeypatch):
    monkeypatch.setenv("ACCEL_SIMULATE_MEMORY_MB", text)
    with pytest.raises(accel_core.SettingError) as caught:
        device._memories()
    assert repr(text) in str(caught.value)
    assert "1024,64" in str(caught.value)


def test_a_neighbour_whose_metadata_is_broken_is_passed_over(tmp_path, monkeypatch):
    layouts.dist_info(tmp_path, "aaa", "1.0", {layouts.GROUP: {"x": "y"}})
    (next(tmp_path.glob("aaa*.dist-info")) / "entry_points.txt").write_bytes(b"[accel.backends]\nx = \xff\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert declared.find("acme") is None
    assert "accel_cuda" in blame._plugins.__wrapped__()


def test_good_faults():
    assert faults.read(" oom@10, slow=2.5,COUNT=1@20,,hang") == {
        "oom": (10, 0), "slow": (1, 2500), "count": (20, 1), "hang": (1, 0),
    }  # fmt: skip


def test_good_values():
    assert [str(read(text)) for text in ("acme", " ACME : 3 ", "mps", f"cuda:{MOST}")] == [
        "acme:2", "acme:3", "mps:1", f"cuda:{MOST}",
    ]  # fmt: skip


def test_asked_for_another_when_one_is_simulated(child):
    code = (
        "import accel_core, os; os.environ['ACCEL_SIMULATE'] = 'mlu:2'\n"
        "try: accel_core.get_accelerator()\n"
        "except ValueError as error: print(error)"
    )
    said = child(code, {"ACCEL_SIMULATE": "acme"})
    assert said.startswith("ACCEL_SIMULATE='mlu:2' came when this process simulated acme:2 already. Start an")


def test_a_vendors_package_that_comes_without_being_asked_for():
    with pytest.raises(accel_core.SettingError, match="simulated acme was asked for when torch was imported"):
        device.load("acme")


def test_a_torch_that_is_built_for_the_real_device(child, folder):
    Path(folder, "torch", "version.py").write_text("__version__ = '2.13.0'\ncuda = '12.8'\n")
    code = "try: import torch\nexcept RuntimeError as error: print(type(error).__name__, error)"
    said = child(code, {"ACCEL_SIMULATE": "cuda", "PYTHONPATH": folder})
    assert said.startswith(
        "BackendConflictError ACCEL_SIMULATE='cuda:2': the torch that is installed is built"
    )
    assert "for CUDA 12.8" in said
    assert "Simulate acme, or install" in said


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("npu", "0,1", 2), ("npu", "1", 1), ("npu", "1,0", 0), ("npu", "0, 1", 1), ("npu", "0,,1", 1),
        ("npu", "0,5", 1), ("npu", "", 0), ("mlu", "1,0", 2), ("mlu", "1, 1", 1), ("mlu", "5", 0),
        ("mlu", "0,5,1", 2), ("cuda", "1,0", 2), ("cuda", "0,5,1", 1), ("cuda", "-1,0", 0),
    ],
)  # fmt: skip
def test_the_vendors_variable_hides_devices(name, value, count, monkeypatch):
    """CANN takes ascending integers alone; accel-npu's tests hold the real torch_npu to the same."""
    vendor = DEVICES[name]
    monkeypatch.setenv(vendor.visible[0], value)
    assert device._visible(vendor, 2) == count


def test_the_vendors_own_package_is_installed_as_well(child, folder):
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
        "BackendConflictError ACCEL_SIMULATE='npu:2': the vendor's own torch_npu is installed as well, in "
        f"{installed}, "
    )
    assert "Simulate in an environment without it" in said[0]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["acmee:2", "--", "python"], 2, "the device 'acmee:2': 'acmee' is not simulated"),
        (["acme:0", "python"], 2, "'0' is no count of devices"),
        (["acme", "--", "no-such-command", "-x"], 1, "no-such-command: there is no such command on PATH"),
        (["acme"], 2, "Missing a command, such as: accel simulate acme -- pytest"),
        ([], 2, "Missing a device and a command"),
        (["--build", "acme", "dpu"], 2, "'dpu' is not simulated"),
        (["--output", "x", "acme", "true"], 2, "--output goes with --build: accel simulate --build"),
        (["acme", "--output", "x"], 1, "--output: there is no such command"),
    ],
)
def test_the_commands_errors(words, status, said):
    done = CliRunner().invoke(accel, ["simulate", *words])
    assert (done.exit_code, said in done.stderr, done.stdout) == (status, True, ""), done.output


def test_a_script_that_lies_elsewhere_is_named_as_its_module(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    for name, module in {"pytest": "pytest", "torchrun": "torch[.]distributed[.]run", "none": "none"}.items():
        with pytest.raises(accel_core.LaunchError, match=f"python -m {module}$"):
            simulate._found(name)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["simulate"], ["npu"]),
        (["simulate", "--build"], ["npu"]),
        (["simulate", "--build", "acme"], ["npu"]),
        (["simulate", "acme"], ["n"]),  # the command: a file
    ],
)
def test_completion(words, completed):
    found = ShellComplete(accel, {}, "accel", "_ACCEL_COMPLETE").get_completions(words, "n")
    assert [item.value for item in found] == completed


def test_the_command_without_the_package(monkeypatch):
    everything = packages.entry_points
    monkeypatch.setattr(
        packages, "entry_points", lambda group: everything(group) if "commands" in group else ()
    )
    done = CliRunner().invoke(accel, ["simulate", "acme", "true"])
    step = vendors.sourced("pip install accel-simulated")
    assert (done.exit_code, done.stderr) == (1, f"Error: accel simulate needs accel-simulated: {step}\n")


def test_what_is_no_device_of_a_plugins_own_is_not_taken_from_its_declaration(child, tmp_path):
    own = "priority=1, in_torch=InTorch(private_use1=True), visibility=Visibility(variables=('OWN',))"
    modules = {
        "accel_zing": declaring(
            "name='zing', device_type='zing', vendor_import='torch_zing', priority=1",
            f"name='zang', device_type='zang', {own}",
        ),
        "accel_acme": declaring(f"name='acme', device_type='acme', vendor_import='torch_acme', {own}"),
        "accel_plain": declaring(f"name='plain', device_type='plain', vendor_import='plain_sdk', {own}"),
    }
    groups = {"accel.backends": {name.removeprefix("accel_"): name for name in modules}}
    plugin = layouts.dist_info(tmp_path, "accel-zing", "1.0", groups, modules)
    code = (
        "from accel_simulated.declared import VARIABLE, find, told\n"
        "print(*[str(find(n)) for n in ('zing', 'zang', 'nobody', 'acme', 'plain')], sep='|')\n"
        "print([told({VARIABLE: text}) for text in ('', 'nonsense', '[1]', '{}')])"
    )
    found, read_back = child(code, {"PYTHONPATH": str(plugin)}).splitlines()
    *none, acme, plain = found.split("|")
    assert (none, read_back) == (["None"] * 3, str([None] * 4))
    assert json.loads(plain) == ["plain", "plain", "plain_sdk", "plain_simulated", ["OWN"], {}]
    assert json.loads(acme)[2:5:2] == ["torch_acme", ["OWN"]]  # what hides a device only its plugin says
