"""The doctor's topic on who acts at import: everybody is named, and who fails is found in child processes."""

import os
import site
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from accel_tests import layouts

from accel_core import torch_import
from accel_core.settings import read
from accel_tools.doctor import start_files as start_files_module
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.topics.import_hooks import TOPIC

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


@pytest.fixture
def start_folder(tmp_path, monkeypatch):
    """The one folder in which this Python looks for `.pth` files."""
    monkeypatch.setattr(site, "PREFIXES", [str(tmp_path)])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    folder = Path(site.getsitepackages()[0])
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def world(torch_world, start_folder, monkeypatch):
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    monkeypatch.setattr(torch_import, "imported_by_us", False)
    monkeypatch.setattr(start_files_module, "find_spec", _not_pythons_own)
    torch_world.set_path([torch_world.site])
    return torch_world


def _not_pythons_own(name):
    """Debian's Python has a sitecustomize in its library."""
    library = Path(os.__file__).parent
    return PathFinder.find_spec(
        name, [folder for folder in sys.path if Path(folder) != library]
    )


def said(**variables):
    return list(TOPIC.examine(DiagnosticContext(read(variables), variables)))


def acts(world, distribution, group, source, attribute=""):
    module = distribution.replace("-", "_")
    value = module + (f":{attribute}" if attribute else "")
    layouts.dist_info(
        world.site, distribution, "1.0", {group: {module: value}}, {module: source}
    )
    world.set_path([world.site])


def test_nobody_acts(world):
    [finding] = said()
    assert finding.level == Level.OK
    assert finding.code == "import-hooks.none"


def test_each_is_named_and_who_fails_is_found_whatever_it_does(world):
    """One that raises when it is called, one that ends the process, one that is well after that one."""
    world.module("vllm", "")
    world.module("triton", "")
    fails = "def register(): raise OSError({!r})"
    acts(
        world,
        "aurora-vllm",
        "vllm.platform_plugins",
        fails.format("libaurora.so"),
        "register",
    )
    acts(world, "borealis-triton", "triton.backends", "import os; os._exit(3)")
    acts(
        world,
        "calima-vllm",
        "vllm.general_plugins",
        fails.format("not called"),
        "register",
    )
    acts(world, "derecho-verl", "verl.plugins", "raise OSError('nobody reads it')")
    found = said(ACCEL_PROBE_TIMEOUT="10")
    named = {f.what: f for f in found if f.code == "import-hooks.group"}
    assert list(named) == [
        "triton.backends: borealis-triton 1.0 runs code when triton is imported",
        "vllm.platform_plugins: aurora-vllm 1.0 runs code when vLLM looks for its platform",
        "vllm.general_plugins: calima-vllm 1.0 runs code when vLLM starts",
        "verl.plugins: derecho-verl 1.0 runs code when verl is imported (verl is not installed)",
    ]
    assert {f.level for f in named.values()} == {Level.OK}
    triton, vllm = [f for f in found if f.code == "import-hooks.fails"]
    assert {triton.level, vllm.level} == {Level.WARNING}
    assert triton.text == (
        "borealis-triton 1.0 (triton.backends: borealis_triton = borealis_triton) fails when triton is "
        "imported: its process exited with status 3"
    )
    assert (
        triton.step
        == "pip install --upgrade borealis-triton, or pip uninstall borealis-triton"
    )
    assert vllm.text == (
        "aurora-vllm 1.0 (vllm.platform_plugins: aurora_vllm = aurora_vllm:register) fails when vLLM looks "
        "for its platform: OSError: libaurora.so"
    )


def test_one_that_hangs_is_named_and_the_others_are_not_blamed(world):
    world.module("triton", "")
    acts(world, "aurora-triton", "triton.backends", "import time; time.sleep(60)")
    acts(world, "borealis-triton", "triton.backends", "fine = True")
    [late] = [f for f in said(ACCEL_PROBE_TIMEOUT="2") if f.level is not Level.OK]
    assert late.what.startswith("could not determine whether aurora-triton 1.0 ")
    assert late.what.endswith(": no response within 2 s")
    assert late.code == "import-hooks.unknown"
    assert late.step == "allow more time: --timeout 300"


def test_what_torch_loads_is_an_error_where_it_fails(world):
    """And is told once, though torch.compile() would fail with it too."""
    world.module("torch_npu", "def autoload(): raise OSError('libhccl.so')\n")
    world.module("torch_npu_compiler", "raise OSError('libhccl.so')\n")
    groups = {
        "torch.backends": {"torch_npu": "torch_npu:autoload"},
        "torch_dynamo_backends": {
            "npu": "torch_npu_compiler",
            "npugraphs": "torch_npu_compiler",
        },
    }
    world.distribution("torch-npu", "1.0", groups)
    world.set_path([world.site])
    group, compiler, failed = said()
    assert len(compiler.facts) == 2
    assert (
        group.what == "torch.backends: torch-npu 1.0 runs code when torch is imported"
    )
    assert failed.level == Level.ERROR
    assert failed.code == "import-hooks.torch-fails"
    assert failed.text.startswith("torch-npu 1.0 fails when torch loads it")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in failed.step


def test_what_fails_for_one_reason_is_told_once(world):
    broken = {"npu": "torch_npu_compiler", "npugraphs": "torch_npu_compiler:graphs"}
    world.module("torch_npu_compiler", "raise OSError('libhccl.so')\n")
    world.distribution("torch-npu", "1.0", {"torch_dynamo_backends": broken})
    # Of torch's own wheel (2.15.0), for a name that no program asked for.
    world.distribution(
        "torch",
        "2.15",
        {"torch.distributed.backends": {"nccl4py": "torch_npu_compiler"}},
    )
    world.set_path([world.site])
    [failed] = [f for f in said() if f.code == "import-hooks.fails"]
    assert failed.text == (
        "torch-npu 1.0 (torch_dynamo_backends: npu = torch_npu_compiler; torch_dynamo_backends: npugraphs = "
        "torch_npu_compiler:graphs) fails when a program passes the entry point's name to torch.compile(): "
        "OSError: libhccl.so"
    )


def test_files_that_run_when_python_starts(world, start_folder):
    (start_folder / "paths.pth").write_text("/somewhere\n# import this\n")
    (start_folder / "good.pth").write_text(
        "/somewhere\nimport sys; sys.started = True\n"
    )
    (start_folder / "bad.pth").write_text("import a_module_that_is_not_there\n")
    (start_folder / ".hidden.pth").write_text("import hidden\n")
    info = start_folder / "good_tool-2.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(
        "good_tool/__init__.py,sha256=x,1\ngood.pth,sha256=y,2\n"
    )
    bad, good = start_files_module.find_start_files()
    assert Path(good.path).name == "good.pth"
    assert good.lines == ("import sys; sys.started = True",)
    assert good.distribution == "good_tool 2.0"
    assert bad.distribution == ""
    start, failed = said()
    assert start.level == Level.OK
    assert start.code == "import-hooks.start"
    assert start.what == "2 files run code whenever Python starts"
    assert start.facts[good.path] == "good_tool 2.0: import sys; sys.started = True"
    assert failed.level == Level.WARNING
    assert failed.code == "import-hooks.fails"
    assert failed.step == f"repair or remove {bad.path}"
    assert (
        "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
        in failed.text
    )


@pytest.mark.skipif(
    Path(os.__file__).with_name("sitecustomize.py").exists(),
    reason="Python's own is first",
)
def test_sitecustomize_counts_too(world):
    world.module("sitecustomize", "raise OSError('it is broken')")
    start, failed = said()
    assert list(start.facts.values()) == ["no distribution: import sitecustomize"]
    assert failed.text.endswith("fails whenever Python starts: OSError: it is broken")
