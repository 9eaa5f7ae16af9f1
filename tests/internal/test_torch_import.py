"""torch is imported without its autoload, and what can be read about it is read without importing it."""

import builtins
import os
import sys
import threading
import time
import types

import pytest
from accel_tests import processes

import accel_core
from accel_core import is_installed, package_folders, torch_import
from accel_core.errors import BackendUnavailableError
from accel_core.torch_import import TorchBuild, import_torch, torch_build

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


@pytest.mark.parametrize("before", [None, "1", "0", ""])
def test_autoload_is_off_while_torch_is_imported_and_then_as_it_was(
    torch_world, monkeypatch, before
):
    monkeypatch.delenv(AUTOLOAD, raising=False)
    if before is not None:
        monkeypatch.setenv(AUTOLOAD, before)
    assert import_torch().autoload_was == "0"
    assert os.environ.get(AUTOLOAD) == before


def test_a_torch_that_is_there_is_taken_as_it_is(torch_world, simulated_torch):
    assert simulated_torch.autoload_was is None
    assert import_torch() is simulated_torch


def test_a_hook_of_a_vendors_sees_torch_before_torchs_own_imports(
    torch_world, monkeypatch
):
    """Kunlunxin's replaces `builtins.__import__`, and prepares its runtime at the first name of torch's."""
    usual, begun = builtins.__import__, []

    def watched(name, *arguments, **named):
        if name.partition(".")[0] == "torch":
            begun.append("torch" in sys.modules)
        return usual(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", watched)
    import_torch()
    assert begun[0] is False


def test_a_missing_torch_says_what_to_install(world):
    with pytest.raises(BackendUnavailableError) as caught:
        import_torch()
    assert str(caught.value) == "torch is not installed: accel setup"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import absent_dependency",
            "torch fails to import: ModuleNotFoundError: No module named 'absent_dependency'",
        ),
        (
            "raise OSError('libtorch_cpu.so: cannot open')",
            "torch fails to import: OSError: libtorch_cpu.so",
        ),
        (
            "raise RuntimeError('Failed to load the backend extension: foo')",
            "torch fails to import: RuntimeError: Failed",
        ),
        (  # torch's own words, which name the package: torch is not to blame, nor to be installed again
            f"raise RuntimeError('Failed to load the backend extension: {AUTOLOAD}=0.') from OSError('x')",
            f"Failed to load the backend extension: {AUTOLOAD}=0. x",
        ),
    ],
)
def test_a_broken_torch_keeps_its_cause(world, monkeypatch, source, said):
    monkeypatch.delenv(AUTOLOAD, raising=False)
    world.module("torch", source)
    with pytest.raises(BackendUnavailableError) as caught:
        import_torch()
    assert str(caught.value).startswith(said)
    assert caught.value.__cause__ is not None
    assert AUTOLOAD not in os.environ


def test_a_torch_whose_import_was_interrupted_is_not_imported_again(world):
    """Half of torch's compiled part would end the process."""
    world.module("torch.begun", "")
    world.module("torch.__init__", "import torch.begun\nraise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        accel_core.get_accelerator()
    again = "an `import torch` of this process failed or was interrupted, and torch cannot be imported twice"
    with pytest.raises(BackendUnavailableError, match=again):
        accel_core.get_accelerator()


def test_a_folder_named_torch_is_not_pytorch(world):
    (world.site / "torch").mkdir()
    world.set_path([world.site])
    with pytest.raises(
        BackendUnavailableError,
        match=r"the module torch that Python finds is not PyTorch: .*site-packages",
    ):
        import_torch()


def test_a_torch_that_another_thread_is_importing_is_waited_for(torch_world):
    """Half a torch must not come out, and neither thread may hang on the other's lock."""
    torch_world.module(
        "torch.__init__",
        "import threading, sys\nclass Tensor: ...\n"
        "entered = sys.modules['__main__'].__dict__.setdefault('torch_entered', threading.Event())\n"
        "entered.set()\nimport time; time.sleep(0.3)\nfinished = True\n",
    )
    entered = sys.modules["__main__"].__dict__.setdefault(
        "torch_entered", threading.Event()
    )
    try:
        with processes.beside(lambda: __import__("torch")):
            assert entered.wait(10)
            assert import_torch().finished
    finally:
        del sys.modules["__main__"].__dict__["torch_entered"]


def test_a_package_that_torch_loads_may_come_here_while_another_thread_waits(
    torch_world,
):
    torch_world.module(
        "torch.__init__",
        "class Tensor: ...\nimport time; time.sleep(0.2)\n"
        "from accel_core.torch_import import import_torch\nassert import_torch().Tensor is Tensor\n",
    )
    with processes.beside(lambda: __import__("torch")):
        time.sleep(0.05)
        with processes.beside(import_torch):
            pass


# ---------------------------------------------------------------------------- what torch this is


def test_the_build_is_read_from_its_file(torch_world):
    assert torch_build() == TorchBuild("2.99.0+simulated")
    assert "torch" not in sys.modules
    assert str(torch_build()) == "torch 2.99.0+simulated (CPU build)"


UNKNOWN = TorchBuild("unknown version")
#: The text of torch/version.py, if there is one, the build that is read from it, and that build in words.
VERSION_FILES = {
    "cuda": (
        "__version__ = '2.9'\ncuda: str = '12.8'\n",
        TorchBuild("2.9", cuda="12.8"),
        "torch 2.9 (cuda 12.8)",
    ),
    "hip": (
        "__version__ = '2.9'\nhip = '6.4'\ncuda = None",
        TorchBuild("2.9", hip="6.4"),
        "torch 2.9 (hip 6.4)",
    ),
    "xpu": (
        "__version__ = '2.9'\nxpu = '2025'",
        TorchBuild("2.9", xpu="2025"),
        "torch 2.9 (xpu 2025)",
    ),
    "annotated, and the version last": (
        'cuda: Optional[str] = "12.8"\n__version__ = "2.9"',
        TorchBuild("2.9", cuda="12.8"),
        "torch 2.9 (cuda 12.8)",
    ),
    "other statements": (
        "x: int\n[y] = 'z'\nimport os",
        UNKNOWN,
        "torch unknown version (CPU build)",
    ),
    "syntax error": ("def (:", UNKNOWN, "torch unknown version (CPU build)"),
    "null byte": ("\0", UNKNOWN, "torch unknown version (CPU build)"),
    "no file": (None, UNKNOWN, "torch unknown version (CPU build)"),
}


@pytest.mark.parametrize(
    ("source", "build", "text"), VERSION_FILES.values(), ids=VERSION_FILES
)
def test_the_build_is_read_from_whatever_that_file_contains(world, source, build, text):
    world.module("torch.__init__", "raise SystemExit('imported')")
    if source is not None:
        world.module("torch.version", source)
    assert torch_build() == build
    assert str(build) == text


def test_a_finder_that_fails_is_no_build(world, monkeypatch):
    class Failing:
        def find_spec(self, name, path=None, target=None):
            raise ImportError("a finder that fails")

    monkeypatch.setattr(sys, "meta_path", [Failing(), *sys.meta_path])
    assert torch_build() is None


def test_an_imported_torch_is_asked_itself(torch_world, simulated_torch):
    simulated_torch.version.cuda = "12.8"
    assert torch_build() == TorchBuild("2.99.0+simulated", cuda="12.8")


def test_no_torch_is_no_build(world):
    assert torch_build() is None
    world.module("torch", "")  # a single file is not PyTorch
    assert torch_build() is None


# ---------------------------------------------------------------------------- with the real torch


@pytest.fixture
def real(world):
    """The real torch and a vendor package that breaks torch's autoload."""
    # As torch_npu's, it switches the autoload off for whatever comes after it.
    world.module(
        "torch_bad",
        f"import os\nos.environ[{AUTOLOAD!r}] = '0'\nraise ImportError('libbad.so: undefined symbol')",
    )
    world.distribution(
        "torch-bad", "1.0", {"torch.backends": {"bad": "torch_bad:autoload"}}
    )
    return world


def test_a_broken_vendor_kills_import_torch_and_not_us(real):
    """One broken wheel, and `import torch` alone fails."""
    # After that the program can have nothing of torch any more; it learns how to find the package.
    alone = real.child(
        "import json\n"
        "try: import torch\n"
        "except RuntimeError as error: first = repr(error.__cause__)\n"
        "import accel_core\n"
        "try: accel_core.get_accelerator()\n"
        "except accel_core.BackendUnavailableError as error: print(json.dumps([first, str(error)]))",
        torch="real",
        variables={"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"},
    )
    first, then = alone.answer
    assert "libbad.so" in first
    assert then == (
        "an `import torch` of this process failed or was interrupted, and torch cannot be imported "
        "twice. Next step: if torch's autoload is to blame, `accel why` names the package."
    )
    ours = real.child(
        "import json, warnings, accel_core\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    acc = accel_core.get_accelerator()\n"
        "import torch\n"
        "total = float(torch.ones(2, device=acc.device()).sum())\n"
        "print(json.dumps([acc.name, total, [str(w.message) for w in caught]]))",
        torch="real",
    )
    name, total, said = ours.answer
    assert total == 2.0
    if name == "cpu":
        assert any("libbad.so: undefined symbol" in text for text in said)


def test_the_build_of_the_real_torch_is_the_same_read_and_asked(world):
    code = (
        "import json, sys\nfrom accel_core.torch_import import torch_build\n"
        "read = str(torch_build())\nassert 'torch' not in sys.modules\n"
        "import torch\nprint(json.dumps([read, str(torch_build())]))"
    )
    read, asked = world.child(code, torch="real").answer
    assert read == asked
    assert read.startswith("torch ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_imports_torch_leaves_a_child_that_can(torch_world):
    assert processes.fork_amid(torch_import._lock, lambda: import_torch().Tensor)


# ---------------------------------------------------------------------------- packages
# Whether a package is installed, without importing it.


#: Packages that are there, what is asked for, and the answer.
THERE = [
    ("acme_torch", "acme_torch", True),
    (
        "acme_torch",
        "acme_torch.below.anything",
        True,
    ),  # what is below only an import can tell
    # Below a namespace the next level decides.
    ("acme_frameworks.torch", "acme_frameworks.torch.device", True),
    ("acme_frameworks.torch", "acme_frameworks.media", False),
    ("acme_frameworks.torch", "acme_frameworks", False),
    ("other", "acme_torch", False),
]


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(name):
        folder = tmp_path.joinpath(*name.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise AssertionError('imported')\n")
        return folder

    return made


@pytest.mark.parametrize(("there", "name", "found"), THERE)
def test_a_package_is_found_and_not_imported(package, there, name, found):
    folder = package(there)
    assert is_installed(name) is found
    assert there.partition(".")[0] not in sys.modules
    if there == name:
        assert package_folders(name) == [str(folder)]
        (folder / "__init__.py").unlink()  # a folder without it is no package
        assert (is_installed(name), package_folders(name)) == (False, [])


def test_what_sys_modules_says_counts(package, monkeypatch):
    package("acme_torch")
    monkeypatch.setitem(sys.modules, "acme_torch", None)
    assert not is_installed("acme_torch")
    monkeypatch.setitem(sys.modules, "acme_other", types.ModuleType("acme_other"))
    assert is_installed("acme_other")


def test_a_finder_that_fails_finds_nothing(monkeypatch):
    class Failing:
        def find_spec(self, name, path=None, target=None):
            raise ImportError(name)

    monkeypatch.setattr(sys, "meta_path", [Failing(), *sys.meta_path])
    assert not is_installed("acme_torch")
