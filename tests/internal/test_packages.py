"""Whether a package is installed, without importing it."""

import sys
import types

import pytest

from accel_core import is_installed
from accel_core._support.packages import package_folders


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def package(root, name):
    folder = root.joinpath(*name.split("."))
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')\n")
    return folder


def test_a_package_is_found_and_not_imported(site):
    folder = package(site, "acme_torch")
    assert is_installed("acme_torch")
    assert is_installed("acme_torch.below.anything")  # what is below only an import can tell
    assert package_folders("acme_torch") == [str(folder)]
    assert "acme_torch" not in sys.modules


def test_a_folder_without_init_is_no_package(site):
    (site / "acme_torch").mkdir()
    assert not is_installed("acme_torch")
    assert package_folders("acme_torch") == []


def test_below_a_namespace_the_next_level_decides(site):
    package(site, "acme_frameworks.torch")
    assert is_installed("acme_frameworks.torch.device")
    assert not is_installed("acme_frameworks.media")
    assert not is_installed("acme_frameworks")
    assert "acme_frameworks" not in sys.modules


def test_what_is_missing_or_forbidden(site, monkeypatch):
    assert not is_installed("acme_torch")
    package(site, "acme_torch")
    monkeypatch.setitem(sys.modules, "acme_torch", None)
    assert not is_installed("acme_torch")


def test_a_module_made_by_hand_counts(monkeypatch):
    monkeypatch.setitem(sys.modules, "acme_torch", types.ModuleType("acme_torch"))
    assert is_installed("acme_torch")


def test_a_finder_that_fails_finds_nothing(monkeypatch):
    class Failing:
        def find_spec(self, name, path=None, target=None):
            raise ImportError(name)

    monkeypatch.setattr(sys, "meta_path", [Failing(), *sys.meta_path])
    assert not is_installed("acme_torch")
