"""C++, CUDA and SYCL: what is missing for each, which headers count, and what a compiler's output says."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from accel_core.errors import OpBuildError
from accel_train.ops import compiler, failures
from accel_train.ops.builder import OpBuilder
from accel_train.ops.compiler import Job, Language


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
def test_what_is_missing_for_a_device_is_told(suffix, tmp_path, monkeypatch, program):
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
        program(tools / name, f"echo '{says}'")

    if suffix == "sycl":
        assert "is built without XPU" in builder.compatibility()
        monkeypatch.setattr(torch.version, "xpu", "20250301", raising=False)
        monkeypatch.setenv("PATH", str(tools))
        assert builder.compatibility().startswith("the SYCL compiler icpx is not on PATH")
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
    assert "is from CUDA 11, but torch is built for CUDA 12.8" in builder.compatibility()
    tool("nvcc", "Cuda compilation tools, release 12.4, V12.4.1")
    assert builder.compatibility() == ""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(cpp_extension, "ROCM_HOME", None)
    assert builder.compatibility().startswith("hipcc is missing")


def test_the_devices_for_which_torch_compiles_are_part_of_the_place(tmp_path, monkeypatch, program):
    import torch
    from torch.utils import cpp_extension

    for name in ("nvcc", "nvidia-smi", "c++"):
        program(tmp_path / "bin" / name, "echo 9.0")
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
    found = {str(Path(path).relative_to(tmp_path).as_posix()) for path in compiler.content(job)}
    assert found == {"src/a.cpp", "src/near.h", "inc/far.h"}


STEPS = [
    ("extension.h:9:10: fatal error: Python.h: No such file or directory", "python3-dev"),
    ("x.cpp:1:10: fatal error: 'Python.h' file not found", "python3-dev"),
    ("x.cpp:1:10: fatal error: gone.h: No such file or directory", ""),
    ("/usr/bin/ld: final link failed: No space left on device", "ACCEL_CACHE"),
    ("c++: fatal error: Killed signal terminated program cc1plus", "MAX_JOBS=1"),
    ("cc1plus: out of memory allocating 65536 bytes", "MAX_JOBS=1"),
    ("RuntimeError: Ninja is required to load C++ extensions", "pip install ninja"),
    ("/bin/sh: 1: c++: not found", "such as g++"),
    ("c++: fatal error: cannot execute 'cc1plus': execvp: No such file", "such as g++"),
    ("ImportError: libc.so.6: version `GLIBC_2.38' not found (required by x.so)", "set CXX"),
    ("ImportError: x.so: undefined symbol: _ZN3c104cuda9SetDeviceEa", "another torch"),
    ("x.cpp:4:2: error: no", ""),
]


@pytest.mark.parametrize(("output", "step"), STEPS)
def test_the_step_fits_the_cause(output, step):
    found = failures.next_step(output)
    assert step in found if step else not found
    assert (f"Next step: {found}" in compiler.explained(output)) == bool(step)


LOGS = [
    ("[1/2] c++ -Werror x.cpp\nx.cpp:3:1: warning: w", "x.cpp:4:2: error: no", "ninja: error: stopped"),
    ("ninja: error: stopped", "x.cpp:1:10: fatal error: gone.h: No such file", "x.cpp:2:1: error: b"),
    ("nvcc -c k.cu", '/a/k.cu(12): error: identifier "x" is undefined', ""),
    ("", "x.cpp(4): error C2065: 'x': undeclared", "x.cpp(5): error C2065: 'y': undeclared"),
    ("a.o: in function `f':", "x.cpp:(.text+0x5): undefined reference to `g()'", "collect2: error: ld"),
    ("", "/usr/bin/ld: cannot find -lgone: No such file", "collect2: error: ld returned 1 exit status"),
    ("Traceback (most recent call last):", "OSError: /x/op.so: undefined symbol: _Z1gv", "more"),
    ("Traceback (most recent call last):\n  File", "ImportError: no torch", ""),
    ("something", "else", "\n"),
    ("", "the compiler printed nothing", None),
]


@pytest.mark.parametrize(("before", "line", "after"), LOGS)
def test_the_first_error_is_found_in_any_compilers_output(before, line, after):
    log = "" if after is None else f"{before}\n{line}\n{after}"
    assert compiler.first_error(log) == line
