"""Operators that are compiled, in C++, CUDA or SYCL: kept after the first use, or refused with the reason."""

import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from accel_tests.children import executable, run_python
from accel_tests.processes import gone, until

from accel_core.errors import AccelError, OpBuildError, OpCacheError
from accel_train.ops import builder as builder_module
from accel_train.ops import compiler, failures
from accel_train.ops.builder import OpBuilder
from accel_train.ops.compiler import Job, Language

# ---------------------------------------------------------------------------- compiled builder
# An operator in C++ is compiled at its first use, kept, and refused with the reason where that fails.


#: Why nothing can be compiled here; the tests that compile are then skipped.
WHY_NOT = compiler.fault(compiler.Language.CXX)
COMPILES = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
POSIX = pytest.mark.skipif(
    os.name == "nt", reason="the compilers here are shell scripts"
)

#: Small on purpose: torch's own headers take half a minute.
SOURCE = """
#include <Python.h>
#include "answer.h"
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0, 0, 0, 0}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "answer", 0, -1, methods, 0, 0, 0, 0};
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
PyMODINIT_FUNC JOIN(PyInit_, TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
"""
BUILDER = """
from accel_train.ops.builder import OpBuilder


class AnswerBuilder(OpBuilder):
    NAME = "answer"

    def sources(self):
        return ["csrc/answer.cpp", ""]

    def include_paths(self):
        return ["include"]
"""

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension
from answering.building import AnswerBuilder

extension = AnswerBuilder().builder()
assert extension.name == AnswerBuilder().absolute_name() == "answering.answer_op"
assert extension.extra_compile_args == {"cxx": AnswerBuilder().cxx_args()}
build = {"build_ext": BuildExtension}
setup(name="answering", packages=["answering"], ext_modules=[extension], cmdclass=build)
"""


def write(folder, source=SOURCE, answer="#define ANSWER 42\n"):
    """A package `answering` with a builder beside its sources."""
    package = folder / "answering"
    for name, text in {
        "__init__.py": "",
        "building.py": BUILDER,
        "csrc/answer.cpp": source,
        "include/answer.h": answer,
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return package


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """The package, in a folder that stays: part of what is compiled is where its sources lie."""
    return write(tmp_path_factory.mktemp("written")).parent


@pytest.fixture(scope="session")
def compiled(written, tmp_path_factory):
    """A folder with a compiler that notes its runs, and the cache that holds the operator."""
    folder = tmp_path_factory.mktemp("compiled")
    executable(
        folder / "c++", f'echo "$@" >> {folder}/runs\nexec {shutil.which("c++")} "$@"'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_CACHE", str(folder / "cache"))
        patch.setenv("CXX", str(folder / "c++"))
        for builder in in_package(written, patch):
            assert builder.load().answer() == 42
    return folder


def runs(folder):
    """The compiler's runs that compile or link, not those that ask for its version."""
    lines = (folder / "runs").read_text().splitlines()
    return [line for line in lines if " -c " in line or "-shared" in line]


@pytest.fixture
def builder(written, monkeypatch, tmp_path):
    """The builder, in a process that has loaded nothing, with an empty cache."""
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "cache"))
    yield from in_package(written, monkeypatch)


def in_package(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(builder_module, "_loaded", {})
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("answering.building").AnswerBuilder()
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] == "answering"]:
            del sys.modules[name]


@pytest.fixture
def filled(builder, compiled, monkeypatch):
    """The builder's cache is a copy of the one that holds the operator."""
    folder = Path(os.environ["ACCEL_CACHE"])
    shutil.copytree(compiled / "cache", folder)
    monkeypatch.setenv("CXX", str(compiled / "c++"))
    return folder


# ---------------------------------------------------------------------------- compiling and keeping


@COMPILES
@POSIX
def test_what_was_compiled_is_found_by_another_process_and_loaded_once(
    builder, filled, compiled, written
):
    """That of several at once one compiles is the cache's: test_cache.py."""
    assert len(runs(compiled)) == 2  # one file, one link
    code = (
        f"import sys; sys.path[:] = {[str(written), *sys.path]!r}\n"
        "from answering.building import AnswerBuilder\nprint(AnswerBuilder().load().answer())"
    )
    done = run_python(["-W", "error", "-c", code], os.environ)
    assert (done.stdout, done.stderr) == ("42\n", "")
    assert builder.is_built()
    assert builder.is_compatible()
    module = builder.load()
    assert module.answer() == 42
    assert type(builder)().load() is module
    assert len(runs(compiled)) == 2


@COMPILES
@POSIX
def test_a_library_that_was_changed_is_refused(builder, filled):
    (library,) = filled.glob("ops/*/*.so")
    with library.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(OpCacheError, match="SHA-256"):
        builder.load()
    assert "SHA-256" in builder.compatibility()
    assert not builder.is_compatible()


@COMPILES
@POSIX
def test_what_is_loaded_is_what_was_checked(builder, filled, monkeypatch):
    (library,) = filled.glob("ops/*/*.so")
    for platform in (sys.platform, "other"):  # "other" is without /proc
        monkeypatch.setattr(sys, "platform", platform)
        with builder._entry().held() as found:
            kept = library.rename(library.with_name("away"))
            library.write_bytes(b"not what was checked")
            assert builder_module._import_library("answer_op", found).answer() == 42
        kept.replace(library)


@COMPILES
def test_each_input_changes_the_place(builder, written, monkeypatch):
    base = builder._entry().name
    assert builder._entry().name == base
    header = written / "answering" / "include" / "answer.h"
    before = header.read_text()
    header.write_text("#define ANSWER 43\n")
    try:
        assert builder._entry().name != base
    finally:
        header.write_text(before)
    for member, value in {
        "cxx_args": ["-O1"],
        "extra_ldflags": ["-s"],
        "libraries_args": ["m"],
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(type(builder), member, lambda self, value=value: value)
            assert builder._entry().name != base, member
    with monkeypatch.context() as patch:
        patch.setattr("torch.__version__", "2.99.0")
        assert builder._entry().name != base
    other = shutil.which("clang++") or shutil.which("x86_64-linux-gnu-g++")
    if other:
        monkeypatch.setenv("CXX", other)
        assert builder._entry().name != base


@COMPILES
@POSIX
def test_native_flags_bring_the_processor_into_the_place(
    builder, tmp_path, monkeypatch
):
    """A compiler that says other macros for -march=native stands for another processor."""
    monkeypatch.setattr(type(builder), "cxx_args", lambda self: ["-march=native"])
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    names = set()
    for macro in ("__AVX2__", "__AVX512F__"):
        real = shutil.which("c++")
        text = (
            f'case "$*" in *-dM*) echo "#define {macro} 1";; *) exec {real} "$@";; esac'
        )
        executable(tmp_path / "c++", text)
        names.add(builder._entry().name)
    assert len(names) == 2


# ---------------------------------------------------------------------------- what goes wrong


@COMPILES
def test_a_compile_error_shows_its_first_line_and_keeps_the_log(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "cache"))
    write(tmp_path, source=SOURCE.replace("ANSWER)", "UNKNOWN)"))
    for builder in in_package(tmp_path, monkeypatch):
        assert builder.is_compatible()
        with pytest.raises(OpBuildError) as caught:
            builder.load(verbose=False)
        first, second = str(caught.value).splitlines()
        assert "answer.cpp:4:" in first
        assert "error:" in first
        assert "UNKNOWN" in first
        log = Path(second.partition("output: ")[2])
        assert first.partition("compile: ")[2] in log.read_text()
        assert [
            path for path in (tmp_path / "cache" / "ops").iterdir() if path.is_dir()
        ] == []
        assert not builder.is_built()


NO_COMPILER = [
    (
        {"CXX": "/nowhere/c++ -m64"},
        "the C++ compiler '/nowhere/c++ -m64' is not on PATH (CXX names it)",
    ),
    (
        {"CXX": 'g++ "'},
        "CXX='g++ \"' is not a valid command line: No closing quotation.",
    ),
    ({"PATH": ""}, "the C++ compiler 'c++' is not on PATH (set CXX"),
    ({"CXX": "{tools}/c++"}, "{tools}/c++ does not run: no licence"),
    ({"PATH": "{tools}"}, "ninja, with which torch compiles, is missing"),
]


@POSIX
@pytest.mark.parametrize(("variables", "expected"), NO_COMPILER)
def test_without_a_compiler_it_is_told(
    builder, variables, expected, tmp_path, monkeypatch, capfd
):
    executable(tmp_path / "c++", "echo no licence >&2\nexit 1")
    monkeypatch.delenv("CXX", raising=False)
    expected = expected.format(tools=tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tools=tmp_path))
    if "licence" in expected:
        monkeypatch.setattr(compiler, "_ninja", lambda: "/somewhere/ninja")
    elif "ninja" in expected:
        monkeypatch.setattr("sysconfig.get_path", lambda *a, **k: str(tmp_path))
    assert not builder.is_built()
    assert builder.compatibility().startswith(expected)
    assert not builder.is_compatible(verbose=True)
    assert builder.error_log is not None
    assert capfd.readouterr().err.startswith(f"answer: {expected}")
    with pytest.raises(OpBuildError, match=re.escape(expected)):
        builder.load()


@COMPILES
def test_missing_headers_and_sources_are_told(builder, tmp_path, monkeypatch):
    real = compiler.sysconfig.get_path
    with monkeypatch.context() as patch:
        patch.setattr(
            "sysconfig.get_path",
            lambda name, *a: str(tmp_path) if name == "include" else real(name, *a),
        )
        assert builder.compatibility().startswith(
            f"Python's headers are missing ({tmp_path}/Python.h)"
        )
    monkeypatch.setattr(type(builder), "sources", lambda self: ["csrc/gone.cpp"])
    assert builder.compatibility().endswith(
        "gone.cpp cannot be read: No such file or directory"
    )
    with pytest.raises(OpBuildError, match=r"gone\.cpp"):
        builder.load()


# ---------------------------------------------------------------------------- ahead of time


@COMPILES
@POSIX
def test_what_was_built_ahead_of_time_is_preferred_and_needs_no_compiler(
    tmp_path, monkeypatch
):
    pytest.importorskip("setuptools")
    write(tmp_path)
    (tmp_path / "setup.py").write_text(SETUP)
    code = (
        f"import sys; sys.path[:] = {['.', *sys.path]!r}; exec(open('setup.py').read())"
    )
    run_python(
        ["-c", code, "build_ext", "--inplace"], os.environ, cwd=tmp_path
    ).succeeded()
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    for builder in in_package(tmp_path, monkeypatch):
        assert builder.is_built()
        assert builder.compatibility() == ""
        module = builder.load()
        assert module.answer() == 42
        assert Path(module.__file__).parent == tmp_path / "answering"
    assert not (tmp_path / "cache").exists()


def test_what_was_built_ahead_of_time_and_is_broken_is_told(tmp_path, monkeypatch):
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    package = write(tmp_path)
    (package / "answer_op").mkdir()  # which is no library
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "cache"))
    for builder in in_package(tmp_path, monkeypatch):
        assert builder.is_built() is False
        (package / f"answer_op{suffix}").write_bytes(b"for another torch")
        with pytest.raises(
            OpBuildError, match="was built ahead of time and does not load"
        ) as caught:
            builder.load()
        assert isinstance(caught.value.__cause__, ImportError)
        assert isinstance(caught.value, AccelError)


# ---------------------------------------------------------------------------- compilers end
# Compilers do not outlive the process that builds, however it ends.


@COMPILES
@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are read in /proc"
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_compilers_end_with_their_builder(tmp_path, number):
    note = tmp_path / "pid"
    (tmp_path / "answer.cpp").write_text("")
    script = tmp_path / "c++"
    note_and_wait = f"echo $$ > {note}~; mv {note}~ {note}; exec sleep 60"
    executable(
        script,
        f'case "$*" in *" -c "*) {note_and_wait};; esac\nexec {shutil.which("c++")} "$@"',
    )
    code = (
        # Whoever runs the tests in the background of a shell has the signal ignored, for all that they start.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"import sys; sys.path[:] = {sys.path!r}\nfrom pathlib import Path\n"
        "from accel_train.ops.compiler import Job, compile_library\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "job = Job('answer', (folder / 'answer.cpp',), (), (), (), ())\n"
        "compile_library(job, folder, folder / 'log')"
    )
    environ = {**os.environ, "CXX": str(script)}
    builder = subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stderr=subprocess.DEVNULL
    )
    try:
        until(note.exists, 60)
        builder.send_signal(number)
        builder.wait(20)
    finally:
        builder.kill()
        builder.wait()
    assert gone(note.read_text().strip())


# ---------------------------------------------------------------------------- compiled languages
# C++, CUDA and SYCL: what is missing for each, which headers count, and what a compiler's output says.


def test_the_language_is_told_by_the_suffixes():
    assert Language.of(["a.cpp", "b.cc"]) is Language.CXX
    assert Language.of(["a.cpp", "b.cu"]) is Language.CUDA
    assert Language.of(["b.hip"]) is Language.CUDA
    assert Language.of(["a.cpp", "b.sycl"]) is Language.SYCL
    with pytest.raises(OpBuildError, match="make two operators"):
        Language.of(["a.cu", "b.sycl"])


class Device(OpBuilder):
    NAME = "device"

    def __init__(self, *sources):
        super().__init__()
        self._sources = list(sources)

    def sources(self):
        return self._sources


@pytest.mark.parametrize("suffix", ["cu", "sycl"])
def test_what_is_missing_for_a_device_is_told(suffix, tmp_path, monkeypatch):
    """Step by step, as a user gets there; the tools are stand-ins for what this machine may lack."""
    import torch
    from torch.utils import cpp_extension

    source = tmp_path / f"op.{suffix}"
    source.write_text("")
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_ninja", lambda: "ninja")
    monkeypatch.setattr(compiler, "_cxx", lambda cpp_extension: [sys.executable])
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: True)
    builder = Device(str(source))
    for name in ("cuda", "hip", "xpu"):
        monkeypatch.setattr(torch.version, name, None, raising=False)
    tools = tmp_path / "bin"

    def tool(name, says):
        executable(tools / name, f"echo '{says}'")

    if suffix == "sycl":
        assert "is built without XPU" in builder.compatibility()
        monkeypatch.setattr(torch.version, "xpu", "20250301", raising=False)
        monkeypatch.setenv("PATH", str(tools))
        assert builder.compatibility().startswith(
            "the SYCL compiler icpx is not on PATH"
        )
        tool("icpx", "Intel oneAPI DPC++ 2025.3")
        assert builder.compatibility() == ""
        monkeypatch.delattr(cpp_extension, "SyclExtension")
        assert "which torch 2.7 and newer can: accel setup" in builder.compatibility()
        with pytest.raises(OpBuildError, match="lacks SyclExtension"):
            builder.builder()
        return
    assert "is built without CUDA" in builder.compatibility()
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    assert builder.compatibility().startswith("nvcc is missing (CUDA_HOME is None)")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path))
    tool("nvcc", "Cuda compilation tools, release 11.8, V11.8.89")
    assert (
        "is from CUDA 11, but torch is built for CUDA 12.8" in builder.compatibility()
    )
    tool("nvcc", "Cuda compilation tools, release 12.4, V12.4.1")
    assert builder.compatibility() == ""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(cpp_extension, "ROCM_HOME", None)
    assert builder.compatibility().startswith("hipcc is missing")


def test_the_devices_for_which_torch_compiles_are_part_of_the_place(
    tmp_path, monkeypatch
):
    import torch
    from torch.utils import cpp_extension

    for name in ("nvcc", "nvidia-smi", "c++"):
        executable(tmp_path / "bin" / name, "echo 9.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    job = Job("op", (tmp_path / "op.cu",), (), (), (), ())
    assert compiler.identity(job)["device"] == ["9.0\n", "9.0\n"]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    assert compiler.identity(job)["device"] == ["9.0\n", "TORCH_CUDA_ARCH_LIST=8.0"]


def test_the_headers_of_a_source_are_followed(tmp_path):
    for name, text in {
        "src/a.cpp": '#include "near.h"\n # include <far.h>\n#include <vector>\n',
        "src/near.h": '#include "near.h"\n',
        "inc/far.h": '#include "../src/near.h"\n#include "gone.h"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    job = Job("op", (tmp_path / "src/a.cpp",), (tmp_path / "inc",), (), (), ())
    found = {
        str(Path(path).relative_to(tmp_path).as_posix())
        for path in compiler.content(job)
    }
    assert found == {"src/a.cpp", "src/near.h", "inc/far.h"}


STEPS = [
    (
        "extension.h:9:10: fatal error: Python.h: No such file or directory",
        "python3-dev",
    ),
    ("x.cpp:1:10: fatal error: 'Python.h' file not found", "python3-dev"),
    ("x.cpp:1:10: fatal error: gone.h: No such file or directory", ""),
    ("/usr/bin/ld: final link failed: No space left on device", "ACCEL_CACHE"),
    ("c++: fatal error: Killed signal terminated program cc1plus", "MAX_JOBS=1"),
    ("cc1plus: out of memory allocating 65536 bytes", "MAX_JOBS=1"),
    ("RuntimeError: Ninja is required to load C++ extensions", "pip install ninja"),
    ("/bin/sh: 1: c++: not found", "such as g++"),
    ("c++: fatal error: cannot execute 'cc1plus': execvp: No such file", "such as g++"),
    (
        "ImportError: libc.so.6: version `GLIBC_2.38' not found (required by x.so)",
        "set CXX",
    ),
    ("ImportError: x.so: undefined symbol: _ZN3c104cuda9SetDeviceEa", "another torch"),
    ("x.cpp:4:2: error: no", ""),
]


@pytest.mark.parametrize(("output", "step"), STEPS)
def test_the_step_fits_the_cause(output, step):
    found = failures.next_step(output)
    assert step in found if step else not found
    assert (f"Next step: {found}" in compiler.explained(output)) == bool(step)


LOGS = [
    (
        "[1/2] c++ -Werror x.cpp\nx.cpp:3:1: warning: w",
        "x.cpp:4:2: error: no",
        "ninja: error: stopped",
    ),
    (
        "ninja: error: stopped",
        "x.cpp:1:10: fatal error: gone.h: No such file",
        "x.cpp:2:1: error: b",
    ),
    ("nvcc -c k.cu", '/a/k.cu(12): error: identifier "x" is undefined', ""),
    (
        "",
        "x.cpp(4): error C2065: 'x': undeclared",
        "x.cpp(5): error C2065: 'y': undeclared",
    ),
    (
        "a.o: in function `f':",
        "x.cpp:(.text+0x5): undefined reference to `g()'",
        "collect2: error: ld",
    ),
    (
        "",
        "/usr/bin/ld: cannot find -lgone: No such file",
        "collect2: error: ld returned 1 exit status",
    ),
    (
        "Traceback (most recent call last):",
        "OSError: /x/op.so: undefined symbol: _Z1gv",
        "more",
    ),
    ("Traceback (most recent call last):\n  File", "ImportError: no torch", ""),
    ("something", "else", "\n"),
    ("", "the compiler printed nothing", None),
]


@pytest.mark.parametrize(("before", "line", "after"), LOGS)
def test_the_first_error_is_found_in_any_compilers_output(before, line, after):
    log = "" if after is None else f"{before}\n{line}\n{after}"
    assert compiler.first_error(log) == line
