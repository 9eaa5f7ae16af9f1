"""`OpBuilder`: an operator in C++, CUDA or SYCL that is compiled at its first use, or ahead of time.

    class ScaleBuilder(OpBuilder):
        NAME = "scale"

        def sources(self):
            return ["csrc/scale.cpp"]  # relative to the file that defines the class

    ScaleBuilder().load().scale(tensor, 2.0)

The members have the names of DeepSpeed's builders, so existing subclasses and callers work unchanged.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from accel_core.errors import AccelError, OpBuildError
from accel_core.locks import ForkSafeLock
from accel_train.ops import cache, compiler
from accel_train.ops.compiler import Job, Language

__all__ = ["OpBuilder"]

#: The modules that are loaded, by absolute name: a second copy would have a state of its own.
_loaded: dict[str, ModuleType] = {}
_lock = ForkSafeLock()


class OpBuilder(ABC):
    """Builds and loads one operator. A subclass defines `NAME` and `sources()`; all else has defaults."""

    #: Short name of the operator, in lower case: `"cpu_adam"`.
    NAME: ClassVar[str] = ""
    #: The variable with which a `setup.py` asks whether to build this operator ahead of time, if it does.
    BUILD_VAR: ClassVar[str] = ""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or self.NAME
        #: Why the last `is_compatible()` said no.
        self.error_log: str | None = None

    @abstractmethod
    def sources(self) -> list[str]:
        """Return the source files, absolute or relative to the folder of the file that defines the class.

        As in torch, `.cu` and `.hip` are CUDA, `.sycl` is SYCL, and anything else is C++. One file must
        define the Python module with `PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)` or an equivalent.
        """

    def absolute_name(self) -> str:
        """Return the module's name when it is built ahead of time; by default beside this class's module."""
        return f"{type(self).__module__.rpartition('.')[0] or type(self).__module__}.{self.name}_op"

    def include_paths(self) -> list[str]:
        """Return folders with headers, absolute or relative as for `sources()`."""
        return []

    def cxx_args(self) -> list[str]:
        """Return flags for the C++ compiler."""
        return ["/O2"] if sys.platform == "win32" else ["-O3"]

    def nvcc_args(self) -> list[str]:
        """Return flags for nvcc (or hipcc), or for the SYCL compiler if the sources are SYCL."""
        return ["-O3"]

    def extra_ldflags(self) -> list[str]:
        """Return flags for the linker."""
        return []

    def libraries_args(self) -> list[str]:
        """Return the names of libraries to link with: `["cublas"]`."""
        return []

    def compatibility(self) -> str:
        """Return why `load()` would fail here, as one sentence; empty if it would not. Compiles nothing."""
        try:
            if self.is_built():
                return ""
            return compiler.fault(self._job().language) or self._entry().fault()
        except AccelError as error:
            return str(error)

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether `load()` can work here; `error_log` says why not, and `verbose` prints it."""
        self.error_log = self.compatibility() or None
        if self.error_log and verbose:
            sys.stderr.write(f"{self.name}: {self.error_log}\n")
        return not self.error_log

    def is_built(self) -> bool:
        """Return whether nothing is left to compile: it is loaded, built ahead of time, or in the cache.

        Raises `OpCacheError` if the cache entry must not be loaded.
        """
        if self.absolute_name() in _loaded or self._ahead_of_time():
            return True
        job = self._job()
        if not cache.has_any(job.name):
            return False  # which entry would be ours takes a compiler, asked for its version, to know
        return not compiler.fault(job.language) and self._entry().find() is not None

    def load(self, verbose: bool = True) -> Any:
        """Return the operator's module: the one built ahead of time if installed, else compile it now.

        `verbose`: print a line on stderr when a compiler starts, or when another process is waited for.
        Raises `OpBuildError` if the operator does not compile or does not load, and `OpCacheError` if its
        place in the cache cannot be used.
        """
        with _lock.held():
            known = _loaded.get(self.absolute_name())
            if known is None:
                known = (
                    self._load_ahead_of_time()
                    if self._ahead_of_time()
                    else self.jit_load(verbose)
                )
                _loaded[self.absolute_name()] = known
            return known

    def jit_load(self, verbose: bool = True) -> Any:
        """Return the operator's module from the cache; compile it first if it is missing there."""
        job = self._job()
        why = compiler.fault(job.language)
        if why:
            raise OpBuildError(f"{self.name} cannot be compiled: {why}")
        place = self._entry()
        for built in (False, True):
            with place.held() as library:
                if library is not None:
                    return _import_library(job.name, library)
            if not built:
                self._build(job, place, verbose)
        raise OpBuildError(
            f"{place.folder} was removed while {self.name} was being built: call load() again"
        )

    def builder(self) -> Any:
        """Return the extension for `ext_modules`, which setuptools and torch's `BuildExtension` build.

        Raises `OpBuildError` if torch cannot build the sources' language.
        """
        job = self._job()
        cpp_extension = compiler.extensions()
        kind = {
            Language.CXX: "CppExtension",
            Language.CUDA: "CUDAExtension",
            Language.SYCL: "SyclExtension",
        }
        make = getattr(cpp_extension, kind[job.language], None)
        if make is None:
            raise OpBuildError(f"{self.name}: this torch lacks {kind[job.language]}")
        arguments = {"cxx": list(job.cxx_flags)}
        if job.language is not Language.CXX:
            arguments["nvcc" if job.language is Language.CUDA else "sycl"] = list(
                job.device_flags
            )
        return make(
            name=self.absolute_name(),
            sources=[_relative(source) for source in job.sources],
            include_dirs=[str(path) for path in job.include_paths],
            libraries=list(self.libraries_args()),
            extra_compile_args=arguments,
            extra_link_args=_without_empty(self.extra_ldflags()),
        )

    def _job(self) -> Job:
        module = sys.modules.get(type(self).__module__)
        folder = Path(getattr(module, "__file__", None) or ".").absolute().parent
        link = "{}.lib" if sys.platform == "win32" else "-l{}"
        sources = tuple(folder / source for source in _without_empty(self.sources()))
        uses_device = Language.of(sources) is not Language.CXX
        return Job(
            name=self.absolute_name().rpartition(".")[2],
            sources=sources,
            include_paths=tuple(
                folder / path for path in _without_empty(self.include_paths())
            ),
            cxx_flags=tuple(_without_empty(self.cxx_args())),
            device_flags=tuple(_without_empty(self.nvcc_args())) if uses_device else (),
            link_flags=(
                *_without_empty(self.extra_ldflags()),
                *map(link.format, self.libraries_args()),
            ),
        )

    def _entry(self) -> cache.Entry:
        job = self._job()
        return cache.entry(
            job.name, {**compiler.identity(job), "content": compiler.content(job)}
        )

    def _build(self, job: Job, place: cache.Entry, verbose: bool) -> None:
        def say(text: str) -> None:
            if verbose:
                sys.stderr.write(f"accel-core: {text}\n")

        def make(folder: Path) -> Path:
            say(f"compiling {self.name} (once; kept in {place.folder})")
            return compiler.compile_library(job, folder, place.log)

        place.build(
            make,
            waiting=lambda: say(
                f"waiting for another process that compiles {self.name}"
            ),
        )

    def _ahead_of_time(self) -> bool:
        """Whether a module of that name is installed."""
        try:
            spec = importlib.util.find_spec(self.absolute_name())
        except (ImportError, ValueError):
            return False
        return (
            spec is not None and spec.origin is not None
        )  # without: a folder that has the name

    def _load_ahead_of_time(self) -> ModuleType:
        name = self.absolute_name()
        try:
            return importlib.import_module(name)
        except Exception as error:
            raise OpBuildError(
                f"{name} was built ahead of time and does not load: {type(error).__name__}: {error}. "
                "Build it again with this torch, or remove it so that its first use compiles it."
            ) from error


def _import_library(name: str, library: cache.Library) -> ModuleType:
    # The loader is named, for the name to load by need not end as a Python extension does.
    loader = ExtensionFileLoader(name, library.loadable)
    spec = importlib.util.spec_from_file_location(name, library.loadable, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise OpBuildError(f"{library.path} does not load: {error}") from error
    # That name ends with the block; people and tools are to see the place.
    module.__file__ = spec.origin = loader.path = str(library.path)
    return module


def _without_empty(values: list[str]) -> list[str]:
    return [value for value in values if value]


def _relative(path: Path) -> str:
    """Relative to here where it lies below, as setuptools wants the sources of a distribution."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
