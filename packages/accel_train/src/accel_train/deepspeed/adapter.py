"""Turn an existing `DeepSpeedAccelerator`, in-tree or a vendor's, into an accelerator of ours.

    Backend(name="acme", priority=950, device_type="acme", vendor_import="torch_acme",
            accelerator="acme_deepspeed.accelerator:ACME_Accelerator")

`accel_core.set_accelerator()` accepts the object or the class too. Members that the class implements are its
own. For members that it lacks (it was written for an older DeepSpeed, or ours has more), the adapted object
uses our default for that device. This module does not import DeepSpeed: the class does. If choosing an
accelerator imports the class, DeepSpeed uses the adapted object as its own, as after `activate()`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

from accel_core import Accelerator, Backend, OpProvider
from accel_core.errors import InvalidAcceleratorError
from accel_core.op_providers import providers
from accel_core.torch_import import import_torch
from accel_train.deepspeed import _lists, _placing, op_builders
from accel_train.staged import STAGED, obstacle

__all__ = ["adapt"]

_ABSTRACT = "DeepSpeedAccelerator"
#: Ours in any case: operators of the foreign class are a provider beside the others, and a pickle names ours.
_KEPT = frozenset(
    (
        "backend",
        "communication_backend_name",
        "create_op_builder",
        "get_op_builder",
        "name",
        "op_builder_dir",
    )
)


def adapt(foreign: object, backend: Backend | None) -> Accelerator | None:
    """Return an accelerator for `foreign`, an object or class of DeepSpeed's interface; else `None`.

    A class is called without arguments, even if it is abstract because DeepSpeed is newer than the class.
    Without `backend`, the declaration is made from what the object reports. Raises `InvalidAcceleratorError`
    if the object cannot be made, or is for another device type than `backend`.
    """
    kind = foreign if isinstance(foreign, type) else type(foreign)
    if not any(base.__name__ == _ABSTRACT for base in kind.__mro__):
        return None
    made: Any = _object(kind) if foreign is kind else foreign
    device_type = str(made.device_name()).partition(":")[0]
    if backend is None:
        backend = _declaration(made, kind, device_type)
    elif backend.device_type != device_type:
        raise InvalidAcceleratorError(
            f"backend {backend.name!r} is declared for the device type {backend.device_type!r}, and its "
            f"class {_described(kind)} is for {device_type!r}: declare device_type={device_type!r}"
        )
    adapted: Any = _class(kind, device_type)(backend, made)
    adapted._op_providers = providers  # DeepSpeed is given its operators at once
    _placing.settle(adapted)
    return cast("Accelerator", adapted)


def _object(kind: type) -> Any:
    """One of the class; a newer DeepSpeed may ask for members that it has not, which ours gives."""
    try:
        return (
            _concrete(kind) if getattr(kind, "__abstractmethods__", None) else kind
        )()
    except Exception as error:
        raise InvalidAcceleratorError(
            f"{_described(kind)} cannot be made without arguments: {type(error).__name__}: {error}. Give "
            "accel_core.set_accelerator() an object of it, or declare a class that takes none"
        ) from error


def _concrete(kind: type) -> type:
    whole: Any = type(kind)(kind.__name__, (kind,), {"__module__": kind.__module__})
    whole.__abstractmethods__ = frozenset()
    return cast("type", whole)


def _described(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _declaration(made: Any, kind: type, device_type: str) -> Backend:
    return Backend(
        name=str(getattr(made, "_name", "") or device_type).lower(),
        priority=0,
        device_type=device_type,
        accelerator=f"{kind.__module__}:{kind.__name__}",
        description=f"{_described(kind)}, an accelerator class of DeepSpeed's interface",
    )


def _base(device_type: str) -> type[Accelerator]:
    """The class of ours whose members stand in for those that are missing."""
    if device_type == "cpu":
        from accel_core.interface.cpu import CPUAccelerator

        return CPUAccelerator
    if hasattr(import_torch(), device_type):
        from accel_core import TorchAccelerator

        return TorchAccelerator
    return Accelerator


# --- the class -----------------------------------------------------------------------------------------


@functools.cache
def _class(kind: type, device_type: str) -> type:
    """A class over one of ours whose members are those that `kind` implements."""
    members = {name: _member(kind, name) for name in _implemented(kind)}
    bases = (_Adapted, _base(device_type))
    made = type(kind.__name__, bases, {**members, "__module__": kind.__module__})
    for abstract in kind.__mro__:
        register = getattr(abstract, "register", None)
        if abstract.__name__ == _ABSTRACT and register is not None:
            register(made)  # DeepSpeed's own set_accelerator() takes it
    return made


def _implemented(kind: type) -> Iterator[str]:
    for name in dir(kind):
        if name.startswith("_") or name in _KEPT:
            continue
        if not getattr(getattr(kind, name), "__isabstractmethod__", False):
            yield name


def _member(kind: type, name: str) -> Any:
    """Give a function that asks the foreign object itself: classes may set members on construction."""
    inherited = getattr(kind, name)
    if not callable(inherited) or isinstance(inherited, type):
        return property(
            lambda self: getattr(self._foreign, name),
            lambda self, value: self._set(name, value),
        )

    @functools.wraps(inherited)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(self._foreign, name)(*args, **options)

    @functools.wraps(inherited)
    def device(self: Any, *args: Any, **options: Any) -> Any:
        # Of some of DeepSpeed's classes it is a context manager, which `model.to(...)` does not take.
        given = call(self, *args, **options)
        torch = import_torch()
        index = next(iter((*args, *options.values())), None)
        return (
            given
            if isinstance(given, torch.device)
            else torch.device(self.backend.device_type, index)
        )

    return device if name == "device" else call


class _Adapted:
    """Members of every adapted class. Mixed in before one of ours."""

    backend: Backend
    _foreign: Any = None
    _is_whole = False

    def __init__(self, backend: Backend, foreign: Any) -> None:
        self._foreign = foreign
        make: Any = super().__init__
        make(backend)
        self._is_declared = backend.provenance is not None
        if stated := getattr(
            foreign, "_compile_backend", None
        ):  # kept by DeepSpeed's own classes
            self._compile_backend = stated
        self._is_whole = True

    @property
    def _name(self) -> str:
        return str(getattr(self._foreign, "_name", None) or self.backend.name)

    def _set(self, name: str, value: Any) -> None:
        """Set a member of the foreign object; nothing during construction, as it has that member."""
        if self._is_whole:
            setattr(self._foreign, name, value)

    def __getattr__(self, name: str) -> Any:
        """Look up a member that only the vendor's class has, `_communication_backend_name` too."""
        if name.startswith("__") or self._foreign is None:
            raise AttributeError(name)
        return getattr(self._foreign, name)

    def communication_backend_name(self) -> str | None:
        """Give the class's name, or the one that DeepSpeed's own classes keep, else ours.

        gloo is `staged` where it does not take the device's tensors: DeepSpeed's class for Metal names gloo.
        """
        foreign = self._foreign
        name = foreign.communication_backend_name() or getattr(
            foreign, "_communication_backend_name", None
        )
        name = name or super().communication_backend_name()  # type: ignore[misc]
        name = (
            STAGED
            if name == "gloo" and obstacle(name, self.backend.device_type)
            else name
        )
        return cast("str | None", name)

    def __reduce__(self) -> Any:
        if (
            self.backend.provenance is not None
        ):  # a plugin declares it: its name finds it in the other process
            return super().__reduce__()
        return adapt, (_original(type(self._foreign)), None)

    def _providers(self) -> tuple[OpProvider, ...]:
        """The class's own builders come first."""
        others: tuple[OpProvider, ...] = super()._providers()  # type: ignore[misc]
        names = {name for provider in others for name in provider.builders}
        names |= (
            op_builders.sources(self.backend.device_type).keys()
            | op_builders.sources("cuda").keys()
        )
        return (self._own_operators(names), *others)

    def _own_operators(self, names: set[str]) -> OpProvider:
        found = {}
        for name in sorted(names):
            kind = None
            with suppress(Exception):  # of a class whose builders are not installed
                kind = self._foreign.get_op_builder(name)
            if (
                isinstance(kind, type)
                and getattr(kind, "NAME", "") != _lists.NOT_IMPLEMENTED
            ):
                found[name] = f"{kind.__module__}:{kind.__qualname__}"
        provider, package = _described(_original(type(self._foreign))), ""
        with suppress(Exception):
            package = self._foreign.op_builder_dir()
        return op_builders.DeepSpeedProvider(
            found, name=provider, kind="deepspeed", package=package, optional=True
        )


def _original(kind: type) -> type:
    """The vendor's class, of one that was made concrete."""
    parent = kind.__mro__[1]
    return (
        parent
        if (kind.__module__, kind.__name__) == (parent.__module__, parent.__name__)
        else kind
    )
