"""What DeepSpeed's builders need before they can be used, and what counts as built."""

import os
import sys
from pathlib import Path

import pytest
from accel_tests.children import executable

from accel_train.deepspeed import op_builders


class Builder:
    """A builder as DeepSpeed's: it prints when it is asked to speak."""

    name = "odd_op"

    def __init__(self, *sources, compatible=True, says=""):
        self._sources, self._compatible, self._says = list(sources), compatible, says

    def sources(self):
        return self._sources

    def absolute_name(self):
        return f"deepspeed.ops.odd.{self.name}"

    def is_compatible(self, verbose=False):
        if verbose and self._says:
            print(self._says)
        return self._compatible


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A PATH with these programs alone, and a folder for what torch keeps."""

    def give(*names):
        for name in names:
            executable(tmp_path / "bin" / name)

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("CXX", raising=False)
    return give


def test_a_builder_that_says_no_is_quoted_without_colours(capsys):
    says = "\x1b[93m [WARNING] \x1b[0m odd_op needs libodd.\n\x1b[93m [WARNING] \x1b[0m install libodd-dev"
    builder = Builder(compatible=False, says=says)
    assert (
        op_builders.incompatibility_reason(builder)
        == "odd_op needs libodd; install libodd-dev"
    )
    assert (
        op_builders.incompatibility_reason(Builder(compatible=False))
        == "DeepSpeed's own compatibility check rejects the operator"
    )
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(os.name == "nt", reason="programs without an extension")
def test_what_has_to_be_compiled_needs_a_compiler_ninja_and_for_cuda_the_toolkit(
    tools, monkeypatch
):
    builder = Builder("csrc/odd.cpp")
    assert (
        "the C++ compiler 'c++' is missing: install one, or set CXX"
        in op_builders.incompatibility_reason(builder)
    )
    tools("c++")
    assert "pip install ninja" in op_builders.incompatibility_reason(builder)
    tools("ninja")
    assert op_builders.incompatibility_reason(builder) == ""
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    builder = Builder("csrc/odd.cpp", "csrc/odd.cu")
    for home in ("CUDA_HOME", "ROCM_HOME"):
        monkeypatch.setattr(cpp_extension, home, None)
    monkeypatch.setattr("torch.version.cuda", "12.6")
    assert "nvcc is missing" in op_builders.incompatibility_reason(builder)
    monkeypatch.setattr("torch.version.cuda", "0.0")
    assert "does not run on a simulated device" in op_builders.incompatibility_reason(
        builder
    )
    monkeypatch.setenv("CXX", "ccache clang++-99")
    assert "the C++ compiler 'ccache' is missing" in op_builders.incompatibility_reason(
        Builder("csrc/odd.cpp")
    )


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for nvcc")
@pytest.mark.parametrize(
    ("release", "fault"),
    [
        ("12.8", ""),
        ("13.0", "is from CUDA 13, but torch is built for CUDA 12.6: set CUDA_HOME"),
    ],
)
def test_deepspeeds_cuda_code_needs_the_nvcc_of_torchs_cuda(
    tools, monkeypatch, tmp_path, release, fault
):
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    tools("c++", "ninja")
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}'\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setattr("torch.version.cuda", "12.6")
    answer = op_builders.incompatibility_reason(Builder("csrc/odd.cpp", "csrc/odd.cu"))
    assert fault in answer
    assert bool(answer) is bool(fault)


def test_what_is_built_needs_nothing(disk, tools, tmp_path):
    builder = Builder("csrc/odd.cpp")
    assert op_builders.is_built(Builder()) is True
    assert op_builders.incompatibility_reason(Builder()) == ""
    assert op_builders.is_built(builder) is False
    disk.deepspeed("acme")
    (tmp_path / "deepspeed" / "ops" / "odd").mkdir()
    (
        tmp_path
        / "deepspeed"
        / "ops"
        / "odd"
        / "odd_op.cpython-311-x86_64-linux-gnu.so"
    ).touch()
    assert op_builders.is_built(builder) is True
    assert op_builders.incompatibility_reason(builder) == ""


@pytest.mark.skipif(os.name == "nt", reason="torch takes no other compiler there")
def test_what_torch_would_compile_again_is_not_built(
    disk, tools, tmp_path, monkeypatch
):
    builder = Builder("csrc/odd.cpp")
    kept = tmp_path / "kept" / "odd_op"
    kept.mkdir(parents=True)
    (kept / "odd_op.o").touch()
    assert op_builders.is_built(builder) is False
    (kept / "odd_op.so").touch()
    assert op_builders.is_built(builder) is True
    (kept / "build.ninja").write_text("ninja_required_version = 1.3\ncxx = g++-12\n")
    assert op_builders.is_built(builder) is False
    monkeypatch.setenv("CXX", "g++-12")
    assert op_builders.is_built(builder) is True
    disk.deepspeed("acme")
    source = tmp_path / "deepspeed" / "ops" / "csrc" / "odd.cpp"
    source.parent.mkdir()
    source.touch()
    (kept / "odd_op.so").touch()
    rules = "cxx = g++-12\nbuild odd.o: compile "
    (kept / "build.ninja").write_text(
        f"{rules}/another/environment/deepspeed/ops/csrc/odd.cpp\n"
    )
    assert op_builders.is_built(builder) is False
    (kept / "build.ninja").write_text(f"{rules}{str(source).replace(' ', '$ ')}\n")
    assert op_builders.is_built(builder) is True
    os.utime(source, (2**33, 2**33))
    assert op_builders.is_built(builder) is False


def test_torchs_usual_folder_is_looked_into(tools, tmp_path, monkeypatch):
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    builder = Builder("csrc/odd.cpp")
    assert op_builders.is_built(builder) is False
    tag = f"py{sys.version_info.major}{sys.version_info.minor}_cpu"
    from torch.utils.cpp_extension import get_default_build_root

    folder = Path(get_default_build_root(), tag, "odd_op")
    folder.mkdir(parents=True)
    (folder / "odd_op.so").touch()
    assert op_builders.is_built(builder) is True


class Loading(Builder):
    _loaded_ops = {}  # noqa: RUF012

    def load(self, verbose=False):
        sys.stderr.write("compiling\n")
        self._loaded_ops[self.name] = self
        return self


def test_a_builder_says_that_it_compiles_and_where_it_is_kept(
    tools, tmp_path, monkeypatch, capfd
):
    provider, source = op_builders.DeepSpeedProvider({}), f"{__name__}:Loading"
    assert provider.load(source) is provider.load(source) is Loading, (
        "the class stays DeepSpeed's own"
    )
    builder = Loading("csrc/odd.cpp")
    assert builder.load(verbose=True) is builder
    assert capfd.readouterr().err == (
        "accel-core: compiling DeepSpeed's odd_op once, which may take minutes. The compiled module "
        f"is kept in {tmp_path / 'kept' / 'odd_op'}\ncompiling\n"
    )
    Loading("csrc/odd.cpp").load()  # loaded already
    Loading._loaded_ops.clear()
    Loading().load()  # Python: nothing to compile
    monkeypatch.setenv("LOCAL_RANK", "1")  # the first rank of the host speaks
    Loading._loaded_ops.clear()
    Loading("csrc/odd.cpp").load()
    assert capfd.readouterr().err == "compiling\n" * 3


def test_a_builder_names_the_lock_that_torch_waits_for(
    tools, tmp_path, monkeypatch, capfd
):
    """torch waits without a limit, also for the lock of a process that was killed."""
    op_builders.DeepSpeedProvider({}).load(f"{__name__}:Loading")
    lock = tmp_path / "kept" / "odd_op" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    monkeypatch.setattr(Loading, "_loaded_ops", {})
    Loading("csrc/odd.cpp").load()
    notice, compiling = capfd.readouterr().err.splitlines()
    assert notice.startswith(f"accel-core: torch waits for the lock file {lock}, ")
    assert notice.endswith(f"If no process is compiling: rm {lock}")
    assert compiling == "compiling"
