"""Defects of installed packages whose files all have the recorded size."""

import shutil
import sys
from pathlib import Path

import pytest

from accel_simulated import building
from accel_tools.doctor import defects, torch_itself
from accel_tools.doctor.damage import find_damage, find_damage_of_import
from accel_tools.doctor.defects import (
    describe_file_defect,
    find_doubled_metadata,
    find_library_defect,
    find_stale_metadata,
)

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF headers")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages, and a function that installs a distribution there."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, version, *requirements, files=()):
        metadata = tmp_path / f"{name}-{version}.dist-info"
        metadata.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
        (metadata / "METADATA").write_text("\n".join(lines) + "\n")
        rows = [f"{path},sha256=x,{size}" for path, size in files]
        (metadata / "RECORD").write_text("\n".join(rows))
        return metadata

    return install


@pytest.fixture
def library(tmp_path):
    """A library of a package that nothing has imported, which is built for this machine."""
    folder = tmp_path / "acme_libs" / "lib"
    folder.mkdir(parents=True)
    (tmp_path / "acme_libs" / "__init__.py").touch()
    return Path(shutil.copy(sys.executable, folder / "libc10.so"))


ERROR = "ImportError: libc10.so: cannot open shared object file"


@linux_only
def test_a_library_for_another_architecture_is_named(site, library):
    site("acme_libs", "1.0")
    data = bytearray(library.read_bytes())
    assert find_damage_of_import("acme_libs", ERROR) is None
    data[18:20] = (40).to_bytes(2, sys.byteorder)
    library.write_bytes(data)
    found = find_damage_of_import("acme_libs", ERROR)
    assert found.what.startswith(
        f"{library} is built for ARM, but this Python is built for "
    )
    assert found.step.startswith("pip install --force-reinstall")


@linux_only
@pytest.mark.parametrize(
    ("spoil", "defect"),
    [
        (lambda file: file.write_text("version https://git-lfs"), "is not a library"),
        (lambda file: relink(file, file), "is part of a loop of symbolic links"),
        (
            lambda file: relink(file, "/gone"),
            "is a link to /gone, which does not exist",
        ),
    ],
    ids=["text", "loop", "link"],
)
def test_a_file_that_cannot_be_a_library_is_described(library, spoil, defect):
    assert describe_file_defect(library) == ""
    spoil(library)
    assert describe_file_defect(library) == defect
    found = find_library_defect(str(library.parent.parent), ERROR)
    assert found == f"{library} {defect}"


def relink(file, target):
    file.unlink()
    file.symlink_to(target)


def test_a_library_that_the_error_does_not_name_is_not_examined(library):
    library.write_text("no library")
    assert find_library_defect(str(library.parent.parent), "ImportError: x") == ""


def test_a_package_in_a_loop_of_links_is_damaged(site, tmp_path):
    site("vendor", "1.0", files=[("vendor/__init__.py", 3)])
    relink_folder = tmp_path / "vendor"
    relink_folder.symlink_to(relink_folder)
    found = find_damage("vendor")
    assert found.what == (
        "vendor 1.0 is damaged: vendor/__init__.py is part of a loop of symbolic links"
    )


def test_a_requirement_of_another_version_is_named_if_the_error_names_it(site):
    site("torch", "2.9.0", "typing-extensions>=4.10.0", "numpy>=2; extra == 'x'")
    site("typing_extensions", "4.5.0")
    error = "ImportError: cannot import name 'TypeIs' from 'typing_extensions'"
    found = find_damage_of_import("torch", error)
    assert found.what.startswith(
        "torch 2.9.0 requires typing-extensions>=4.10.0, but 4.5.0 is installed"
    )
    assert found.step == "pip install 'typing-extensions>=4.10.0'"
    assert find_damage_of_import("torch", "ImportError: no name") is None


def test_a_version_that_hides_another_one_is_named_with_its_folder(
    site, tmp_path, monkeypatch
):
    """`easy-install.pth` puts old eggs in front of the other packages, for example."""
    site("zap", "1.0", "boom>=2")
    site("boom", "2.1")
    egg = tmp_path / "old.egg"
    shutil.copytree(site("boom", "1.9"), egg / "boom-1.9.dist-info")
    shutil.rmtree(tmp_path / "boom-1.9.dist-info")
    monkeypatch.syspath_prepend(str(egg))
    damage = find_damage_of_import("zap", "cannot import name 'x' from 'boom'")
    assert damage.what == (
        f"zap 1.0 requires boom>=2, but 1.9 is installed in {egg}, which comes first in sys.path and hides a "
        "version that fits"
    )


def test_metadata_without_files_that_python_reads_first_is_named(site):
    """An interrupted upgrade leaves it. A package that asks for the version then refuses the new one."""
    site("zap", "1.0")
    first = site("boom", "2.0", files=[("boom.py", 1)])
    second = site("boom", "2.1", files=[("boom.py", 1)])
    failure = "ImportError: boom {} is too old"
    assert find_doubled_metadata(failure.format("2.0")) is None
    # Which of them Python reads first depends on the file system.
    for stale, version in ((first, "2.0"), (second, "2.1")):
        record = (stale / "RECORD").read_text()
        (stale / "RECORD").write_text("")
        found = find_doubled_metadata(failure.format(version))
        (stale / "RECORD").write_text(record)
        if found is not None:
            break
    assert found.folder == str(stale)
    assert find_doubled_metadata("ImportError: another error") is None


def test_metadata_of_a_development_install_is_not_to_be_removed(site, tmp_path):
    """It has no RECORD either, and the package is in use."""
    complete = site("boom", "2.1", files=[("boom.py", 1)])
    complete.rename(tmp_path / "zz-boom-2.1.dist-info")
    used = tmp_path / "boom.egg-info"
    used.mkdir()
    (used / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: boom\nVersion: 2.0\n")
    for version in ("2.0", "2.1"):
        assert find_doubled_metadata(f"ImportError: boom {version} is too old") is None


def test_a_version_within_a_longer_number_is_not_that_version():
    assert defects._contains_version("boom 2.0 is too old", "2.0")
    assert defects._contains_version("found 2.0.", "2.0")
    for text in ("boom 12.0", "boom 2.0.1", "boom 2.01"):
        assert not defects._contains_version(text, "2.0")


def test_metadata_of_another_version_is_stale(site):
    stale = site("zap", "2.4.0")
    assert find_stale_metadata("zap", "2.13.0") == []
    site("zap", "2.13.0")
    assert find_stale_metadata("zap", "2.13.0") == [str(stale)]


def test_another_version_in_another_folder_is_not_stale(site, tmp_path, monkeypatch):
    """The user's folder of packages and that of the environment may both have one."""
    site("zap", "2.13.0")
    other = tmp_path / "other" / "zap-2.4.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: zap\nVersion: 2.4.0\n"
    )
    monkeypatch.syspath_prepend(str(other.parent))
    assert find_stale_metadata("zap", "2.13.0") == []


def test_the_simulated_device_reads_the_version_of_torch_from_its_files(site, tmp_path):
    """An interrupted uninstall has left metadata of an older torch."""
    site("torch", "2.4.0")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'\n")
    assert building._torch_version() == "2.13.0+cpu"


def test_a_folder_that_an_interrupted_pip_left_is_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "acme_left").mkdir()
    assert torch_itself._folder_without_init("acme_left") == str(tmp_path / "acme_left")
    (tmp_path / "acme_left" / "__init__.py").touch()
    assert torch_itself._folder_without_init("acme_left") == ""
    assert torch_itself._folder_without_init("acme_gone") == ""
