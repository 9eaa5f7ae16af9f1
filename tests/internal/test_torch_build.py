"""What can be read about torch is read without importing it."""

import sys

import pytest

from accel_core.torch_import import TorchBuild, torch_build


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
