"""A vendor's package on disk: its distribution, its requirements, and what its libraries lack."""

import importlib
import sys

import pytest
from accel_tests import layouts
from accel_tests.libraries import COMPILER, Libraries

from accel_core import TorchBuild
from accel_tools.doctor import vendor_package as under_test
from accel_tools.doctor.installed_package import find_vendor_package
from accel_tools.doctor.vendor_package import (
    describe_unmet,
    find_extension_modules,
    find_misfits,
    package_unmet_dependencies,
)

with_gcc = pytest.mark.skipif(
    COMPILER is None or not sys.platform.startswith("linux"),
    reason="gcc builds ELF here",
)


def install(world, name, version, module, *lines, tags=(), record=None):
    """A package whose metadata has `lines`, and whose wheel has `tags`."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        f"{module.replace('.', '/')}/__init__.py": "",
        f"{info}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                f"Name: {name}",
                f"Version: {version}",
                *lines,
                "",
            ]
        )
        + "\nRequires-Dist: torch<1\n",  # of the description
        f"{info}/WHEEL": "".join(f"Tag: {tag}\n" for tag in tags),
    }
    if record is not None:
        files[f"{info}/RECORD"] = record
    layouts._write(world.site, files)
    importlib.invalidate_caches()


def test_the_distribution_of_a_module_by_its_name_or_by_its_record(world):
    install(world, "vendor-card", "2.1", "vendor_card", "Requires-Dist: torch==2.1.*")
    install(world, "other", "1.0", "other")
    found = find_vendor_package("vendor_card")
    assert str(found) == "vendor-card 2.1"
    assert found.requires == ("torch==2.1.*",)
    # Of a namespace several distributions have a part; a part that lies elsewhere is not theirs.
    layouts._write(world.site, {"space/a/__init__.py": "", "space/b/__init__.py": ""})
    install(world, "aaa", "1", "aaa", record="space/ab/__init__.py,,\n")
    install(world, "bbb", "2", "bbb", record="space/b/__init__.py,sha256=x,1\n")
    assert str(find_vendor_package("space.b")) == "bbb 2"
    assert str(find_vendor_package("space.a")) == "space.a"  # nobody's
    assert find_vendor_package("nowhere") is None


FITS = [
    ("2.1", "Requires-Dist: torch==2.13.0.*", "2.13.0+cpu", []),
    ("2.1", "Requires-Dist: torch==2.1.*", "2.13.0", ["card 2.1 requires torch==2.1.*, but torch 2.13.0"]),
    ("2.1", "Requires-Dist: torch<2; extra == 'old'", "2.13.0", []),
    ("2.1", "Requires-Dist: torch !!", "2.13.0", []),
    ("2.1", "Requires-Dist: torch<2", "our-own", []),
    ("2.13.10+xpu", "Requires-Dist: numpy", "2.13.0+cpu", ["card 2.13.10+xpu was built for a xpu build"]),
    ("2.13.10+xpu", "Requires-Dist: numpy", "2.13.0+xpu", []),
    ("2.13.10+git1234", "Requires-Dist: numpy", "2.13.0+cpu", []),
]  # fmt: skip


@pytest.mark.parametrize(("version", "line", "torch", "expected"), FITS)
def test_whether_it_fits_torch(world, monkeypatch, version, line, torch, expected):
    install(world, "card", version, "card", line)
    monkeypatch.setattr(under_test, "torch_build", lambda: TorchBuild(torch))
    found = [what for what, _ in find_misfits(find_vendor_package("card"))]
    assert len(found) == len(expected)
    assert all(
        what.startswith(start) for what, start in zip(found, expected, strict=True)
    )


def test_whether_it_fits_this_python(world):
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    install(world, "card", "1", "card", tags=("cp27-cp27m-win32",))
    ((what, step),) = find_misfits(find_vendor_package("card"))
    assert what.startswith(
        "card 1 was built for cp27-cp27m-win32, but this is Python 3."
    )
    assert step == "pip install --force-reinstall 'card'"
    install(
        world,
        "card",
        "1",
        "card",
        tags=("cp27-cp27m-win32", f"{own}-none-any", "py3-none-any"),
    )
    assert list(find_misfits(find_vendor_package("card"))) == []


def test_a_machine_that_setarch_pretends_is_named(world, monkeypatch):
    monkeypatch.setattr(under_test.platform, "machine", lambda: "i686")
    install(world, "card", "1", "card", tags=("cp27-cp27m-win32",))
    ((what, step),) = find_misfits(find_vendor_package("card"))
    assert what.startswith("the machine appears as i686 in this process")
    assert step == "start the program with `setarch x86_64`"


@with_gcc
def test_libraries_that_the_extension_needs(world):
    built = Libraries(world.site)
    install(world, "card", "1", "card")
    for name in (
        "torch/lib/libtorch.so",
        "gone/libcardrt.so",
        "gone/libcardhal.so",
        "card/lib/libbypath.so",
    ):
        built.build(name)
    (world.site / "torch/__init__.py").touch()
    built.build(
        "card/lib/libcard.so",
        "gone/libcardhal.so",
        "torch/lib/libtorch.so",
        "gone/libcardrt.so",
    )
    needs = (
        "card/lib/libcard.so",
        "gone/libcardrt.so",
        "torch/lib/libtorch.so",
        "card/lib/libbypath.so",
    )
    extension = built.build("card/_C.so", *needs, flags=("-Wl,-rpath,$ORIGIN/lib",))
    for deeper in (
        "card/lib/deeper/_D.so",
        "card/lib/extra.cpython-27-x.so",
        "card/lib/libother.so",
    ):
        built.build(deeper)
    importlib.invalidate_caches()
    package = find_vendor_package("card")
    assert find_extension_modules(package.folder) == [extension]
    # torch's are loaded before.
    told = describe_unmet(package_unmet_dependencies(package, {}))
    assert told == "libcardrt.so (for _C.so); libcardhal.so (for libcard.so)"
    assert (
        package_unmet_dependencies(
            package, {"LD_LIBRARY_PATH": str(world.site / "gone")}
        )
        == ()
    )
