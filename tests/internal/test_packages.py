"""Whether a package is installed, without importing it."""

import sys
import types

import pytest

from accel_core import is_installed, package_folders

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
        assert is_installed(name) is False
        assert package_folders(name) == []


def test_an_entry_of_sys_modules_decides_before_the_path(package, monkeypatch):
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
