"""Modules made from a surface and nothing else: they offer its names, check calls and keep what misfits.

A name that the surface lacks raises `AttributeError`, and is kept as a violation when it was used without
being looked for. A call that does not fit raises `TypeError` and is kept. Code that swallows exceptions
therefore hides nothing.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from types import CodeType, FrameType, ModuleType, SimpleNamespace
from typing import Any

import torch

from accel_testing.surfaces import Entry, Surface

__all__ = ["Recorder"]

DEVICES = 2
#: Calls that start a vendor's runtime, which fills `default_generators`.
_STARTERS = ("init", "_lazy_init", "current_device", "synchronize")
_PLAIN_USES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")


class Recorder:
    """One vendor, simulated as far as answers of the right type go.

    `conditional`: names that are there only under a condition are there.
    """

    def __init__(self, surface: Surface, *, conditional: bool) -> None:
        self.conditional = conditional
        self.violations: list[str] = []
        #: Paths of the functions that were called.
        self.called: set[str] = set()
        self.modules: dict[str, ModuleType] = {}
        self._answers = _Answers()
        self._unstarted: list[ModuleType] = []
        made: dict[int, ModuleType] = {}
        for path, names in surface.modules.items():
            if id(names) not in made:
                made[id(names)] = self._module(path, names)
            self.modules[path] = made[id(names)]
        for path, module in list(self.modules.items()):
            self._hang_up(path, module)

    def _module(self, path: str, names: dict[str, Entry]) -> ModuleType:
        module = _Module(path, self.violations)
        for name, entry in names.items():
            if entry.condition and not self.conditional:
                continue
            setattr(module, name, self._make(name, entry))
            if name == "default_generators":
                module.default_generators = ()  # type: ignore[attr-defined]
                self._unstarted.append(module)
        return module

    def _hang_up(self, path: str, module: ModuleType) -> None:
        """Make `a.b.c` an attribute of `a.b`, and so on up to the package."""
        while "." in path and not path.startswith("torch.backends"):
            parent, _, name = path.rpartition(".")
            if parent == "torch":
                break
            holder = self.modules.setdefault(parent, _Module(parent, self.violations))
            setattr(holder, name, module)
            path, module = parent, holder

    def _make(self, name: str, entry: Entry) -> Any:
        if entry.kind == "module":
            # One that no surface describes offers nothing; `_hang_up` puts the others in its place.
            return _Module(entry.path, self.violations)
        if entry.kind == "class":
            return self._class(name, entry)
        if entry.kind == "attribute":
            return self._answers.attribute(name)
        return self._function(name, entry)

    def _function(self, name: str, entry: Entry) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._check(entry, args, kwargs)
            self.called.add(entry.path)
            if name in _STARTERS:
                for module in (m for m in self._unstarted if "default_generators" in vars(m)):
                    module.default_generators = self._answers.generators  # type: ignore[attr-defined]
            return self._answers.call(name, entry.path, args, kwargs)

        call.__name__ = call.__qualname__ = name
        call.__module__ = entry.path.rpartition(".")[0]
        if entry.signature is not None:
            call.__signature__ = entry.signature  # type: ignore[attr-defined]
        return call

    def _check(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        misfit = entry.misfit(len(args), kwargs)
        if misfit:
            if _is_ours(_caller()):
                self.violations.append(misfit)
            raise TypeError(misfit)

    def _class(self, name: str, entry: Entry) -> type:
        def start(instance: Any, *args: Any, **kwargs: Any) -> None:
            self._check(entry, args, kwargs)
            self.called.add(entry.path)

        namespace: dict[str, Any] = {"__init__": start, "__module__": entry.path.rpartition(".")[0]}
        for method, member in entry.members.items():
            if member.kind == "attribute":
                namespace[method] = None
            elif method not in ("__init__", "__eq__", "__hash__", "__new__"):
                namespace[method] = self._method(method, member)
        if entry.open and not entry.members:
            namespace["__getattr__"] = lambda _self, wanted: getattr(_Opaque(), wanted)  # nobody has read it
        made = type(name, (), namespace)
        if entry.signature is not None:
            made.__signature__ = entry.signature  # type: ignore[attr-defined]
        return made

    def _method(self, name: str, member: Entry) -> Any:
        plain = self._function(name, member)
        if member.static:
            return staticmethod(plain)

        def method(_self: Any, *args: Any, **kwargs: Any) -> Any:
            return plain(*args, **kwargs)

        if member.signature is not None:
            own = inspect.Parameter("_self", inspect.Parameter.POSITIONAL_ONLY)
            method.__signature__ = inspect.Signature([own, *member.signature.parameters.values()])  # type: ignore[attr-defined]
        return method


class _Module(ModuleType):
    """A module that offers what it was given; whoever takes more for granted is noted."""

    def __init__(self, path: str, violations: list[str]) -> None:
        super().__init__(path)
        self.__dict__["__violations__"] = violations
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and _is_taken_for_granted(sys._getframe(1)):
            self.__dict__["__violations__"].append(f"{self.__name__}.{name} is not in the vendor's surface")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _caller() -> FrameType:
    """Who called into this file."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") == __name__ and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    """Whether it is the plugin, accel_core or their user; torch's own use is torch's affair."""
    return str(frame.f_globals.get("__name__", "")).startswith("accel_")


def _is_taken_for_granted(frame: FrameType) -> bool:
    """Whether our own code wrote `module.name`, rather than `getattr` or `hasattr`."""
    return _is_ours(frame) and _instructions(frame.f_code).get(frame.f_lasti) in _PLAIN_USES


@cache
def _instructions(code: CodeType) -> dict[int, str]:
    return {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}


class _Opaque:
    """What a vendor's C library returns: it may be called, and any method of it."""

    def __call__(self, *_: Any, **__: Any) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Answers:
    """Values of the right type, and the little state that callers rely on."""

    def __init__(self) -> None:
        self.current = 0
        self.generators = tuple(torch.Generator() for _ in range(DEVICES))

    def attribute(self, name: str) -> Any:
        if name == "_initialized":
            return False
        return getattr(self, f"answer_{name}", None) or _Opaque()

    def call(self, name: str, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        of_torch = path.startswith("torch.accelerator.") and getattr(self, f"answer_torchs_{name}", None)
        answer = of_torch or getattr(self, f"answer_{name}", None)
        if answer is not None:
            return answer(*args, **kwargs)
        if name.startswith(("is_", "_is_", "query")):
            return True
        if "memory" in name and not name.startswith(("reset", "set")):
            return 1 << 20
        return None

    def answer_device_count(self) -> int:
        return DEVICES

    def answer_current_device(self) -> int:
        return self.current

    def answer_set_device(self, device: Any) -> None:
        self.current = int(device)

    def answer_get_device_properties(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(name="recorder", total_memory=1 << 30, major=9, minor=0, gcnArchName="gfx942")

    def answer_get_device_capability(self, *_: Any, **__: Any) -> tuple[int, int]:
        return (9, 0)

    def answer_torchs_get_device_capability(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Which is another thing than vendors tell under this name."""
        return {"supported_dtypes": {torch.float32}}

    def answer_get_device_name(self, *_: Any, **__: Any) -> str:
        return "recorder"

    def answer_mem_get_info(self, *_: Any, **__: Any) -> tuple[int, int]:
        return (1 << 20, 1 << 30)

    answer_get_memory_info = answer_mem_get_info

    def answer_memory_stats(self, *_: Any, **__: Any) -> dict[str, int]:
        return {"allocated_bytes.all.current": 1, "Limit": 4, "InUse": 1, "MaxInUse": 2}

    def answer_get_rng_state(self, *_: Any, **__: Any) -> torch.Tensor:
        return self.generators[0].get_state()

    def answer_initial_seed(self) -> int:
        return 0

    def answer__get_default_mps_generator(self) -> torch.Generator:
        return self.generators[0]

    def answer_stream(self, *_: Any, **__: Any) -> Any:
        return nullcontext()

    def answer__lazy_call(self, callback: Callable[[], Any], **_: Any) -> None:
        callback()

    def answer_cudart(self) -> Any:
        return _Opaque()

    def answer_supart(self) -> Any:
        return _Opaque()

    def answer_version(self) -> tuple[int, int, int]:
        return (2, 1, 0)

    def answer_get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def answer_get_core_count(self) -> int:
        return 8

    def answer_get_name(self) -> str:
        return "recorder"

    def answer_elapsed_time(self, *_: Any, **__: Any) -> float:
        return 0.0

    def answer_pool(self) -> tuple[int, int]:
        return (0, 0)
