"""The compilers behind `torch.utils.cpp_extension`: which are missing, which versions they are, and a build.

A build runs torch's `load()` in a child process, in an empty folder of its own. Its output goes to a log
instead of the terminal. torch's lock file is never shared: it would outlive a killed builder and block every
later one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from enum import Enum
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from accel_core.errors import BackendUnavailableError, OpBuildError
from accel_core.sandbox import processes
from accel_core.torch_import import AUTOLOAD, import_torch
from accel_train.ops import failures

__all__ = ["Job", "Language", "compile_library", "content", "explained", "extensions", "fault", "first_error",
           "identity"]  # fmt: skip


class Language(Enum):
    """The language of an operator's sources; C++ may be mixed with each of the others."""

    CXX = "C++"
    CUDA = "CUDA"
    SYCL = "SYCL"

    @classmethod
    def of(cls, sources: Iterable[str | Path]) -> Language:
        """Return the language by the suffixes that torch knows: `.cu`, `.cuh`, `.hip`; `.sycl`; else C++.

        Raises `OpBuildError` for CUDA and SYCL in one operator, which torch cannot link.
        """
        suffixes = {Path(source).suffix for source in sources}
        cuda, sycl = suffixes & {".cu", ".cuh", ".hip"}, ".sycl" in suffixes
        if cuda and sycl:
            raise OpBuildError(
                "CUDA and SYCL sources cannot be in one operator: make two operators"
            )
        return cls.CUDA if cuda else cls.SYCL if sycl else cls.CXX


class Job(NamedTuple):
    """A compilation, with the fields of `torch.utils.cpp_extension.load`."""

    name: str
    sources: tuple[Path, ...]
    include_paths: tuple[Path, ...]
    cxx_flags: tuple[str, ...]
    #: nvcc's, or the SYCL compiler's.
    device_flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @property
    def language(self) -> Language:
        """Return the language of the sources."""
        return Language.of(self.sources)


def extensions() -> ModuleType:
    """Return the module `torch.utils.cpp_extension`.

    Raises `BackendUnavailableError` without torch, and `OpBuildError` without setuptools, which torch needs.
    """
    import_torch()
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        raise OpBuildError(
            f"torch cannot compile without {error.name}: pip install {error.name}"
        ) from error
    return cpp_extension


def fault(language: Language) -> str:
    """Return why nothing in this language can be compiled here, as one sentence; empty if it can."""
    try:
        cpp_extension = extensions()
        compiler = _cxx(cpp_extension)
    except (BackendUnavailableError, OpBuildError) as error:
        return str(error)
    if not compiler or shutil.which(compiler[0]) is None:
        named = "CXX names it" if "CXX" in os.environ else "set CXX to name another"
        return f"the C++ compiler {shlex.join(compiler)!r} is not on PATH ({named}): install one, such as g++"
    if _ninja() is None:
        return "ninja, with which torch compiles, is missing: pip install ninja"
    headers = sysconfig.get_path("include")
    if not Path(headers, "Python.h").is_file():
        return f"Python's headers are missing ({headers}/Python.h): install python3-dev or python3-devel"
    try:
        _output_of(compiler, "--version")
        if language is Language.CUDA:
            return _cuda_fault(cpp_extension)
    except OpBuildError as error:
        return str(error)
    return _sycl_fault(cpp_extension) if language is Language.SYCL else ""


def _cuda_fault(cpp_extension: ModuleType) -> str:
    torch = import_torch()
    if torch.version.hip:
        home = cpp_extension.ROCM_HOME
        missing = not (home and Path(home, "bin", "hipcc").exists())
        return (
            f"hipcc is missing (ROCM_HOME is {home}): install ROCm {torch.version.hip}"
            if missing
            else ""
        )
    if not torch.version.cuda:
        return f"torch {torch.__version__} is built without CUDA: accel setup cuda"
    home = cpp_extension.CUDA_HOME
    if not (home and Path(home, "bin", "nvcc").exists()):
        return (
            f"nvcc is missing (CUDA_HOME is {home}): install the CUDA toolkit {torch.version.cuda}, "
            "or set CUDA_HOME"
        )
    release = re.search(
        r"release (\d+)", _output_of([str(Path(home, "bin", "nvcc"))], "--version")
    )
    major = torch.version.cuda.partition(".")[0]
    if release and release[1] != major:
        return (
            f"nvcc in {home} is from CUDA {release[1]}, but torch is built for CUDA {torch.version.cuda}: "
            f"set CUDA_HOME to a toolkit {major}.x"
        )
    return ""


def _sycl_fault(cpp_extension: ModuleType) -> str:
    torch = import_torch()
    if not hasattr(cpp_extension, "SyclExtension"):
        return (
            f"torch {torch.__version__} cannot compile SYCL, which torch 2.7 and "
            "newer can: accel setup xpu"
        )
    if not getattr(torch.version, "xpu", None):
        return f"torch {torch.__version__} is built without XPU: accel setup xpu"
    if shutil.which("icpx") is None:
        return "the SYCL compiler icpx is not on PATH: source oneAPI's setvars.sh"
    return ""


def identity(job: Job) -> dict[str, Any]:
    """Return all facts that affect the result of a job, except the contents of its files; JSON-able.

    Raises `OpBuildError` if a compiler does not run.
    """
    torch, cpp_extension = import_torch(), extensions()
    compiler = _cxx(cpp_extension)
    path = shutil.which(compiler[0]) or compiler[0]
    fingerprint: dict[str, Any] = {
        "torch": torch.__version__,
        "abi": bool(torch.compiled_with_cxx11_abi()),
        "python": sysconfig.get_config_var("EXT_SUFFIX"),
        "compiler": [
            *compiler,
            os.path.realpath(path),
            _first_line(_output_of(compiler, "--version")),
        ],
        "flags": [job.cxx_flags, job.device_flags, job.link_flags],
    }
    if any("native" in flag for flag in job.cxx_flags):
        # What "native" stands for on this processor, as the compiler sees it.
        macros = _output_of(
            [*compiler, *job.cxx_flags], "-dM", "-E", "-x", "c++", os.devnull
        )
        fingerprint["native"] = hashlib.sha256(macros.encode()).hexdigest()
    if job.language is Language.CUDA:
        home = cpp_extension.ROCM_HOME if torch.version.hip else cpp_extension.CUDA_HOME
        tool = str(Path(home or "", "bin", "hipcc" if torch.version.hip else "nvcc"))
        fingerprint["device"] = [_output_of([tool], "--version"), *_architectures()]
    elif job.language is Language.SYCL:
        fingerprint["device"] = [_output_of(["icpx"], "--version"), *_architectures()]
    return fingerprint


def _architectures() -> list[str]:
    """Give what decides torch's target devices: its own variables, else the present devices."""
    named = ("TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "TORCH_XPU_ARCH_LIST")
    targets = [f"{name}={os.environ[name]}" for name in named if os.environ.get(name)]
    if not targets and shutil.which("nvidia-smi"):
        # Not through torch, whose context in this process a fork would not survive.
        targets = [
            _output_of(
                ["nvidia-smi"], "--query-gpu=compute_cap", "--format=csv,noheader"
            )
        ]
    return targets


def content(job: Job) -> dict[str, str]:
    """Return the SHA-256 of each source, and of each of its own headers that it includes, by path.

    Raises `OpBuildError` if a source is missing.
    """
    digests: dict[str, str] = {}
    left = list(job.sources)
    while left:
        path = left.pop()
        if str(path) in digests:
            continue
        try:
            text = path.read_bytes()
        except OSError as error:
            raise OpBuildError(
                f"{job.name}: {path} cannot be read: {error.strerror}"
            ) from error
        digests[str(path)] = hashlib.sha256(text).hexdigest()
        for name in re.findall(
            rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', text, re.MULTILINE
        ):
            places = (
                folder / os.fsdecode(name)
                for folder in (path.parent, *job.include_paths)
            )
            left += [
                Path(os.path.normpath(place)) for place in places if place.is_file()
            ]
    return digests


#: Seconds for the compilers to end when they are to; a little more than the child gives them.
_LAST_SECONDS = 3.0
#: The child's program. torch also opens the library that it made, so an undefined symbol shows here.
_PROGRAM = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job.pop('path'); "
    "from accel_train.ops.ending import end_group_with_parent as e; e(job.pop('parent')); "
    "import torch.utils.cpp_extension as c; c.load(**job, is_python_module=False, verbose=True)"
)


def compile_library(job: Job, folder: Path, log: Path) -> Path:
    """Compile in `folder` and return the library's path; the compiler writes its output to `log`.

    After success, `folder` holds only the library, and `log` is removed. After failure, `log` is kept; raises
    `OpBuildError` with the first error line of the output.
    """
    work = folder / "work"
    work.mkdir(mode=0o700)
    device = {
        Language.CUDA: "extra_cuda_cflags",
        Language.SYCL: "extra_sycl_cflags",
    }.get(job.language)
    request: dict[str, Any] = {
        "parent": os.getpid(),
        "path": [entry for entry in sys.path if isinstance(entry, str)],
        "name": job.name,
        "sources": [str(source) for source in job.sources],
        "extra_include_paths": [str(path) for path in job.include_paths],
        "extra_cflags": list(job.cxx_flags),
        "extra_ldflags": list(job.link_flags),
        "build_directory": str(work),
    }
    if device:
        request[device] = list(job.device_flags)
    ninja = _ninja()
    environ = {**os.environ, AUTOLOAD: "0"}
    if ninja:
        environ["PATH"] = os.pathsep.join(
            (environ.get("PATH", ""), str(Path(ninja).parent))
        )
    with (
        log.open("wb") as output,
        subprocess.Popen(
            processes.python_command(_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=environ,
            start_new_session=True,  # so that compilers can be ended with it
        ) as process,
    ):
        try:
            process.communicate(json.dumps(request).encode())
        finally:
            if (
                process.poll() is None
            ):  # Ctrl-C, which a session of its own does not hear
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LAST_SECONDS)
            processes.end_group(process)
    results = (path for path in work.iterdir() if path.stem == job.name)
    made = next((path for path in results if path.suffix in EXTENSION_SUFFIXES), None)
    if process.returncode or made is None:
        text = log.read_text(encoding="utf-8", errors="replace")
        raise OpBuildError(
            f"{job.name} does not compile: {explained(text)}\nThe compiler's output: {log}"
        )
    library = folder / made.name
    made.rename(library)
    shutil.rmtree(work)
    log.unlink()
    return library


#: What a line that tells of an error looks like: compilers' first, then linkers', loaders' and Python's.
_ERRORS = (
    r"^(?!ninja|collect2).*(?:^|[:)] )(?:fatal )?error(?: \w*\d+)?: ",
    r"undefined reference|undefined symbol|cannot find -l|unresolved external|not found for arch",
    r"^(?!subprocess\.|RuntimeError: Error building)[\w.]*(?:Error|Exception): ",
)


def explained(output: str) -> str:
    """Return the first error of a compiler's output, and what to do about it if its cause is known."""
    step = failures.next_step(output)
    return f"{first_error(output)}{f'. Next step: {step}' if step else ''}"


def first_error(log: str) -> str:
    """Return the first line of a compiler's output that is an error; else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for pattern in _ERRORS:
        match = next((line for line in lines if re.search(pattern, line)), None)
        if match:
            return match
    return lines[-1] if lines else "the compiler printed nothing"


def _cxx(cpp_extension: ModuleType) -> list[str]:
    """The compiler that torch takes, with its arguments: `CXX`, else the platform's.

    Raises `OpBuildError` for what is no command line.
    """
    named: str = cpp_extension.get_cxx_compiler()
    try:
        return shlex.split(named)
    except ValueError as error:
        raise OpBuildError(
            f"CXX={named!r} is not a valid command line: {error}. Write CXX='g++ -m64'."
        ) from None


def _ninja() -> str | None:
    """The ninja on PATH, or beside this Python, whose environment need not be activated."""
    return shutil.which("ninja") or shutil.which(
        "ninja", path=sysconfig.get_path("scripts")
    )


def _output_of(command: Sequence[str], *arguments: str) -> str:
    """Give a tool's output; raises `OpBuildError` if it does not run."""
    if (
        sys.platform == "win32"
        and arguments == ("--version",)
        and Path(command[0]).stem.lower() == "cl"
    ):
        arguments = ()  # prints its version when it is asked nothing
    try:
        done = subprocess.run([*command, *arguments], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        stderr = getattr(error, "stderr", b"") or b""
        why = _first_line(stderr.decode("utf-8", "replace")) or str(error)
        raise OpBuildError(f"{shlex.join(command)} does not run: {why}") from error
    return (done.stdout or done.stderr).decode("utf-8", "replace")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
