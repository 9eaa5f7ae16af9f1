"""`accel setup --into`: real pip and real environments, of small wheels in a folder that is the index."""

import os
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from click.testing import CliRunner

from accel_core.errors import SettingError
from accel_core.hardware import vendors
from accel_tools.commands.doctor import command as doctor
from accel_tools.commands.setup import command as setup
from accel_tools.setup import at_start, choice, folder, resolving
from accel_tools.setup.machines import Machine

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="accel setup --into is for Linux"
)

HERE = Machine("/nowhere", "linux", "x86_64", "3.12")


def write_wheel(index, name, version, *requires):
    """Write a wheel with one module, `<name>.py`, that has its version."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    files = {
        f"{module}.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {module}:print\n",
    }
    index.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(index / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def write_pages(index):
    """Write the pages that pip reads, one of each project's wheels (PEP 503)."""
    for wheel in index.glob("*.whl"):
        page = index / wheel.name.partition("-")[0].replace("_", "-") / "index.html"
        page.parent.mkdir(exist_ok=True)
        with page.open("a") as file:
            file.write(f'<a href="../{wheel.name}">{wheel.name}</a>\n')


@pytest.fixture
def indexes(tmp_path, monkeypatch):
    """PyTorch's indexes `cpu` and `cu126`, and a PyPI, as folders; returns the address of PyTorch's."""
    pypi, torch = tmp_path / "pypi", tmp_path / "pytorch"
    ordinary = ("numb>=1", "setuptools<82")
    write_wheel(torch / "cpu", "torch", "2.13.0+cpu", *ordinary)
    write_wheel(torch / "cu126", "torch", "2.13.0+cu126", *ordinary, "nvidia-thing==5")
    for index in (torch / "cpu", torch / "cu126", pypi):
        write_wheel(index, "numb", "1")
        write_wheel(index, "setuptools", "81")
        write_wheel(index, "nvidia-thing", "5")
    write_wheel(pypi, "numb", "2")
    write_wheel(pypi, "torch", "2.14.0", "nvidia-thing==6")
    for name in ("accel-core", "accel-train", "accel-tools", "accel-cuda", "einops"):
        write_wheel(pypi, name, "0.1")
    for index in (torch / "cpu", torch / "cu126", pypi):
        write_pages(index)
    monkeypatch.setattr(vendors, "pip_argument", lambda name, *_: name)
    monkeypatch.setenv("PIP_INDEX_URL", pypi.as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return torch.as_uri()


def set_up(into, *words, given=""):
    """Run `accel setup --into` with pip."""
    return CliRunner().invoke(
        setup, ["--into", str(into), "--format", "pip", *words], input=given
    )


def plan_of(name):
    return folder.plan_environments([name], HERE)[0].plan


# --- Resolving --------------------------------------------------------------------------


def test_torch_comes_from_its_index_and_everything_else_from_pypi(indexes):
    found = {
        p.name: p
        for p in resolving.resolve(plan_of("cuda=12.6"), "einops\n", {}, indexes)
    }
    assert found["torch"].version == "2.13.0+cu126"
    assert found["numb"].version == "2"
    assert "/pytorch/cu126/" in found["torch"].url
    assert "/pypi/" in found["einops"].url


def test_what_torch_binds_may_differ_between_builds_and_the_rest_may_not(indexes):
    found = resolving.resolve(plan_of("cuda=12.6"), "", {}, indexes)
    own = {package.name for package in found if package.is_build_specific}
    assert own == {"torch", "setuptools", "nvidia-thing"}


def test_versions_of_other_environments_are_kept(indexes):
    found = resolving.resolve(plan_of("cpu"), "", {"numb": "1"}, indexes)
    assert resolving.shared_versions(found)["numb"] == "1"


def test_a_package_without_a_version_for_every_build_is_named(indexes):
    with pytest.raises(
        SettingError,
        match=r"The user requested numb>=2\s+The user requested \(constraint\) numb==1",
    ):
        resolving.resolve(plan_of("cpu"), "numb>=2\n", {"numb": "1"}, indexes)


def test_a_name_without_a_known_build_gets_the_next_step():
    with pytest.raises(SettingError) as raised:
        folder.plan_environments(["cuda", "rocm", "cpu"], HERE)
    cuda, rocm = str(raised.value).splitlines()
    assert cuda.startswith("cuda: ")
    assert "cuda=VERSION" in cuda
    assert "rocm=VERSION" in rocm


# --- Setting up -------------------------------------------------------------------------


def test_sizes_are_printed_before_the_question_and_a_no_leaves_nothing(
    indexes, tmp_path
):
    into = tmp_path / "folder"
    done = set_up(into, "--torch-index", indexes, "cpu", "--", "einops", given="n\n")
    assert done.exit_code == 1
    assert "cpu: torch 2.13.0+cpu, 7 packages, 0 MB" in done.output
    assert [path.name for path in into.iterdir()] == [".setup"]


def test_each_build_gets_an_environment_and_a_killed_one_is_made_again(
    indexes, tmp_path
):
    into = tmp_path / "folder"
    done = set_up(
        into, "--yes", "--torch-index", indexes, "cpu", "cuda=12.6", "--", "einops"
    )
    assert done.exit_code == 0, done.output
    half = into / "environments" / "cuda-12.6"
    (half / choice.MARK).unlink()
    (half / "left").touch()
    written = (into / "environments" / "cpu" / choice.MARK).stat().st_mtime_ns

    report = CliRunner().invoke(doctor, [str(into)])
    assert report.exit_code == 1
    assert "incomplete" in report.output

    again = set_up(into, "--yes", "--torch-index", indexes, "cpu", "cuda=12.6")
    assert again.exit_code == 0, again.output
    assert not (half / "left").exists()
    assert (into / "environments" / "cpu" / choice.MARK).stat().st_mtime_ns == written
    program = "import torch, einops; print(torch.__version__, einops.__version__)"
    answers = [
        subprocess.run(
            [into / "bin" / "python", "-c", program],
            env={**os.environ, "DS_ACCELERATOR": pin, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for pin in ("cpu", "cuda")
    ]
    assert answers == ["2.13.0+cpu 0.1\n", "2.13.0+cu126 0.1\n"]
    assert {"python", "python3", "einops"} <= {
        path.name for path in (into / "bin").iterdir()
    }
    assert not (into / "bin" / "pip").exists()


def test_all_environments_of_a_folder_have_the_same_packages(tmp_path):
    folder.write_atomically(tmp_path / "requirements.txt", "einops\n")
    done = set_up(tmp_path, "cpu", "--", "numb")
    assert done.exit_code == 2
    assert "different packages were given" in done.output


@pytest.mark.parametrize("words", [("cpu", "rocm"), ("cpu", "--", "numpy")])
def test_several_names_and_packages_need_a_folder(words):
    done = CliRunner().invoke(setup, [*words])
    assert done.exit_code == 2
    assert "need --into FOLDER" in done.output


# --- A compiled extension of another torch ----------------------------------------------


def test_an_extension_that_needs_a_library_of_another_build_is_named_before_its_import(
    tmp_path,
):
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    extension = tmp_path / f"ops{suffix}"
    extension.write_bytes(b"\x7fELF ... \0libtorch_hip.so\0libc10.so\0 ...")
    done = _import(tmp_path, "-X", f"accel_launcher={sys.executable}")
    assert "was built for a different torch" in done.stderr
    assert "libtorch_hip.so" in done.stderr


def test_without_the_launcher_nothing_is_examined(tmp_path):
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (tmp_path / f"ops{suffix}").write_bytes(b"\0libtorch_hip.so\0")
    assert "was built for a different torch" not in _import(tmp_path).stderr


def _import(path, *options):
    """Import the extension `ops` as a Python of a folder does."""
    program = f"from {at_start.__name__} import begin; begin(); import ops"
    command = [sys.executable, *options, "-c", program]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), *sys.path])}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)
